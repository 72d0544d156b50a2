"""Three numbers that are easily mixed up."""

from __future__ import annotations

from clusterctl.protocol.ranks import NodeRank, Rank, Slot


def test_the_types_cost_a_node_nothing() -> None:
    """At run time all are `int`."""
    assert NodeRank is Slot is Rank is int
