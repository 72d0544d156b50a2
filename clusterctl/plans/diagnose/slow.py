"""Finds the straggler: the rank for which the others wait again and again.

Measured are the times at which ranks entered their last collectives, by one clock.

The loss of a collective is the time between the median arrival and the last one. A rank is slow if it is the last in
most collectives, far more often than chance makes it, and the others lose a part of their time by that. If no rank is,
those of one node together may be. One rank is always last: of two that are alike each is in half of the steps.

A rank may enter several collectives of a step without waiting for any but the last, as DistributedDataParallel does
with its buckets: all of them have the same delay, which costs once. So of each step one collective counts. Steps are
found by what the collectives are, which comes again, and by the pauses between them.

Not seen: what a GPU takes after Python has launched its work, which is where NCCL records an entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import sqrt
from typing import Any

from clusterctl.node_texts import translate_node_text
from clusterctl.plans.diagnose.evidence import Entry, NodeEvidence, RankEvidence
from clusterctl.plans.diagnose.hang import Judgement, name_ranks
from clusterctl.plans.diagnose.waits import reduce_coalesced
from clusterctl.specs.nodeset import fold_names
from clusterctl.translation import tr

MIN_COLLECTIVES = 10  # collectives
MIN_LATE_SHARE = 0.5  # of the collectives
MIN_OVER_CHANCE = 1.5  # times the share that ranks which are alike would have
MIN_DEVIATIONS = 3.0  # standard deviations above it, one try for each step
MIN_LOSS = 0.01  # of the time
MIN_DELAY = 0.002  # seconds; clocks are compared no better
MIN_WAITS, MIN_STEPS = 20, 5  # collectives and steps from which the share of waiting is known
MIN_PERIODIC = 0.9  # of the collectives
STEP_PAUSE = 0.5  # of the longest usual pause between two collectives
GPU_BACKEND = "nccl"


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
    """The answer of `diagnose --slow`, and how each rank arrives, the slowest first.

    `waits` is which share of the time each rank waited for the last one, empty if that is not known; `on_gpu` is
    whether the collectives run on GPUs, where a rank may wait longer than these times show.
    """

    judgement: Judgement
    rows: tuple[Lateness, ...]
    collectives: int
    seconds: float
    waits: Mapping[int, float] = field(default_factory=dict)
    on_gpu: bool = False


@dataclass(frozen=True)
class Collective:
    """A collective: what it was, and when each rank of its group entered it."""

    signature: tuple[str, str, str]
    moments: Mapping[int, float]
    backend: str = ""

    @property
    def last(self) -> float:
        """Return when the last rank entered it."""
        return max(self.moments.values())

    @property
    def last_rank(self) -> int:
        """Return the last rank that entered it."""
        return max(self.moments, key=lambda rank: self.moments[rank])


def judge_slowness(nodes: Iterable[NodeEvidence]) -> Slowness:
    """Judge who is late in the collectives that all ranks of a process group have recorded."""
    nodes = list(nodes)
    offsets = find_offsets(nodes)
    ranks = [rank for node in nodes for rank in node.ranks if node.node in offsets]
    starts = {node.node: node.time - offsets[node.node] for node in nodes if node.node in offsets}
    groups = list_collectives(ranks, starts)
    count = sum(map(len, groups))
    if count < MIN_COLLECTIVES:
        return Slowness(_explain_nothing(nodes, ranks, offsets), (), count, 0.0)
    times = [moment for group in groups for collective in group for moment in collective.moments.values()]
    seconds = max(max(times) - min(times), 1e-3)
    costly = [find_costly(group) for group in groups]
    rows = _rate(groups, costly, {rank.rank: rank.node for rank in ranks}, seconds)
    on_gpu = any(collective.backend == GPU_BACKEND for group in groups for collective in group)
    waits = _merge_waits(measure_waits(*pair) for pair in zip(groups, costly, strict=True))
    of_ranks = len({rank for group in groups for collective in group for rank in collective.moments})
    tries = _Tries(count, sum(costs.steps for costs in costly), of_ranks)
    return Slowness(_judge_rows(rows, tries, len(starts)), rows, count, seconds, waits, on_gpu)


def find_offsets(nodes: Sequence[NodeEvidence]) -> dict[str, float]:
    """Return each node's clock minus the hub's, as far as the hub has compared them; one node needs no comparison."""
    hub = max(nodes, key=lambda node: len(node.clocks), default=None)
    if hub is None:
        return {}
    names = {node.node for node in nodes}
    return {hub.node: 0.0, **{name: offset for name, offset in hub.clocks.items() if name in names}}


def list_collectives(ranks: Sequence[RankEvidence], starts: Mapping[str, float]) -> list[list[Collective]]:
    """Return of each process group the collectives that all of its ranks have recorded, the oldest first."""
    groups: dict[tuple[str, str], dict[int, dict[int, Entry]]] = {}
    nodes = {rank.rank: rank.node for rank in ranks}
    for rank in ranks:
        for group in map(reduce_coalesced, rank.groups):
            entries = {entry.number: entry for entry in group.entries if entry.pair is None}
            groups.setdefault((group.name, group.about), {})[rank.rank] = entries
    found = []
    for by_rank in groups.values():
        if len(by_rank) > 1:
            common = set.intersection(*(set(entries) for entries in by_rank.values()))
            first = next(iter(by_rank.values()))
            found.append(
                [
                    Collective(
                        first[number].signature,
                        {rank: starts[nodes[rank]] - by_rank[rank][number].age for rank in by_rank},
                        first[number].backend,
                    )
                    for number in sorted(common)
                ]
            )
    return found


@dataclass(frozen=True)
class Costs:
    """Which collectives of a group count, by their indices, and in how many steps they are."""

    indices: tuple[int, ...]
    steps: int


def find_costly(group: Sequence[Collective]) -> Costs:
    """Choose of each step the collective whose last rank came latest, unless most ranks went on without it."""
    from statistics import median  # noqa: PLC0415 - 9 ms, which most verbs need not wait for

    starts = find_steps(group)
    chosen = []
    for begin, end in pairwise([*starts, len(group)]):
        lost = {
            index: group[index].last - median(group[index].moments.values())
            for index in range(begin, min(end, len(group) - 1))
            if median(_others(group[index + 1], group[index].last_rank)) >= group[index].last
        }
        if lost and max(lost.values()) >= MIN_DELAY:
            chosen.append(max(lost, key=lambda index: lost[index]))
    return Costs(tuple(chosen), len(starts))


def _others(collective: Collective, rank: int) -> list[float]:
    return [moment for other, moment in collective.moments.items() if other != rank]


def find_steps(group: Sequence[Collective]) -> list[int]:
    """Return the indices at which a step begins: after a long pause, of what comes again after one as it usually is."""
    from statistics import median  # noqa: PLC0415 - see above

    if len(group) < 2:
        return list(range(len(group)))
    period = find_period([collective.signature for collective in group])
    pauses = [
        median(after.moments[rank] - before.moments[rank] for rank in after.moments)
        for before, after in pairwise(group)
    ]
    if period > 1:
        usual = [median(pauses[index::period]) for index in range(min(period, len(pauses)))]
        pauses = [usual[index % period] for index in range(len(pauses))]
    longest = max(pauses) if period > 1 else sorted(pauses)[-min(MIN_STEPS, len(pauses))]
    return [0, *(index + 1 for index, pause in enumerate(pauses) if pause >= STEP_PAUSE * longest)]


def find_period(signatures: Sequence[tuple[str, str, str]]) -> int:
    """Return after how many collectives the same ones come again; all of them if they do not."""
    count = len(signatures)
    for period in range(1, count // 2 + 1):
        same = sum(signatures[index] == signatures[index + period] for index in range(count - period))
        if same >= MIN_PERIODIC * (count - period):
            return period
    return count


def measure_waits(group: Sequence[Collective], costs: Costs) -> dict[int, float]:
    """Return which share of the time each rank of a group waited for the last one; empty if that is not known."""
    if len(group) < MIN_WAITS or costs.steps < MIN_STEPS:
        return {}
    waits = {}
    for rank, begin in group[0].moments.items():
        waited = sum(group[index].last - group[index].moments[rank] for index in costs.indices)
        waits[rank] = min(1.0, waited / max(1e-3, group[-1].moments[rank] - begin))
    return waits


def _merge_waits(groups: Iterable[Mapping[int, float]]) -> dict[int, float]:
    """Take of each rank the process group in which it waited most: the same delay shows in several."""
    found: dict[int, float] = {}
    for waits in groups:
        for rank, share in waits.items():
            found[rank] = max(share, found.get(rank, 0.0))
    return found


def _rate(
    groups: Sequence[Sequence[Collective]], costly: Sequence[Costs], nodes: Mapping[int, str], seconds: float
) -> tuple[Lateness, ...]:
    """Count how often each rank was last, and by how much."""
    from statistics import median  # noqa: PLC0415 - see above

    delays: dict[int, list[float]] = {}
    lost: dict[int, float] = {}
    for group, costs in zip(groups, costly, strict=True):
        for index, collective in enumerate(group):
            last, delay = collective.last_rank, collective.last - median(collective.moments.values())
            delays.setdefault(last, []).append(delay)
            lost[last] = lost.get(last, 0.0) + (delay if index in costs.indices else 0.0)
    count = sum(map(len, groups))
    rows = [
        Lateness(rank, nodes[rank], len(late) / count, median(late), min(1.0, lost[rank] / seconds))
        for rank, late in delays.items()
    ]
    return tuple(sorted(rows, key=lambda row: -row.loss))


@dataclass(frozen=True)
class _Tries:
    """How many collectives there were, in how many steps, of how many ranks."""

    collectives: int
    steps: int
    ranks: int

    def share_of_the_slow(self, ranks: int) -> float:
        """Return in which share of collectives some ranks must be last to be called slow."""
        chance = ranks / self.ranks
        spread = sqrt(chance * (1 - chance) / max(1, self.steps))
        return min(1.0, max(MIN_LATE_SHARE, MIN_OVER_CHANCE * chance, chance + MIN_DEVIATIONS * spread))


def _judge_rows(rows: Sequence[Lateness], tries: _Tries, node_count: int) -> Judgement:
    by_node: dict[str, list[Lateness]] = {}
    for row in rows:
        by_node.setdefault(row.node, []).append(row)
    candidates = [[row] for row in rows] + [alike for alike in by_node.values() if node_count > 1]
    for late in candidates:
        share, loss = sum(row.last for row in late), sum(row.loss for row in late)
        delay = max(row.delay for row in late)
        is_late = share >= tries.share_of_the_slow(len(late)) - 1e-9
        if is_late and loss >= MIN_LOSS and delay >= MIN_DELAY:
            suspects = tuple(sorted(row.rank for row in late))
            facts = _describe(late, share, delay, loss, tries.collectives)
            return Judgement("CC-HANG-011", "", {**facts, "node": late[0].node}, suspects)
    first = rows[0]
    facts = _describe([first], first.last, first.delay, first.loss, tries.collectives)
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
