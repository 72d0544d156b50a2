"""Which rank exited first, where all others only report that a peer closed its connection.

A part of `root_cause`, which brings the ranks into this form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

# A process, or the kernel that ended it, closed the connection. "Network error" and the like are no proof of that.
_CLOSED = re.compile(r"(closed|reset) by (remote )?peer", re.IGNORECASE)
_WAITED = re.compile(r"timed? ?out", re.IGNORECASE)
# Gloo: `Read error [10.0.0.2]:4242: ...`; c10d: `addr=[OURS]:4242, remote=[10.0.0.2]:29500`
_ADDRESS = re.compile(r"(\blocal\w*=|\baddr=)?\[([\w.:%]+)\]")


class RankEnd(NamedTuple):
    """How a rank ended.

    `asked`: it had been stopped before, by clusterctl or torchrun. `silent`: it ended for that reason alone, and
    reported nothing. `by_itself`: it ended with a code of its own, so it may have worked until it was asked.
    `complaint`: what it reported of another rank, before the stop.
    """

    node: str
    time: float
    exited_0: bool = False
    asked: bool = False
    silent: bool = False
    by_itself: bool = False
    complaint: str = ""


def find_leavers(ranks: Sequence[RankEnd], addresses: Mapping[str, str]) -> tuple[int, ...]:
    """Give the place of the rank that left first; several where any of one node's may be it, none if unknown.

    `addresses` are the nodes' training addresses. Exit code 0 without being asked is proof, however long the process
    took to end; else a single silent rank is meant by all the others.
    """
    complaints = [rank.complaint for rank in ranks if rank.complaint]
    accused = [_named_nodes(complaint, addresses) for complaint in complaints]
    nodes: frozenset[str] = frozenset().union(*accused)
    left = [place for place, rank in enumerate(ranks) if rank.exited_0 and not rank.asked]
    if left:
        known = all(accused) and len(complaints) == sum(not rank.exited_0 for rank in ranks)
        on_named = [place for place in left if ranks[place].node in nodes]
        others = known and all(ranks[place].node in addresses for place in left)
        left = on_named or ([] if others else left)
        return (min(left, key=lambda place: ranks[place].time),) if left else ()
    if not any(map(_CLOSED.search, complaints)) or any(map(_WAITED.search, complaints)):
        return ()
    silent: list[int] = [place for place, rank in enumerate(ranks) if rank.silent and _may_be(rank, nodes)]
    alone = len(silent) == 1 or (nodes and len({ranks[place].node for place in silent}) == 1)
    return tuple(silent) if alone else ()


def _may_be(rank: RankEnd, nodes: frozenset[str]) -> bool:
    return rank.node in nodes if nodes else not rank.by_itself


def _named_nodes(complaint: str, addresses: Mapping[str, str]) -> frozenset[str]:
    """Name the nodes whose address a complaint holds, but for the complaining rank's own end of the connection."""
    found = {text for own, text in _ADDRESS.findall(complaint) if not own}
    return frozenset(node for node, address in addresses.items() if address and address in found)
