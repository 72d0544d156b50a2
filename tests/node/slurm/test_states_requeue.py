"""A job that Slurm starts again: the login node shows a further attempt, the tasks put the old records aside."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from slurm_jobs import NUMBER, make_job, make_spec

from clusterctl.node.slurm import queue, states
from clusterctl.node.slurm.commands import QueuedJob
from clusterctl.node.slurm.job_files import JobFiles, write_object
from clusterctl.node.slurm.spec import Member, continue_spec, stop_by_slurm
from clusterctl.node.slurm.states import SlurmJob, archive_old_parts, query_jobs, read_earlier, states_of
from clusterctl.node.state.run_record import new_state
from clusterctl.protocol.run_paths import RunPaths

STOPPED = stop_by_slurm("4711", 3.0, None)["reason"]


@pytest.fixture
def files(tmp_path: Path) -> JobFiles:
    """The folder of a job that Slurm may start again, with two parts that Slurm has ended."""
    job = make_job(tmp_path, requeue=True)
    for slot, node in enumerate(("gpu01", "gpu02")):
        part = Path(job.run_folder) / f"{slot}-{node}"
        part.mkdir()
        paths = RunPaths(str(part))
        write_object(paths.spec, make_spec(node, slot))
        state = {**new_state(make_spec(node, slot)), "state": "STOPPED", "reason": STOPPED}
        write_object(paths.state, {**state, "ranks": {str(slot): rank_record(slot)}})
        write_object(paths.gang_record, {"ended": True})
    return job


def rank_record(rank: int) -> dict[str, Any]:
    """Give the record of a rank, with its log."""
    log = f"attempt-1/{rank}/stdout.log"
    return {
        "pid": 1,
        "starttime": 1,
        "exit": None,
        "signal": 15,
        "local_rank": 0,
        "stdout": log,
        "stderr": None,
    }


def query(files: JobFiles, monkeypatch: pytest.MonkeyPatch, state: str) -> Any:
    """Give the states as the login node lists them while Slurm has the job in this state."""
    monkeypatch.setattr(states, "query_queue", lambda _: {NUMBER: QueuedJob(NUMBER, state, "BeginTime")})
    return states_of(query_jobs([SlurmJob(files, NUMBER)])[0])


@pytest.mark.parametrize(
    ("slurm", "shown"),
    [
        ("PENDING", "SUBMITTED"),
        ("RUNNING", "PREPARING"),
        ("COMPLETING", "STOPPED"),
        ("CANCELLED", "STOPPED"),
    ],
)
def test_a_run_in_the_queue_again_is_at_its_next_attempt(
    files: JobFiles, monkeypatch: pytest.MonkeyPatch, slurm: str, shown: str
) -> None:
    """Until then, and after scancel, it is what its nodes recorded."""
    listed = query(files, monkeypatch, slurm)
    assert {state["state"] for state in listed} == {shown}
    if shown != "STOPPED":
        (state,) = listed
        assert state["attempt"] == 2
        assert [(one["attempt"], one["cause_reason"]) for one in state["attempts"]] == [(1, "requeued")]


def test_a_rank_that_slurms_signal_met_first_has_failed(
    files: JobFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job is in the queue again all the same; once its script has ended it is not asked for."""
    for part in files.part_folders():
        state = json.loads(Path(RunPaths(part).state).read_text())
        write_object(RunPaths(part).state, {**state, "state": "FAILED", "reason": "rank 0 was killed"})
    assert [state["state"] for state in query(files, monkeypatch, "PENDING")] == ["SUBMITTED"]
    write_object(files.ended, {"status": 1})
    assert {state["state"] for state in query(files, monkeypatch, "PENDING")} == {"FAILED"}


