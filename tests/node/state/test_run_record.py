"""The record of a run: complete after trouble with the disk, and readable at any moment."""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path
from typing import Any

from clusterctl.node.logs.activity import ActivityReader
from clusterctl.node.logs.reader import logs_since
from clusterctl.node.state.run_files import read_spec
from clusterctl.node.state.run_record import (
    STATES,
    Record,
    new_state,
    read_state,
    run_tag,
    with_record,
)
from clusterctl.node.state.workdir import read_json
from clusterctl.node.verbs.ps import list_runs
from clusterctl.node.verbs.stop import find_remaining, list_ended

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
    record.add_event("preparing")
    record.set({"state": "RUNNING"})
    record.add_event("go_received")
    assert not record.flush()
    rundir.mkdir()
    assert record.flush()
    events = [json.loads(line) for line in (rundir / "events.jsonl").read_text().splitlines()]

    assert [event["event"] for event in events] == ["preparing", "go_received"]
    assert json.loads((rundir / "state.json").read_text())["state"] == "RUNNING"


def test_since_follows_the_state(tmp_path: Path) -> None:
    """Other changes leave it alone."""
    record = Record(str(tmp_path), {**new_state(SPEC), "since": 1.0})
    record.set({"reason": "x", "state": "SUBMITTED"})
    assert record.state["since"] == 1.0
    record.set({"state": "PREPARING"})
    assert record.state["since"] > 1.0


def test_the_tag_names_run_node_and_attempt() -> None:
    """It is what every process of the attempt carries."""
    assert run_tag(SPEC) == "job-1/gpu01/2"


SPOILED: list[Any] = [
    None,
    True,
    -1,
    1e300,
    10**18,
    "",
    "x" * 5000,
    "\ud800\x1b[2J",
    [],
    [[]],
    {},
    {"pid": []},
    {"pid": 7},
    [None],
]


def test_what_another_node_wrote_cannot_crash_a_verb(tmp_path: Path) -> None:
    """On a shared home every part may be odd: each verb reads the rest, and never ends with an error of ours."""
    chance = random.Random(7)
    spec: dict[str, Any] = {
        "run": "j-20261120T110000-0123",
        "node": "gpu01",
        "node_rank": 0,
        "nnodes": 1,
        "attempt": 1,
        "grace": 5.0,
    }
    rundir = tmp_path / "runs" / spec["run"] / "0-gpu01"
    rundir.mkdir(parents=True, mode=0o700)
    rank = {
        "pid": 2**22 - 1,
        "starttime": 5,
        "exit": None,
        "signal": None,
        "stdout": "a/b.log",
        "stderr": None,
    }
    whole = {
        **new_state(spec), "state": "RUNNING", "guardian": {"pid": 2**22 - 1, "starttime": 5}, "ranks": {"0": rank},
        "attempts": [{"attempt": 1, "ranks": {"0": rank}}], "slot": 0, "left": [{"pid": 5, "name": "x", "state": "D"}],
    }  # fmt: skip
    for number in range(400):
        for name, value in (("state.json", whole), ("spec.json", spec)):
            odd = json.loads(json.dumps(value))
            for _ in range(chance.randrange(4)):
                odd[chance.choice(list(odd))] = chance.choice(SPOILED)
            if odd.get("ranks") and chance.random() < 0.5:
                odd["ranks"] = {chance.choice(["0", "x", "7" * 30, ""]): chance.choice([*SPOILED, rank])}
            text = json.dumps(odd)
            (rundir / name).write_text(
                text[: chance.randrange(len(text))] if chance.random() < 0.05 else text
            )
        for state in (with_record(str(rundir), one) for one in list_runs(str(tmp_path), None, None, None)):
            assert state["state"] in STATES
            list_ended(state, {5: "x"}, [], state["left"])
            if number % 4 == 0:  # it reads all processes of the machine
                find_remaining(state, "no tag of any process")
            list(logs_since(str(rundir), state, {"ranks": [0], "since": 1}))
            ActivityReader(str(rundir), 0.0).add_to(state)
        read_spec(str(rundir))
    for text in ("[" * 100_000, "1" * 5000, '{"since": 1e999}', "\xff", ""):
        (rundir / "state.json").write_bytes(text.encode("latin-1"))
        assert read_json(str(rundir / "state.json")) is None
        list_runs(str(tmp_path), None, None, None)


def test_a_state_of_before_is_read_whole() -> None:
    """What this version and the one before it write comes back as it is."""
    spec = {
        "run": "j-20261120T110000-0123",
        "node": "gpu01",
        "node_rank": 0,
        "nnodes": 1,
        "attempt": 1,
        "grace": 5.0,
    }
    for changes in ({}, {"restart": {"max": 1}, "slot": 0, "slots": 1, "spare": False, "roster": []}):
        state = {**new_state({**spec, **changes}), "agent": {"pid": 7, "starttime": 8}}
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "state.json").write_text(json.dumps(state))
            assert read_state(folder) == state
