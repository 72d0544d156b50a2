"""Which processes of a run are halted, by the state of this node's own processes; and what the journal has of it."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from waiting import wait_until

from clusterctl.node.runtime.processes import find_process, identify
from clusterctl.node.state.run_record import Record, new_state
from clusterctl.node.state.watchers import HaltedJournal, find_watchers, mark_halted

SPEC: Any = {"run": "job-1", "node": "gpu01", "node_rank": 0, "attempt": 2}


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """Start a process that can be halted."""
    with subprocess.Popen(["sleep", "3600"]) as process:
        yield process
        process.kill()


def halt(process: subprocess.Popen[bytes], *, halted: bool = True) -> None:
    """Halt it, or let it continue."""
    process.send_signal(signal.SIGSTOP if halted else signal.SIGCONT)
    wait_until(lambda: (find_process(identify(process.pid)).state == "T") == halted, "the signal")


def test_a_rank_that_a_signal_has_stopped_is_marked(sleeper: subprocess.Popen[bytes]) -> None:
    """SIGSTOP marks it, SIGCONT takes the mark away; a rank that has ended is not looked at."""
    entry = {"local_rank": 0, **identify(sleeper.pid).as_dict(), "exit": None, "signal": None}
    state: Any = {**new_state(SPEC), "ranks": {"0": entry, "1": {**entry, "exit": 0}}}
    halt(sleeper)
    marked = mark_halted(state)["ranks"]
    halt(sleeper, halted=False)
    after = mark_halted(state)["ranks"]

    assert [rank for rank, told in marked.items() if told.get("stopped")] == ["0"]
    assert [rank for rank, told in after.items() if told.get("stopped")] == []
    assert mark_halted({**state, "state": "FAILED"})["ranks"]["0"] == entry


@pytest.mark.parametrize("name", ["guardian", "agent", "torchrun"])
def test_a_halted_process_is_named(sleeper: subprocess.Popen[bytes], name: str) -> None:
    """With its pid, as long as it is halted and the run lives; one that is gone, or another of its pid, never."""
    identity = identify(sleeper.pid).as_dict()
    state: Any = {**new_state(SPEC), name: identity}
    assert "halted" not in mark_halted(state)
    assert find_watchers(state) == [{"process": name, "pid": sleeper.pid, "halted": False}]
    halt(sleeper)
    halted = [{"process": name, "pid": sleeper.pid}]

    assert mark_halted(state)["halted"] == halted
    for other in (
        {**state, "state": "SUCCEEDED"},
        {**state, "boot_id": "another"},
        {**state, name: {**identity, "starttime": 1}},
        {**state, name: None},
    ):
        assert "halted" not in mark_halted(other)
        assert find_watchers(other) == []


def test_the_journal_has_each_halt_once(sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    """And when it was continued, but not when it ended."""
    record = Record(str(tmp_path), {**new_state(SPEC), "torchrun": identify(sleeper.pid).as_dict()})  # type: ignore[typeddict-item]  # lives
    journal = HaltedJournal(record)
    for halted in (True, False, True):
        halt(sleeper, halted=halted)
        for _ in range(2):
            journal.scan()
    sleeper.kill()
    sleeper.wait()
    journal.scan()
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]

    assert [event["event"] for event in events] == ["halted", "continued", "halted"]
    assert {(event["process"], event["pid"]) for event in events} == {("torchrun", sleeper.pid)}