@pytest.mark.parametrize("last", ["STOPPED", "FAILED", "RUNNING"])
def test_a_next_start_that_is_being_checked_is_the_next_attempt(
    files: JobFiles, monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    """However the attempt before it ended: by Slurm's signal, by a rank that met it first, or with its node."""
    for part in files.part_folders():
        state = json.loads(Path(RunPaths(part).state).read_text())
        write_object(RunPaths(part).state, {**state, "state": last, "reason": ""})
    start = Path(files.exchanges) / "4711.1"
    start.mkdir(parents=True)
    (checked,) = query(files, monkeypatch, "RUNNING")
    assert (checked["state"], checked["attempt"]) == ("PREPARING", 2)
    resolved = states.resolve(files.part_folders()[0], SlurmJob(files, NUMBER))
    assert resolved is not None and resolved["state"] == ("LOST" if last == "RUNNING" else last)

    write_object(str(start / "failed"), {"node": "", "text": "the checks failed: CC-TORCH-001 on gpu01"})
    (failed,) = query(files, monkeypatch, "FAILED")
    assert (failed["state"], failed["attempt"], failed["reason"][:17]) == (
        "FAILED_SETUP",
        2,
        "the checks failed",
    )

    write_object(str(start / "part.1"), {})
    assert [state["node"] for state in query(files, monkeypatch, "RUNNING")] == ["gpu02"]


def test_agents_that_were_killed_ended_too(files: JobFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that failed has recorded nothing; who follows it learns that Slurm has stopped it."""
    part = files.part_folders()[0]
    state = json.loads(Path(RunPaths(part).state).read_text())
    write_object(RunPaths(part).state, {**state, "state": "RUNNING", "reason": ""})
    (listed,) = query(files, monkeypatch, "PENDING")
    assert listed["state"] == "SUBMITTED"
    job = SlurmJob(files, NUMBER, QueuedJob(NUMBER, "PENDING"))
    resolved = states.resolve(part, job)
    assert resolved is not None and (resolved["state"], resolved["reason"][:16]) == (
        "LOST",
        "stopped by Slurm",
    )


def test_the_next_start_puts_the_old_records_aside(files: JobFiles) -> None:
    """Each node its own beside the logs, node 0 those of a node that Slurm did not give again."""
    members = [Member(slot, node, "10.0.0.1", ("eth0",), 1) for slot, node in enumerate(("gpu01", "gpu03"))]
    own, other = (read_earlier(files, f"{one.slot}-{one.node}", "4711") for one in members)
    archive_old_parts(files, "4711.1", members[0], members)

    assert own.attempt == other.attempt == 1
    assert own.attempts[0]["ranks"]["0"]["stdout"] and not other.attempts[0]["ranks"]
    part = Path(files.run_folder) / "0-gpu01"
    assert not (part / "spec.json").exists() and not (part / "gang.json").exists()
    assert (part / "attempt-1" / "state.json").exists()
    assert (Path(files.folder) / "earlier" / "4711.1" / "1-gpu02" / "state.json").exists()

    spec: Any = {**make_spec("gpu01", 0), "restart": {"max": 2, "on": [], "progress": "**"}}
    continued = continue_spec(spec, own.attempt, own.attempts)
    assert (continued["attempt"], continued["restart"]["max"]) == (2, 3)  # Slurm's doing is no restart
    assert new_state(continued)["attempts"] == own.attempts
    assert continue_spec(spec, 0, []) is spec


def test_a_start_is_read_from_its_own_folder(files: JobFiles) -> None:
    """What the tasks of an earlier start have left there counts no more; the tenth start is after the ninth."""
    for start in ("4711.9", "4711.10"):
        (Path(files.exchanges) / start).mkdir(parents=True)
    (Path(files.exchanges) / "4711.9" / "part.0").write_text("{}")
    newest = Path(files.exchanges) / "4711.10"
    write_object(str(newest / "doing.1"), {"node": "gpu02", "text": "pip install"})
    start = queue.read_newest_start(files)
    assert (start.count_files("part"), start.read_step()) == (0, "gpu02: pip install")
    write_object(str(newest / "ready.1"), {})
    assert queue.read_newest_start(files).read_step() == ""


@pytest.mark.parametrize(
    ("silent", "others", "state"),
    [(60, "LOST", "LOST"), (60, "FAILED", "RUNNING"), (1, "LOST", "RUNNING"), (None, "LOST", "RUNNING")],
)
def test_a_node_that_the_others_have_lost_is_lost_before_slurm_notices(
    files: JobFiles, silent: float | None, others: str, state: str
) -> None:
    """Slurm gives it 300 s unless that is set otherwise; a node whose task gives signs of life ends by itself."""
    own, other = (Path(files.run_folder) / part for part in ("1-gpu02", "0-gpu01"))
    record = json.loads((own / "state.json").read_text())
    write_object(RunPaths(str(own)).state, {**record, "state": "RUNNING"})
    parts = [{"node": "gpu02", "state": others, "reason": "it was silent for 20 s"}]
    write_object(RunPaths(str(other)).gang_record, {"parts": parts})
    if silent is not None:
        beat = Path(files.exchanges) / "4711.0" / "alive.1"
        beat.parent.mkdir(parents=True)
        beat.touch()
        os.utime(beat, (time.time() - silent,) * 2)
    found = states.resolve(str(own), SlurmJob(files, NUMBER))
    assert found is not None
    assert (found["state"], "silent" in found["reason"]) == (state, state == "LOST")
