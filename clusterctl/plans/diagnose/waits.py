"""What the ranks of a run wait for, by torch's flight recorders and by their stacks, and which ranks must still come.

Not here: what that means (`hang`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from clusterctl.plans.diagnose.evidence import Entry, GroupRecord, RankEvidence

PATIENCE = 5.0  # seconds
USUAL_GAPS = 1.5  # times the longest time between two collectives
WORLD = "default_pg"
# Calls in the job's code that wait for something else, although an operation of the rank may be pending.
_ELSEWHERE = re.compile(
    r"\b(?:sleep|pause|acquire|flock|lockf|input|read|readline|readinto|select|poll|accept|connect|system|waitpid)\("
)


@dataclass(frozen=True)
class Wait:
    """An operation that does not end: which ranks wait in it, and which must still enter it.

    Of a process group it is the oldest collective, and what each rank has entered in its place; `missing` is as far as
    its ranks are known: `is_certain`. `is_long` once it takes longer than usual in this group. Of a `call`, which torch
    does not record, it is not known for how long the ranks wait: they are in it by their stacks. `peer` is the other
    rank of a send or a receive.
    """

    waiting: tuple[int, ...]
    missing: tuple[int, ...]
    group: GroupRecord | None = None
    number: int = 0
    entered: Mapping[int, Entry] = field(default_factory=dict)
    is_certain: bool = True
    is_long: bool = False
    call: str = ""
    peer: int | None = None

    @property
    def age(self) -> float:
        """Return the seconds since the first rank entered it; 0 if it is not recorded."""
        return max((self.entered[rank].age for rank in self.waiting if rank in self.entered), default=0.0)

    @property
    def is_pair(self) -> bool:
        """Return whether it is a send or a receive."""
        return self.peer is not None or any(entry.pair is not None for entry in self.entered.values())

    @property
    def operation(self) -> str:
        """Return what most ranks have entered."""
        return self.call or majority(self.entered)[0].operation


def find_waits(
    by_rank: Mapping[int, RankEvidence], world: int | None, least_wait: float = PATIENCE
) -> list[Wait]:
    """Find the oldest operation without end of each process group, the longest wait first, and calls that wait."""
    groups: dict[tuple[object, ...], dict[int, GroupRecord]] = {}
    for rank, evidence in by_rank.items():
        for group in evidence.groups:
            key = (group.name, group.about, tuple(sorted(group.members)))
            groups.setdefault(key, {})[rank] = reduce_coalesced(group)
    everyone = {*by_rank, *range(world or 0)}
    waits = [
        wait for records in groups.values() for wait in _find_in_group(records, by_rank, everyone, least_wait)
    ]
    waits += [
        wait for records in groups.values() for wait in _find_pairs(records, by_rank, everyone, least_wait)
    ]
    return [*sorted(waits, key=lambda wait: -wait.age), *_find_calls(by_rank)]


def _find_in_group(
    records: Mapping[int, GroupRecord],
    by_rank: Mapping[int, RankEvidence],
    everyone: Collection[int],
    least_wait: float,
) -> Iterator[Wait]:
    """Yield the oldest collective of a process group that does not end."""
    min_age = _min_age(records, least_wait)
    pending = [
        entry for group in records.values() for entry in group.entries if not (entry.done or entry.is_pair)
    ]
    # one of many at once may be in flight for a moment only
    pending = [entry for entry in pending if entry.age >= min_age] or pending
    if not pending:
        return
    number = min(entry.number for entry in pending)
    entered = {
        rank: entry
        for rank, group in records.items()
        for entry in group.entries
        if entry.number == number and not entry.is_pair
    }
    waiting = tuple(sorted(rank for rank, entry in entered.items() if not entry.done))
    group = records[waiting[0]]
    members = _members(group, everyone)
    behind = sorted(
        rank
        for rank in members or records
        if rank not in entered and _last_number(records.get(rank)) < number
    )
    is_long = any(entered[rank].age >= min_age for rank in waiting)
    is_certain = bool(members) and not any(_has_no_records(by_rank.get(rank), records) for rank in behind)
    yield Wait(waiting, tuple(behind), group, number, entered, is_certain=is_certain, is_long=is_long)


def _has_no_records(rank: RankEvidence | None, records: Mapping[int, GroupRecord]) -> bool:
    """Return whether it is not known what a rank has entered: it answers, but not with what torch has recorded."""
    return (
        rank is not None
        and rank.rank not in records
        and rank.records_problem not in ("", "no answer")
        and not rank.has_ended
    )


def _find_pairs(
    records: Mapping[int, GroupRecord],
    by_rank: Mapping[int, RankEvidence],
    everyone: Collection[int],
    least_wait: float,
) -> Iterator[Wait]:
    """Yield of each rank its oldest send or receive that does not end; the peer is known while the rank is in it."""
    min_age = _min_age(records, least_wait)
    for rank, group in records.items():
        entries = [entry for entry in group.entries if entry.is_pair and not entry.done]
        if not entries:
            continue
        entry = max(entries, key=lambda entry: entry.age)
        peer = _peer_of(by_rank[rank], entry.operation)
        others = sorted(one for one in (_members(group, everyone) or records) if one != rank)
        yield Wait(
            (rank,),
            tuple(others) if peer is None else (peer,),
            group,
            entry.pair or 0,
            {rank: entry},
            is_certain=peer is not None or len(others) == 1,
            is_long=entry.age >= min_age,
            peer=peer,
        )


def _find_calls(by_rank: Mapping[int, RankEvidence]) -> Iterator[Wait]:
    """Yield the calls that torch does not record: init_process_group, new_group, with Gloo also send and recv."""
    inside: dict[tuple[str, tuple[int, ...]], list[int]] = {}
    for number, rank in by_rank.items():
        call = rank.waits_for_ranks
        if not call or any(not entry.done for group in rank.groups for entry in group.entries):
            continue
        peer = _peer_of(rank, call)
        if peer is not None:
            yield Wait((number,), (peer,), call=call, peer=peer)
        else:
            members = tuple(by_rank) if rank.call_of_all else rank.call_ranks
            inside.setdefault((call, members), []).append(number)
    for (call, members), ranks in inside.items():
        elsewhere = set(members or by_rank).difference(ranks)
        yield Wait(tuple(ranks), tuple(sorted(elsewhere)), call=call, is_certain=bool(members))


def _peer_of(rank: RankEvidence, operation: str) -> int | None:
    """Return the other rank of a send or a receive, while the rank is in a call of that kind."""
    for kind in ("send", "recv"):
        if kind in operation.lower():
            return rank.peer if kind in rank.waits_for_ranks else None
    return None


def _min_age(records: Mapping[int, GroupRecord], least_wait: float) -> float:
    return max([least_wait, *(USUAL_GAPS * gap for group in records.values() for gap in gaps(group))])


def _members(group: GroupRecord, everyone: Collection[int]) -> Collection[int]:
    """Return the ranks of a group; none if they are not known."""
    return group.members or (everyone if group.about == WORLD else ())


def reduce_coalesced(group: GroupRecord) -> GroupRecord:
    """Keep the last entry of each number: of coalesced operations only that one is ever over."""
    last = {(entry.number, entry.pair): entry for entry in group.entries}
    return replace(
        group, entries=tuple(entry for entry in group.entries if last[entry.number, entry.pair] is entry)
    )


def _last_number(group: GroupRecord | None) -> int:
    numbers = [entry.number for entry in group.entries if not entry.is_pair] if group else []
    return max(numbers, default=-1)


def gaps(group: GroupRecord) -> Iterator[float]:
    """Yield the seconds between collectives of which the first is over."""
    entries = reduce_coalesced(group).entries
    for before, after in pairwise(entries):
        if before.done:
            yield before.age - after.age


def majority(entered: Mapping[int, Entry]) -> tuple[Entry, tuple[int, ...]]:
    """Return what most ranks have entered, of equally many what the lowest rank has; and those ranks."""
    counts = Counter(entered[rank].signature for rank in sorted(entered))
    usual = counts.most_common(1)[0][0]
    ranks = tuple(rank for rank in sorted(entered) if entered[rank].signature == usual)
    return entered[ranks[0]], ranks


def find_blocked(waits: Iterable[Wait], by_rank: Mapping[int, RankEvidence]) -> set[int]:
    """Find the ranks that wait for others: by their records, unless they wait elsewhere, or only by their stacks."""
    waiting = {rank for wait in waits for rank in wait.waiting}
    unrecorded = {number for number, rank in by_rank.items() if rank.waits_for_ranks and rank.records_problem}
    return {rank for rank in waiting if not _is_elsewhere(by_rank[rank])} | unrecorded


def _is_elsewhere(rank: RankEvidence) -> bool:
    if rank.waits_for_ranks or not rank.active:
        return False
    return rank.active[0].standard or (rank.active[0].own and _ELSEWHERE.search(rank.call) is not None)


def find_cycle(waits: Sequence[Wait]) -> list[Wait]:
    """Find the shortest circle of waits, each of which has a missing rank that waits in the next one."""
    waits_of: dict[int, list[int]] = {}
    for index, wait in enumerate(waits):
        for rank in wait.waiting:
            waits_of.setdefault(rank, []).append(index)
    following = [
        list(dict.fromkeys(index for rank in wait.missing for index in waits_of.get(rank, ())))
        for wait in waits
    ]
    shortest: list[int] = []
    for start in range(len(waits)):
        if start in shortest:
            continue
        circle = _find_way_back(start, following)
        if circle and (not shortest or len(circle) < len(shortest)):
            shortest = circle
        if len(shortest) == 2:  # none is shorter
            break
    return [waits[index] for index in shortest]


def _find_way_back(start: int, following: Sequence[Sequence[int]]) -> list[int]:
    """Find the shortest way from a wait back to itself."""
    before: dict[int, int] = {}
    reached = [start]
    for last in reached:
        for index in following[last]:
            if index == start and last != start:
                way = [last]
                while way[-1] != start:
                    way.append(before[way[-1]])
                return way[::-1]
            if index != start and index not in before:
                before[index] = last
                reached.append(index)
    return []
