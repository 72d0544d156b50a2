"""What bad ways between nodes have in common: one node, one side of a node, two groups, one pair."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

Ends = tuple[str, str]  # from, to
Kind = Literal["all", "groups", "node", "into", "out of", "pair", "way"]


@dataclass(frozen=True)
class Pattern:
    """Bad ways with one likely cause; `nodes` are where to look, `groups` who still reaches whom."""

    kind: Kind
    nodes: tuple[str, ...]
    ways: tuple[Ends, ...]
    groups: tuple[tuple[str, ...], ...] = ()


def find_patterns(names: Sequence[str], tried: Collection[Ends], bad: Collection[Ends]) -> list[Pattern]:
    """Explain bad ways by as few causes as possible; each way is in one pattern."""
    wrong = [ends for ends in tried if ends in set(bad)]
    if not wrong:
        return []
    if len(names) > 2 and len(wrong) == len(set(tried)):
        return [Pattern("all", tuple(names), tuple(wrong))]
    found: list[Pattern] = []
    for look in (_apart, _one_sided, _pairs):
        told = {ends for pattern in found for ends in pattern.ways}
        left = [ends for ends in tried if ends not in told]
        found += look(names, left, [ends for ends in wrong if ends not in told])
    return found


def _apart(names: Sequence[str], tried: Collection[Ends], bad: Sequence[Ends]) -> Iterator[Pattern]:
    """Find nodes without any open way to the rest, and groups of such."""
    if len(names) < 3:
        return
    groups = sorted(_reached(names, set(tried) - set(bad)), key=len, reverse=True)
    main, *others = groups
    several = [group for group in others if len(group) > 1]
    for group in others:
        inside = set(group)
        ways = tuple(ends for ends in bad if len(inside & set(ends)) == 1)
        if ways and len(group) == 1 and len(main) > 1:
            yield Pattern("node", group, ways)
    if several:
        across = tuple(ends for ends in bad if _group_of(groups, ends[0]) != _group_of(groups, ends[1]))
        many = [group for group in groups if len(group) > 1]
        known = {name for group in many for name in group}
        ways = tuple(ends for ends in across if set(ends) <= known)
        if ways:
            yield Pattern("groups", tuple(name for group in several for name in group), ways, tuple(many))


def _reached(names: Sequence[str], ways: Collection[Ends]) -> list[tuple[str, ...]]:
    """Group nodes between which some way is open, in whichever direction."""
    left, groups = list(names), []
    near: dict[str, set[str]] = {name: set() for name in names}
    for one, other in ways:
        near[one].add(other)
        near[other].add(one)
    while left:
        group, edge = {left[0]}, [left[0]]
        while edge:
            new = near[edge.pop()] - group
            group |= new
            edge += new
        groups.append(tuple(name for name in names if name in group))
        left = [name for name in left if name not in group]
    return groups


def _group_of(groups: Sequence[tuple[str, ...]], name: str) -> int:
    return next(place for place, group in enumerate(groups) if name in group)


def _one_sided(names: Sequence[str], tried: Collection[Ends], bad: Sequence[Ends]) -> Iterator[Pattern]:
    """Find nodes that nobody reaches, and nodes that reach nobody; the ways that are explained do not count."""
    wrong = set(bad)
    told: set[Ends] = set()
    kinds: tuple[tuple[Kind, int], ...] = (("into", 1), ("out of", 0))
    for kind, side in kinds:
        for name in names:
            ways = [ends for ends in dict.fromkeys(tried) if ends[side] == name]
            rest = [ends for ends in ways if ends in wrong and ends not in told]
            if len(rest) > 1 and wrong >= set(ways):
                told |= set(rest)
                yield Pattern(kind, (name,), tuple(rest))


def _pairs(_: Sequence[str], tried: Collection[Ends], bad: Sequence[Ends]) -> Iterator[Pattern]:
    done: set[Ends] = set()
    for one, other in bad:
        back = (other, one)
        if (one, other) in done:
            continue
        both = back in bad or back not in tried
        done |= {(one, other), back} if both else {(one, other)}
        ways = ((one, other), back) if back in bad else ((one, other),)
        yield Pattern("pair" if both else "way", (one, other), ways)
