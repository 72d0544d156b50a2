"""The task of a node: a shared folder that fails for a moment ends nothing."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path
from typing import Any, cast

import pytest

from clusterctl.node.runtime.processes import wake_on
from clusterctl.node.slurm import allocation, job_files, task
from clusterctl.node.slurm.allocation import Exchange, Task
from clusterctl.node.slurm.job_files import JobFiles
from clusterctl.node.slurm.spec import Member, SlurmError

FOREVER = 1000.0  # seconds
TASK = Task(slot=0, total=1, node="gpu01", job="4711", key="4711.0")


class FakeGuardian:
    """A guardian that ends after so many polls."""

    def __init__(self, lives: int) -> None:
        self.lives = lives
        self.signals: list[int] = []

    def poll(self) -> bool:
        """Whether it has ended."""
        self.lives -= 1
        return self.lives < 0

    def wait(self, _seconds: float) -> None:
        """Wait for nothing."""

    def signal(self, number: int) -> None:
        """Keep a signal."""
        self.signals.append(number)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait, and leave the signals of the tests alone."""
    monkeypatch.setattr(task.time, "sleep", lambda _: None)
    monkeypatch.setattr(task.signal, "signal", lambda *_: None)


def fail_first(count: int, function: Any) -> Any:
    """Let the first calls of a function fail as a network file system does."""
    left = [count]

    def call(*arguments: Any, **options: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise OSError(errno.ESTALE, "Stale file handle")
        return function(*arguments, **options)

    return call


@pytest.fixture
def exchange(tmp_path: Path) -> Exchange:
    """The folder in which tasks meet."""
    return Exchange(JobFiles(str(tmp_path)), TASK)


def test_a_watch_goes_on_while_the_folder_fails(
    exchange: Exchange, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order to stop is found when it can be read again, and so is the end."""
    (tmp_path / "stop.json").write_text("{}")
    guardian = FakeGuardian(lives=5)
    monkeypatch.setattr(os, "listdir", fail_first(3, os.listdir))
    monkeypatch.setattr(task, "read_state", fail_first(3, lambda _: {"state": "SUCCEEDED"}))

    assert task.watch(cast("Any", guardian), exchange, str(tmp_path)) == 0
    assert guardian.signals == [signal.SIGTERM] and guardian.lives < 0


def test_the_end_of_an_agent_is_noticed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at the next look for an order to stop: Slurm's job ends with the task."""
    monkeypatch.undo()
    guardian = task.Guardian.__new__(task.Guardian)
    before = signal.getsignal(signal.SIGCHLD)
    try:
        guardian._wakeup, guardian.ended = wake_on(signal.SIGCHLD), False
        guardian.pid = os.posix_spawn("/bin/true", ["true"], {})
        guardian.wait(FOREVER)
        assert guardian.poll()
    finally:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, before)


def test_an_end_that_a_signals_handler_noticed_first_is_an_end() -> None:
    """Slurm's SIGTERM may come between the end of the agent and the note of it."""
    guardian = task.Guardian.__new__(task.Guardian)
    guardian.pid, guardian.ended = os.posix_spawn("/bin/true", ["true"], {}), False
    os.waitpid(guardian.pid, 0)

    assert guardian.poll()


def test_messages_survive_a_folder_that_fails(exchange: Exchange, monkeypatch: pytest.MonkeyPatch) -> None:
    """No node starts without them."""
    monkeypatch.setattr(allocation, "write_object", fail_first(3, job_files.write_object))
    exchange.post("go", {"port": 1})

    monkeypatch.setattr(os, "listdir", fail_first(1, os.listdir))
    assert not exchange.check(["go"])
    assert exchange.check(["go"])


def test_a_start_that_the_folder_breaks_ends_its_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The task must not leave it."""
    start = task.Start.__new__(task.Start)
    reasons: list[str] = []
    monkeypatch.setattr(start, "_await_event", fail_first(1, lambda *_: None))
    monkeypatch.setattr(start, "_cancel", reasons.append)

    with pytest.raises(OSError, match="Stale"):
        start.run()
    assert reasons == ["the start failed"]


@pytest.mark.parametrize(
    ("can_requeue", "ordered", "state", "status"),
    [
        (True, False, "FAILED", 75),
        (False, False, "FAILED", 1),
        (True, True, "FAILED", 1),
        (True, False, "SUCCEEDED", 0),
    ],
)
def test_a_rank_that_slurms_signal_met_first_ends_no_job(
    exchange: Exchange,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    can_requeue: bool,
    ordered: bool,
    state: str,
    status: int,
) -> None:
    """After the warning before a preemption the script goes on: by any other status it would end the job for good."""
    handlers: list[Any] = []
    monkeypatch.setattr(task.signal, "signal", lambda _, handler: handlers.append(handler))
    monkeypatch.setattr(
        task, "read_state", lambda _: {"state": state, "reason": "rank 0 ended with status 1"}
    )
    if ordered:
        (tmp_path / "stop.json").write_text("{}")
    guardian = FakeGuardian(lives=2)
    monkeypatch.setattr(
        guardian, "poll", lambda: handlers[0](signal.SIGTERM, None) or FakeGuardian.poll(guardian)
    )

    assert task.watch(cast("Any", guardian), exchange, str(tmp_path), can_requeue=can_requeue) == status


@pytest.mark.parametrize("requeue", [True, False])
def test_a_start_that_slurm_stops_is_no_failure(
    exchange: Exchange, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, requeue: bool
) -> None:
    """During the check or `setup`, too, Slurm may start the job again."""
    files, handlers = JobFiles(str(tmp_path)), list[Any]()
    job_files.write_object(files.template, {"requeue": requeue})
    job_files.write_object(files.secrets, {})
    monkeypatch.setattr(task.signal, "signal", lambda _, handler: handlers.append(handler))
    monkeypatch.setattr(task, "make_member", fail_first(1, task.make_member))
    with pytest.raises(OSError, match="Stale"):
        task.run_part(files, exchange)
    assert len(handlers) == requeue
    for handler in handlers:
        with pytest.raises(SystemExit) as ended:
            handler(signal.SIGTERM, None)
        assert ended.value.code == 75


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ('{"findings": [], "blocks": true}', "the checks failed"),
        ("[" * 1000, "cannot be read"),
        ("", "cannot be read"),
    ],
)
def test_nothing_starts_where_the_result_forbids_it_or_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, result: str, message: str
) -> None:
    """A file system that fails, or a result of many thousand nodes, is no leave to start."""
    files = JobFiles(str(tmp_path))
    exchange = Exchange(files, TASK._replace(slot=1, total=2, node="gpu02"))
    Path(exchange.folder, allocation.CHECKED).write_text(result)
    monkeypatch.setattr(allocation, "report_facts", lambda *_: None)
    monkeypatch.setattr(allocation.time, "sleep", lambda _: None)
    members = [Member(slot, f"gpu0{slot + 1}", "10.0.0.1", ("eth0",), 1) for slot in range(2)]
    template: Any = {"check": {"only": False, "setup": None}, "network": None}

    with pytest.raises(SlurmError, match=message):
        allocation.check_nodes(exchange, cast("Any", template), members, files)
