"""Runs that start again, on the screen: spares, lost nodes, attempts, and silent nodes' ranks."""

from __future__ import annotations

import time
from io import StringIO
from typing import Any

import pytest
from ends import judge
from rich.console import Console

from clusterctl.console import terminal
from clusterctl.console.run.listing import runs_to_json, show_runs
from clusterctl.console.run.status import render_status, status_to_json
from clusterctl.console.run.verdict import show_verdict
from clusterctl.plans.runs.selection import Owner
from clusterctl.plans.runs.state import NodeState, parse_state
from clusterctl.protocol.untrusted import Untrusted

ME = Owner("ann@laptop")
FIRST = {"attempt": 1, "reason": "node_lost", "text": "gpu02 is lost", "node": "gpu02"}
REPLACED = [
    {"slot": 0, "node": "gpu01", "node_rank": 0},
    {"slot": 1, "node": "gpu02", "node_rank": None, "lost": True, "reason": "it was silent for 20 s"},
    {"slot": 2, "node": "gpu03", "node_rank": 1},
    {"slot": 3, "node": "gpu04", "node_rank": None},
]


def part(node: str, rank: int, state: str, **more: Any) -> NodeState:
    """Build a node's part of a run in its second attempt, on two nodes, with two spares."""
    known = {"run": "r-1", "job": "digits", "nnodes": 2, "slots": 4, "submitted": time.time(), "attempt": 2}
    about = {
        "node": node,
        "node_rank": rank,
        "state": state,
        "since": time.time(),
        "launched_by": "ann@laptop",
    }
    return parse_state(Untrusted({**known, **about, "roster": REPLACED, "attempts": [FIRST], **more}))


def parts(state: str, **more: Any) -> dict[str, NodeState | None]:
    """Build the whole run; the lost node is silent."""
    shown = {name: part(name, rank, state, **more) for name, rank in (("gpu01", 0), ("gpu03", 1))}
    spare = part("gpu04", 3, "WAITING" if state == "RUNNING" else "SUCCEEDED", reason="spare")
    return {"gpu01": shown["gpu01"], "gpu02": None, "gpu03": shown["gpu03"], "gpu04": spare}


def drawn(run: dict[str, NodeState | None]) -> list[str]:
    """Draw `status`, as words line by line."""
    console = Console(width=160, record=True, file=StringIO())
    console.print(render_status("r-1", run))
    return [" ".join(line.split()) for line in console.export_text().splitlines()]


def test_status_shows_who_takes_part_now() -> None:
    """Ranks are those of this attempt; the spare and the lost node have none, and the run is not unknown for it."""
    lines = drawn(parts("RUNNING"))

    assert lines[0] == "r-1 ● RUNNING"
    assert "attempt 2" in lines[2]
    assert lines[3] == "attempt 1: gpu02 is lost (node_lost)"
    assert lines[5:] == [
        "0 gpu01 RUNNING 0 s",
        "1 gpu03 RUNNING 0 s",
        "- gpu02 LOST it was silent for 20 s",
        "spare gpu04 WAITING 0 s spare",
    ]
    shown = status_to_json("r-1", parts("RUNNING"))
    assert [(node["node"], node["node_rank"]) for node in shown["nodes"]] == [
        ("gpu01", 0),
        ("gpu02", None),
        ("gpu03", 1),
        ("gpu04", None),
    ]
    assert (shown["run"]["attempt"], shown["run"]["spares"]) == (2, ["gpu04"])
    assert shown["run"]["attempts"][0]["text"] == "gpu02 is lost"


def test_ps_names_spares_apart(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts them, reports which attempt it is, and names all nodes with -v."""
    show_runs({"r-1": parts("RUNNING")}, ME)
    assert "RUNNING, attempt 2  2/2 +1 spare" in capsys.readouterr().out

    monkeypatch.setitem(terminal._OPTIONS, "chatter", "verbose")
    show_runs({"r-1": parts("RUNNING")}, ME)
    assert "RUNNING, attempt 2  gpu[01,03]; spare: gpu04; lost: gpu02" in capsys.readouterr().out
    assert runs_to_json({"r-1": parts("RUNNING")}, ME)["runs"][0]["attempt"] == 2


def test_the_verdict_counts_the_attempts(capsys: pytest.CaptureFixture[str]) -> None:
    """Success after a loss; and where it was given up, the reason."""
    show_verdict(judge("r-1", parts("SUCCEEDED"), []), 61.2)
    show_verdict(judge("r-1", parts("FAILED", gave_up="no_progress"), []), 61.2)

    _, good, bad = capsys.readouterr().err.split(" after 1m01s, 2 attempts   r-1\n")
    assert good.splitlines()[-2:] == ["attempt 1: gpu02 is lost (node_lost)", "✗ FAILED"]
    assert "given up: three attempts in a row made no progress" in bad


def test_a_silent_node_has_the_rank_that_is_missing() -> None:
    """Two of them too: ranks follow the inventory. Where more are silent than are missing, no one knows."""
    three = {"nnodes": 3, "slots": 0, "roster": [], "attempts": [], "attempt": 1}
    one = part("b", 1, "RUNNING", **three)

    assert drawn({"a": None, "b": one, "c": None})[3:] == [
        "0 a UNKNOWN no answer",
        "1 b RUNNING 0 s",
        "2 c UNKNOWN no answer",
    ]
    assert drawn({"a": None, "b": one, "c": None, "d": None})[4].startswith("? a")
