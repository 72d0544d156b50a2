"""How the login node reports a job that waits and begins: by a clock that no test waits for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from slurm_jobs import RUN, FakeStream, make_job, make_spec

from clusterctl.node.slurm import queue, states
from clusterctl.node.slurm.commands import Finished, QueuedJob
from clusterctl.node.slurm.job_files import JobFiles, write_object
from clusterctl.node.slurm.states import SlurmJob

SPEC = {**make_spec("any", 0), "nnodes": 1}
FOREVER = 1000.0  # seconds


class Clock:
    """A time that goes on only where the code sleeps; `events` happen at their times."""

    def __init__(self, events: dict[float, Callable[[], None]]) -> None:
        self.now, self._events = 0.0, dict(events)

    def monotonic(self) -> float:
        """Read it."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Go on."""
        self.now += seconds
        assert self.now < FOREVER, "it waits for ever"
        for moment in [moment for moment in self._events if moment <= self.now]:
            self._events.pop(moment)()


@pytest.fixture
def files(tmp_path: Path) -> JobFiles:
    """The folder of a job that was submitted."""
    return make_job(tmp_path)


@pytest.mark.parametrize(("state", "shown"), [("PENDING", "SUBMITTED"), ("RUNNING", "PREPARING")])
def test_a_check_is_listed_while_slurm_has_its_job(files: JobFiles, state: str, shown: str) -> None:
    """It takes nodes, although nothing of it ever runs there as a part of a run."""
    write_object(files.template, {"requeue": False, "spec": SPEC, "check": {"only": True}})
    job = SlurmJob(files, "4711", QueuedJob("4711", state, nodes="gpu01"))
    (listed,) = states.states_as_listed([job], None)
    assert (listed["state"], listed["slurm_job"], listed["run"]) == (shown, "4711", RUN)


class FakeSlurm:
    """The state of the job, as squeue gives it."""

    def __init__(self, files: JobFiles, monkeypatch: pytest.MonkeyPatch, state: str) -> None:
        self.files, self.state, self._patch = files, state, monkeypatch
        monkeypatch.setattr(states, "query_queue", lambda _: {"4711": QueuedJob("4711", self.state)})

    def begin(self, **messages: dict[str, Any]) -> None:
        """Let the job run, with messages of its tasks."""
        self.state, folder = "RUNNING", Path(self.files.exchanges) / "4711.0"
        folder.mkdir(parents=True)
        for name, message in messages.items():
            write_object(str(folder / name.replace("_", ".")), message)

    def end(self) -> None:
        """Let the script of the job come to its end."""
        write_object(self.files.ended, {"status": 1})

    def run(self, events: dict[float, Callable[[], None]]) -> Clock:
        """Set the clock."""
        clock = Clock(events)
        self._patch.setattr(queue, "time", clock)
        return clock


def test_what_the_nodes_report_between_two_questions_to_slurm_is_passed_on(
    files: JobFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While its last answer is still PENDING: that says nothing of a folder which is newer."""
    slurm, stream = FakeSlurm(files, monkeypatch, "PENDING"), FakeStream()
    checked = {"findings": [], "blocks": True, "skipped": "", "seconds": 1.0}
    failed = {"node": "", "text": "the checks failed"}
    slurm.run({0.5: lambda: slurm.begin(checked=checked, failed=failed), 5.0: slurm.end})

    assert queue.report_queue(SlurmJob(files, "4711"), lambda _: False, cast("Any", stream))

    last = [answer["queue"] for answer in stream.answers if "queue" in answer][-1]
    assert (last["over"], last["check"], last["failure"]) == ("COMPLETED", checked, failed)


def test_the_end_of_a_job_that_has_waited_long_is_seen_at_once(
    files: JobFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm is asked less and less often, but its script leaves a file."""
    slurm, stream = FakeSlurm(files, monkeypatch, "RUNNING"), FakeStream()
    clock = slurm.run({720.0: slurm.end})
    assert queue.report_queue(SlurmJob(files, "4711"), lambda _: False, cast("Any", stream))
    assert clock.now < 721


def test_a_deep_check_whose_nodes_reported_nothing_ends(
    files: JobFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client has nothing to follow."""
    slurm, stream = FakeSlurm(files, monkeypatch, "PENDING"), FakeStream()
    monkeypatch.setattr(queue, "submit_job", lambda *_: files)
    monkeypatch.setattr(queue, "run_program", lambda *_: Finished(0, "", ""))
    clock = slurm.run({60.0: slurm.end, 60.1: lambda: setattr(slurm, "state", "CANCELLED")})
    queue.check(cast("Any", {"template": {"spec": SPEC, "check": {"only": False}}}), cast("Any", stream))
    assert clock.now < 100


@pytest.mark.parametrize("only", [True, False])
def test_a_check_takes_its_job_out_of_slurm_once_the_facts_have_come(
    files: JobFiles, monkeypatch: pytest.MonkeyPatch, only: bool
) -> None:
    """It does not wait for the job's end, and leaves nothing of it; a deep one waits for its client to leave."""
    slurm, stream, called = FakeSlurm(files, monkeypatch, "PENDING"), FakeStream(), list[list[str]]()

    def run_program(argv: list[str], _limit: float = 0.0) -> Finished:
        called.append(argv)
        return Finished(0, "", "")

    monkeypatch.setattr(queue, "submit_job", lambda *_: files)
    monkeypatch.setattr(queue, "run_program", run_program)
    member = {"node": "gpu01", "address": "10.0.0.1", "nics": ["eth0"]}
    clock = slurm.run(
        {
            60.0: lambda: slurm.begin(member_0=member, facts_0={"facts": {"a": 1}}),
            100.0: lambda: setattr(stream, "ended", True),
        }
    )

    queue.check(cast("Any", {"template": {"spec": SPEC, "check": {"only": only}}}), cast("Any", stream))

    assert {"member": member, "facts": {"a": 1}} in stream.answers
    assert called == [["scancel", "4711"]] and (60 < clock.now < 61 if only else clock.now > 100)
    assert not Path(files.run_folder).exists()
