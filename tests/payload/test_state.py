"""The record of a run: complete after trouble with the disk, and readable at any moment."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

from waiting import wait_until

from clusterctl.payload.processes import identify, look
from clusterctl.payload.state import Record, mark_stopped, new_state, tag_of

SPEC = {
    "run": "job-1",
    "job": "job",
    "node": "gpu01",
    "node_rank": 0,
    "attempt": 2,
    "nproc": 1,
    "world_size": 1,
}


def test_a_disk_that_refuses_delays_and_loses_nothing(tmp_path: Path) -> None:
    """Events come out in order, with the time they happened, once writing is possible again."""
    rundir = tmp_path / "run"
    record = Record(str(rundir), new_state(SPEC))
    record.note("preparing")
    record.set(state="RUNNING")
    record.note("going")
    assert not record.flush()
    rundir.mkdir()
    assert record.flush()
    events = [json.loads(line) for line in (rundir / "events.jsonl").read_text().splitlines()]

    assert [event["event"] for event in events] == ["preparing", "going"]
    assert json.loads((rundir / "state.json").read_text())["state"] == "RUNNING"


def test_since_follows_the_state(tmp_path: Path) -> None:
    """Other changes leave it alone."""
    record = Record(str(tmp_path), {**new_state(SPEC), "since": 1.0})
    record.set(reason="x", state="SUBMITTED")
    assert record.state["since"] == 1.0
    record.set(state="PREPARING")
    assert record.state["since"] > 1.0


def test_the_tag_names_run_node_and_attempt() -> None:
    """It is what every process of the attempt carries."""
    assert tag_of(SPEC) == "job-1/gpu01/2"


def test_a_rank_that_a_signal_has_stopped_is_marked() -> None:
    """SIGSTOP marks it, SIGCONT takes the mark away; a rank that has ended is not looked at."""
    with subprocess.Popen(["sleep", "3600"]) as worker:
        entry = {"local_rank": 0, **identify(worker.pid).as_dict(), "exit": None, "signal": None}
        state = {**new_state(SPEC), "ranks": {"0": entry, "1": {**entry, "exit": 0}}}
        worker.send_signal(signal.SIGSTOP)
        wait_until(lambda: look(identify(worker.pid)).state == "T", "the stop")
        marked = mark_stopped(state)["ranks"]
        worker.send_signal(signal.SIGCONT)
        wait_until(lambda: look(identify(worker.pid)).state != "T", "its life")
        after = mark_stopped(state)["ranks"]
        worker.kill()

    assert [rank for rank, told in marked.items() if told.get("stopped")] == ["0"]
    assert [rank for rank, told in after.items() if told.get("stopped")] == []
    assert mark_stopped({**state, "state": "FAILED"})["ranks"]["0"] == entry
