"""The task of a node: a shared folder that fails for a moment ends nothing."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path
from typing import Any, cast

import pytest

from clusterctl.node.slurm import job_files, task
from clusterctl.node.slurm.board import Board, Task
from clusterctl.node.slurm.job_files import Exchange, JobFiles

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
    return Exchange(JobFiles(str(tmp_path)), TASK.key)


def test_a_watch_goes_on_while_the_folder_fails(
    exchange: Exchange, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order to stop is found when it can be read again, and so is the end."""
    (tmp_path / "stop.json").write_text("{}")
    guardian = FakeGuardian(lives=5)
    monkeypatch.setattr(os, "listdir", fail_first(3, os.listdir))
    monkeypatch.setattr(task, "read_state", fail_first(3, lambda _: {"state": "SUCCEEDED"}))

    assert task.watch(cast("Any", guardian), exchange, TASK, str(tmp_path)) == 0
    assert guardian.signals == [signal.SIGTERM] and guardian.lives < 0


def test_messages_survive_a_folder_that_fails(exchange: Exchange, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody starts without them."""
    monkeypatch.setattr(job_files, "write_object", fail_first(3, job_files.write_object))
    exchange.post("go", {"port": 1})

    monkeypatch.setattr(os, "listdir", fail_first(1, os.listdir))
    board = Board(exchange, TASK)
    assert not board.check(["go"])
    assert board.check(["go"])


def test_a_start_that_the_folder_breaks_ends_its_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The task must not leave it."""
    start = task.Start.__new__(task.Start)
    reasons: list[str] = []
    monkeypatch.setattr(start, "_await_event", fail_first(1, lambda *_: None))
    monkeypatch.setattr(start, "_cancel", reasons.append)

    with pytest.raises(OSError, match="Stale"):
        start.run()
    assert reasons == ["the start failed"]
