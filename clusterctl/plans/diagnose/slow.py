"""Finds the straggler: the rank for which the others wait again and again.

Measured are the times at which ranks entered their last collectives, by one clock.

The loss of a collective is the time between the median arrival and the last one. A rank is slow if it is the last in
most collectives, and the others lose a part of their time by that. If no rank is, those of one node together may be.

Not seen: what a GPU takes after Python has launched its work, which is where NCCL records an entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clusterctl.node_texts import translate_node_text
from clusterctl.plans.diagnose.evidence import NodeEvidence, RankEvidence
from clusterctl.plans.diagnose.hang import Judgement, name_ranks, reduce_coalesced
from clusterctl.specs.nodeset import fold_names
from clusterctl.translation import tr

MIN_COLLECTIVES = 10  # collectives
MIN_LATE_SHARE = 0.5  # of the collectives
MIN_LOSS = 0.01  # of the time
MIN_DELAY = 0.002  # seconds; clocks are compared no better


@dataclass(frozen=True)
class Lateness:
    """How one rank arrives: in which share of collectives last, how much later then, and the share of the time lost."""

    rank: int
    node: str
    last: float
    delay: float
    loss: float


@dataclass(frozen=True)
class Slowness:
    """The answer of `diagnose --slow`, and how each rank arrives, the slowest first."""

    judgement: Judgement
    rows: tuple[Lateness, ...]
    collectives: int
    seconds: float


def judge_slowness(nodes: Iterable[NodeEvidence]) -> Slowness:
    """Judge who is late in the collectives that all ranks of a process group have recorded."""
    nodes = list(nodes)
    offsets = find_offsets(nodes)
    ranks = [rank for node in nodes for rank in node.ranks if node.node in offsets]
    starts = {node.node: node.time - offsets[node.node] for node in nodes if node.node in offsets}
    entered = collect_entry_times(ranks, starts)
    if len(entered) < MIN_COLLECTIVES:
        return Slowness(_explain_nothing(nodes, ranks, offsets), (), len(entered), 0.0)
    times = [moment for moments in entered for moment in moments.values()]
    seconds = max(max(times) - min(times), 1e-3)
    rows = _rate(entered, {rank.rank: rank.node for rank in ranks}, seconds)
    return Slowness(_judge_rows(rows, len(entered), len(starts)), rows, len(entered), seconds)


def find_offsets(nodes: Sequence[NodeEvidence]) -> dict[str, float]:
    """Return each node's clock minus the hub's, as far as the hub has compared them; one node needs no comparison."""
    hub = max(nodes, key=lambda node: len(node.clocks), default=None)
    if hub is None:
        return {}
    names = {node.node for node in nodes}
    return {hub.node: 0.0, **{name: offset for name, offset in hub.clocks.items() if name in names}}


def collect_entry_times(ranks: Sequence[RankEvidence], starts: Mapping[str, float]) -> list[dict[int, float]]:
    """Return for each collective that all ranks of its group have recorded when each of them entered it."""
    groups: dict[tuple[str, str], dict[int, dict[int, float]]] = {}
    for rank in ranks:
        for group in map(reduce_coalesced, rank.groups):
            moments = {
                entry.number: starts[rank.node] - entry.age for entry in group.entries if entry.pair is None
            }
            groups.setdefault((group.name, group.about), {})[rank.rank] = moments
    found = []
    for by_rank in groups.values():
        if len(by_rank) > 1:
            common = set.intersection(*(set(moments) for moments in by_rank.values()))
            found += [{rank: by_rank[rank][number] for rank in by_rank} for number in sorted(common)]
    return found


def _rate(
    entered: Sequence[Mapping[int, float]], nodes: Mapping[int, str], seconds: float
) -> tuple[Lateness, ...]:
    """Count how often each rank was last, and by how much."""
    from statistics import median  # noqa: PLC0415 - 9 ms, which most verbs need not wait for

    delays: dict[int, list[float]] = {}
    for moments in entered:
        last = max(moments, key=lambda rank: moments[rank])
        delays.setdefault(last, []).append(moments[last] - median(moments.values()))
    rows = [
        Lateness(rank, nodes[rank], len(late) / len(entered), median(late), min(1.0, sum(late) / seconds))
        for rank, late in delays.items()
    ]
    return tuple(sorted(rows, key=lambda row: -row.loss))


def _judge_rows(rows: Sequence[Lateness], count: int, node_count: int) -> Judgement:
    by_node: dict[str, list[Lateness]] = {}
    for row in rows:
        by_node.setdefault(row.node, []).append(row)
    candidates = [[row] for row in rows] + [alike for alike in by_node.values() if node_count > 1]
    for late in candidates:
        share, loss = sum(row.last for row in late), sum(row.loss for row in late)
        delay = max(row.delay for row in late)
        if share >= MIN_LATE_SHARE and loss >= MIN_LOSS and delay >= MIN_DELAY:
            suspects = tuple(sorted(row.rank for row in late))
            facts = _describe(late, share, delay, loss, count)
            return Judgement("CC-HANG-011", "", {**facts, "node": late[0].node}, suspects)
    first = rows[0]
    facts = _describe([first], first.last, first.delay, first.loss, count)
    return Judgement("CC-HANG-012", "", facts)


def _describe(
    late: Sequence[Lateness], share: float, delay: float, loss: float, count: int
) -> dict[str, Any]:
    names, ranks = fold_names(dict.fromkeys(row.node for row in late)), sorted(row.rank for row in late)
    facts = {"ranks": f"{name_ranks(ranks)} ({names})", "share": f"{share:.0%}".replace("%", " %")}
    return {
        **facts,
        "count": count,
        "delay": f"{delay * 1000:.1f}" if delay < 0.01 else f"{delay * 1000:.0f}",
        "loss": f"{loss * 100:.0f} %" if loss >= 0.01 else "< 1 %",
    }


def _explain_nothing(
    nodes: Sequence[NodeEvidence], ranks: Sequence[RankEvidence], offsets: Mapping[str, float]
) -> Judgement:
    if len(offsets) < len(nodes):
        return Judgement("CC-HANG-012", "clocks")
    if sum(1 for node in nodes for _ in node.ranks) == 1:
        return Judgement("CC-HANG-012", "nothing", {"reason": tr("the run has one rank only")})
    reasons = [rank.records_problem or rank.problem for rank in ranks if rank.records_problem or rank.problem]
    reason = translate_node_text(reasons[0]) if reasons else tr("too few collectives so far")
    return Judgement("CC-HANG-012", "nothing", {"reason": reason})
