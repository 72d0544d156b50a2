"""Whom a node looks at among many: everybody in a small cluster, a few that join all into one net in a large one.

Above FULL nodes each looks at its neighbours in the inventory's ring, and at those 2, 4, 8, ... places further: every
node is looked at by as many, and any two are few steps apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

FULL = 32  # nodes

T = TypeVar("T")


def plan_calls(names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Say for each node, in the order of the inventory, whom it calls."""
    return {name: neighbours_of(names, place) for place, name in enumerate(names)}


def neighbours_of(nodes: Sequence[T], place: int) -> tuple[T, ...]:
    """Give those at whom the node at a place looks."""
    count = len(nodes)
    steps = range(1, count) if count <= FULL else [count - 1, *_powers(count)]
    return tuple(nodes[(place + step) % count] for step in steps)


def _powers(count: int) -> list[int]:
    return [1 << exponent for exponent in range(count.bit_length()) if 1 << exponent < count - 1]
