"""The odd ones out, by majority."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from clusterctl.specs.nodeset import fold_names


@dataclass(frozen=True)
class Split:
    """Nodes that do not agree; `majority` is `None` when there is none, and then all are odd."""

    odd: tuple[str, ...]
    majority: str | None
    evidence: str


def split_votes(values: Mapping[str, str]) -> Split | None:
    """Group nodes by value; `None` if all agree."""
    groups: dict[str, list[str]] = {}
    for name, value in values.items():
        groups.setdefault(value, []).append(name)
    if len(groups) < 2:
        return None
    ranked = sorted(groups.items(), key=lambda pair: -len(pair[1]))
    (winner, voters), (_, second) = ranked[:2]
    if len(voters) == len(second):
        told = "; ".join(f"{fold_names(names)}: {value}" for value, names in groups.items())
        return Split(tuple(values), None, f"{told}; no majority")
    others = [(value, names) for value, names in groups.items() if value != winner]
    told = "; ".join(f"{fold_names(names)}: {value}" for value, names in others)
    odd = tuple(name for name, value in values.items() if value != winner)
    return Split(odd, winner, f"{told}; the other {len(voters)}: {winner}")
