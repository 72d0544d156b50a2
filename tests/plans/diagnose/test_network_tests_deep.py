"""The pairs of a deep check: one that was tried twice is one pair."""

from __future__ import annotations

import io

from rich.console import Console

from clusterctl.console.run.hang import render_deep
from clusterctl.plans.diagnose.network_tests import DeepCheckResult
from clusterctl.protocol.messages.checks import GroupResult, RoundEntry

SIZE = 1 << 20


def group(*nodes: int, seconds: float = 0.0) -> GroupResult:
    """Build how a group fared; without seconds it failed."""
    rows = ((8.0, 0.0002), (float(SIZE), seconds)) if seconds else ()
    return GroupResult(nodes=nodes, ranks=len(nodes), ok=bool(seconds), rows=rows)


def deep(*rounds: RoundEntry) -> DeepCheckResult:
    """Build what a deep check of three nodes has shown."""
    whole = RoundEntry(round="all", groups=(group(0, 1, 2, seconds=0.001),))
    return DeepCheckResult("gloo", ("gpu01", "gpu02", "gpu03"), 3, (whole, *rounds))


def test_a_pair_that_was_tried_twice_counts_once() -> None:
    """Of three nodes there are three pairs, and the better of two tries is what a pair can do."""
    told = deep(
        RoundEntry(round="pairs", groups=(group(1, 2, seconds=0.5),)),
        RoundEntry(round="pairs", groups=(group(0, 2, seconds=0.25),)),
        RoundEntry(round="pairs", groups=(group(0, 1, seconds=0.001),)),
        RoundEntry(round="again", groups=(group(2, 1, seconds=0.125),)),
        RoundEntry(round="again", groups=(group(0, 2, seconds=0.5),)),
    )
    assert sorted((sorted(one.nodes), one.bandwidth) for one in told.pairs) == [
        ([0, 1], SIZE / 0.001),
        ([0, 2], SIZE / 0.25),
        ([1, 2], SIZE / 0.125),
    ]

    shown = io.StringIO()
    render_deep(Console(file=shown, width=120), told)
    assert "3 pairs: 4.19 MB/s (gpu01 - gpu03) to 1.05 GB/s (gpu01 - gpu02)" in shown.getvalue()


def test_a_pair_that_failed_once_of_two_times_is_as_it_was_last() -> None:
    """As the nodes themselves judge it."""
    failed, works = group(0, 1), group(0, 1, seconds=0.001)
    for first, second in ((failed, works), (works, failed)):
        rounds = (RoundEntry(round="pairs", groups=(first,)), RoundEntry(round="again", groups=(second,)))
        assert deep(*rounds).pairs == [second]
