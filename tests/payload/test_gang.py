"""The gang: what fails on one node ends all, without anybody watching, and every node can tell the story."""

from __future__ import annotations

import time
from collections.abc import Callable

from gangs import GangRun
from noderun import NodeRun, wait_until

Make = Callable[..., NodeRun]


def test_a_failure_on_one_node_ends_all(node: Make) -> None:
    """Nobody watches: the others are stopped within two seconds, and all write the same record of the cause."""
    gang = GangRun(node).prepare().join().go()
    gang.tell(1, "raise ValueError('bad loss')")
    wait_until(lambda: gang.nodes[1].state()["ranks"]["1"]["exit"] == 1, 5, "the failure")
    began = time.monotonic()
    wait_until(lambda: not gang.nodes[2].left() and not gang.nodes[0].left(), 2.0, "the others stopped")
    took = time.monotonic() - began
    states = gang.ended()

    assert [state["state"] for state in states] == ["CANCELLED", "FAILED", "CANCELLED"]
    assert states[0]["reason"] == states[2]["reason"] == "gpu02: rank 1 exited with 1"
    assert took < 2.0
    records = [gang.record(rank) for rank in range(3)]
    assert records[0] == records[1] == records[2]
    assert (records[0]["whole"], records[0]["stop"]["node"]) == (True, "gpu02")
    parts = {part["node"]: part for part in records[0]["parts"]}
    assert [part["state"] for part in parts.values()] == ["CANCELLED", "FAILED", "CANCELLED"]
    (failure,) = parts["gpu02"]["failures"]
    assert (failure["rank"], failure["exit"], failure["signal"]) == (1, 1, None)
    assert failure["head"][0] == "Traceback (most recent call last):"
    assert failure["tail"][-1] == failure["head"][-1] == "ValueError: bad loss"
    assert abs(failure["raised_at"] - failure["time"]) < 2
    assert all((node.rundir / "gang.json").stat().st_mode & 0o777 == 0o600 for node in gang.nodes)
