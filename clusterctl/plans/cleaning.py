"""Which runs may go from the nodes: those that have ended and are old, or one too many of their job.

A run that lives on any node stays on all. Where nobody knows for certain that a run has ended (a node did not
answer, or was restarted, or the run was on another machine that shares the home) only its age counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from math import isnan
from typing import Any

from clusterctl.plans.outside import Outside, found_outside, parse_outside
from clusterctl.plans.owner import Owner
from clusterctl.plans.state import UNKNOWN, NodeState, parse_state

KEEP = 10  # newest runs of each job
OLDER_THAN = 30 * 86400.0  # seconds
UNUSED = 7 * 86400.0  # seconds for which a content of the store was in nobody's code
CENTURY = 100 * 365 * 86400.0  # seconds; nothing is older
BEYOND = "beyond the newest"
HALF_MADE = 86400.0  # seconds after which a run that was never started counts as given up


@dataclass(frozen=True)
class Part:
    """One node's part of a run; `state` is None where nothing was ever started."""

    node: str
    run: str
    leaf: str
    state: NodeState | None
    age: float
    bytes: int
    blocked: str
    outside: Outside | None = None  # files that would be lost: no other place has them


@dataclass(frozen=True)
class Bounds:
    """What is kept: the newest `keep` runs of each job, and none that is older than `older_than` seconds."""

    keep: int = KEEP
    older_than: float = OLDER_THAN


@dataclass(frozen=True)
class Choice:
    """What goes and why, and what stays although it is beyond the bounds."""

    parts: tuple[tuple[Part, str], ...]
    stays: tuple[tuple[Part, str], ...]

    @property
    def stranded(self) -> dict[str, dict[str, Outside]]:
        """Give, by run and node, the files outside the output directory that would go with the runs."""
        runs: dict[str, dict[str, Outside | None]] = {}
        for part, _ in self.parts:
            runs.setdefault(part.run, {})[part.node] = part.outside
        found = {run: found_outside(nodes) for run, nodes in runs.items()}
        return {run: nodes for run, nodes in found.items() if nodes}

    def without(self, runs: Collection[str]) -> Choice:
        """Keep some runs, on all nodes."""
        return Choice(tuple(one for one in self.parts if one[0].run not in runs), self.stays)


def parse_part(node: str, raw: Mapping[str, Any]) -> Part:
    """Read what a node says of one part, with distrust."""
    state, age, size = raw.get("state"), raw.get("age"), raw.get("bytes")
    return Part(
        node=node,
        run=str(raw.get("run")),
        leaf=str(raw.get("leaf")),
        state=parse_state(state) if isinstance(state, Mapping) else None,
        age=min(max(0.0, float(age)), CENTURY) if isinstance(age, float) and not isnan(age) else 0.0,
        bytes=size if isinstance(size, int) and 0 <= size < 1 << 64 else 0,
        blocked=str(raw.get("blocked") or ""),
        outside=parse_outside(raw.get("outside")),
    )


def choose(parts: Iterable[Part], bounds: Bounds, me: Owner | None) -> Choice:
    """Decide about every part; with `me` only about one's own runs."""
    runs: dict[str, list[Part]] = {}
    for part in parts:
        runs.setdefault(part.run, []).append(part)
    places = _places(runs)
    going: list[tuple[Part, str]] = []
    stays: list[tuple[Part, str]] = []
    for run, mine in sorted(runs.items()):  # by job, then by time
        if me is not None and not _is_own(mine, me):
            continue
        for part in mine:
            why = _why(part, mine, places.get(run, 0), bounds)
            hold = part.blocked or (_doubt(mine) if why == BEYOND else "")
            if why and hold:
                stays.append((part, hold))
            elif why:
                going.append((part, why))
    return Choice(tuple(going), tuple(stays))


def _places(runs: Mapping[str, list[Part]]) -> dict[str, int]:
    """Count for every run how many of its job are newer."""
    jobs: dict[tuple[str, str], list[tuple[float, str]]] = {}
    for run, parts in runs.items():
        states = [part.state for part in parts if part.state]
        if states:
            key = (states[0].job, states[0].launched_id or states[0].launched_by)
            jobs.setdefault(key, []).append((max(state.submitted for state in states), run))
    return {
        run: place for found in jobs.values() for place, (_, run) in enumerate(sorted(found, reverse=True))
    }


def _is_own(parts: Iterable[Part], me: Owner) -> bool:
    states = [part.state for part in parts if part.state]
    return all(me.is_same(Owner(state.launched_by, state.launched_id)) for state in states)


def _why(part: Part, parts: list[Part], newer: int, bounds: Bounds) -> str:
    """Say why a part may go; empty if it stays."""
    states = [one.state for one in parts if one.state]
    if any(state.live for state in states):
        return ""
    if not states:
        return "never started" if part.age > HALF_MADE else ""
    if min(one.age for one in parts) > bounds.older_than:
        return "old"
    return BEYOND if newer >= bounds.keep else ""


def _doubt(parts: list[Part]) -> str:
    """Say why nobody knows for certain that a run has ended; empty if all its nodes say so."""
    states = [one.state for one in parts if one.state]
    nnodes = max(state.nnodes for state in states)
    if len(states) < nnodes:
        return f"only {len(states)} of its {nnodes} nodes told of it, so age alone counts"
    if any(state.state == UNKNOWN for state in states):
        return "a node does not know how it ended, so age alone counts"
    return ""
