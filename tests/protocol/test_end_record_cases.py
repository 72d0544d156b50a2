"""Recorded ends of runs: what the nodes decide about a restart and what the client shows name the same failure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ends import read_record, recorded_cause

from clusterctl.node.gang.attempts import judge_record
from clusterctl.protocol.messages.gang import BLOCK_LINES, TAIL_LINES, TRACEBACKS, Bounds, read_part
from clusterctl.protocol.root_cause import Cause, restart_reason
from clusterctl.protocol.tracebacks import find_tracebacks, shorten_traceback
from clusterctl.protocol.untrusted import Untrusted

CASES = sorted((Path(__file__).parent / "cases" / "ends").glob("*.json"))
NODES = ("gpu01", "gpu02", "gpu03")
BOUNDS = Bounds("r", NODES, 3, 3, 8, 1, 60.0, 30.0)


def failure_of(rank: Any, stderr: list[Any]) -> dict[str, Any]:
    """Write what the agent has to say of a rank, by its own code for reading the end of stderr."""
    end = {"rank": rank["rank"], "exit": rank["exit"], "signal": rank["signal"], "time": rank["time"]}
    if rank["exit"] == 0:
        return end
    heard = [(time, line) for time, number, line in stderr if number == rank["rank"]]
    lines = [line for _, line in heard]
    said = [
        {
            "at": heard[block.start][0],
            "lines": shorten_traceback(lines[block.begin : block.end], BLOCK_LINES),
        }
        for block in find_tracebacks(lines, TRACEBACKS)
    ]
    last = rank.get("last_at", max([time for time, _ in heard], default=rank["time"]))
    flags = {
        "suspended": rank.get("suspended", False),
        **({"oom_killed": True} if rank.get("oom_killed") else {}),
    }
    return {**end, "last_at": last, **flags, "tracebacks": said, "tail": lines[-TAIL_LINES:]}


def record_of(case: Any) -> dict[str, Any]:
    """Write the nodes' record of a run: every part has come to the hub as a message."""
    parts = []
    for number, name in enumerate(NODES):
        ranks = [rank for rank in case["ranks"] if rank["node"] == name]
        about = [node for node in case["nodes"] if node["node"] == name]
        where = {"node": name, "node_rank": number}
        if about and "lost" in about[0]:
            times = {"time": about[0]["time"], "last_seen": about[0]["last_seen"], "stopped_at": None}
            parts.append(
                {**where, **times, "address": "", "state": "LOST", "reason": about[0]["lost"], "failures": []}
            )
        elif ranks or about:
            failures = [failure_of(rank, case["stderr"]) for rank in ranks]
            failures += [{"rank": None, "reason": one["reason"], "time": one["time"]} for one in about]
            end = {"state": "FAILED", "reason": "why", "time": 640.0, "address": f"10.0.0.{number + 1}"}
            reported = {**end, "stopped_at": case["stops"].get(name), "failures": failures}
            parts.append({**read_part(Untrusted(json.loads(json.dumps(reported))), BOUNDS), **where})
    return {"run": "r", "hub": "gpu01", "whole": True, "stop": None, "parts": parts}


def name_of(cause: Cause) -> tuple[str, int | None, str]:
    """Give the node, the rank and the code that are shown."""
    return (
        cause.failure.node,
        cause.failure.rank,
        cause.symptom_match.symptom.code if cause.symptom_match else "",
    )


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_nodes_and_client_judge_alike(path: Path) -> None:
    """Node, rank, code and reason are what the case expects, for the restart and on the screen."""
    case = json.loads(path.read_text(encoding="utf-8"))
    expected, record = case["expected"], record_of(case)
    named = (expected["node"], expected["rank"], expected["code"])
    decided = judge_record(record)

    assert (decided.reason, decided.node) == (expected["restart"], expected["node"]), decided
    assert name_of(recorded_cause(read_record(record))) == named
    assert restart_reason(recorded_cause(read_record(record))) == expected["restart"]
