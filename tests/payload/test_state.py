"""The record of a run: complete after trouble with the disk, and readable at any moment."""

from __future__ import annotations

import json
from pathlib import Path

from clusterctl.payload.state import Record, new_state, tag_of

SPEC = {"run": "job-1", "job": "job", "node": "gpu01", "node_rank": 0, "attempt": 2, "nproc": 1, "world_size": 1}


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
