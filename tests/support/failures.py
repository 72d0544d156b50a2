"""Failures of ranks, as they are built from what a rank wrote."""

from __future__ import annotations

from clusterctl.protocol.ranks import Rank
from clusterctl.protocol.root_cause import Failure
from clusterctl.protocol.tracebacks import StderrParser


def fail(
    rank: int, lines: tuple[str, ...], time: float, *, by: int | None = None, per_node: int = 8
) -> Failure:
    """Build the failure of a rank from what it wrote."""
    words = StderrParser()
    for line in lines:
        words.feed(line, time)
    node, code = f"gpu{rank // per_node + 1:02d}", None if by else 1
    said = (tuple(words.tail), words.exception, words.message, words.raised_at)
    return Failure(node, Rank(rank), code, by, time + 0.1, *said, own_frame=words.own_frame)
