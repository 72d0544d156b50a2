"""Ranks that share one log, which is then of no rank: what each wrote is found by torch's marks."""

from __future__ import annotations

from clusterctl.client.watch.follower import LogLines
from clusterctl.client.watch.node_report import NodeReport
from clusterctl.plans.runs.state import parse_state
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.inventory.parse import parse_inventory

NODE = parse_inventory("cluster: c\nnodes: [{host: gpu02}]", "-").nodes[0]
LOG = "attempt-1/0/stderr.log"
MARKED = ("[rank3]: Traceback (most recent call last):", "[rank3]: ValueError: bad batch")
PLAIN = ("Traceback (most recent call last):", "ImportError: no module", "[rank77]: x")


def end_of(rank: int, exit_code: int | None, signal: int | None) -> Untrusted:
    """Make the event of a rank's end."""
    return Untrusted({"event": "rank_exited", "rank": rank, "exit": exit_code, "signal": signal, "time": 5.0})


def test_an_exception_is_of_the_rank_that_raised_it() -> None:
    """What has no mark is of a rank that exited by itself; a mark of another node's rank is only text."""
    ranks = {
        str(rank): {
            "local_rank": rank - 2,
            "pid": 7,
            "exit": None,
            "signal": None,
            "stdout": "",
            "stderr": LOG,
        }
        for rank in (2, 3, 4)
    }
    report = NodeReport(NODE, 0.0)
    report.state = parse_state(Untrusted({"run": "r-1", "state": "RUNNING", "attempt": 1, "ranks": ranks}))
    for line in (*MARKED, *PLAIN):
        report.on_lines(LogLines("gpu02", None, "stderr", LOG, 0, None, (line,), (len(line) + 1,)), 4.0)
    for end in (end_of(3, 1, None), end_of(2, None, 15), end_of(4, 1, None)):
        report.on_event(end)

    assert [(failure.rank, failure.exception) for failure in report.failures(6.0)] == [
        (2, ""),
        (3, MARKED[1]),
        (4, PLAIN[1]),
    ]
    assert set(report.parsers) == {None, 3}
