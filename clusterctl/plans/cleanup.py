"""Which runs and orphan processes may go.

Which runs may go from the nodes: those that have ended and are old, or one too many of their job.

A run that lives on any node stays on all. Where nobody knows for certain that a run has ended (a node did not
answer, or was restarted, or the run was on another machine that shares the home) only its age counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from clusterctl.plans.facts.untrusted import clean_text, read_value
from clusterctl.plans.runs.selection import Owner
from clusterctl.plans.runs.state import UNKNOWN, NodeState, parse_state
from clusterctl.plans.sync.results import Outside, found_outside, parse_outside
from clusterctl.protocol.run_id import RunId, parse_run_id
from clusterctl.protocol.untrusted import Untrusted

KEEP = 10  # newest runs of each job
OLDER_THAN = 30 * 86400.0  # seconds
UNUSED = 7 * 86400.0  # seconds for which a content of the store was in nobody's code
CENTURY = 100 * 365 * 86400.0  # seconds; nothing is older
BEYOND = "beyond the newest"
LONGEST_LEAF = 255  # characters of the name of a node's directory within a run's
HALF_MADE = 86400.0  # seconds after which a run that was never started counts as given up


@dataclass(frozen=True)
class Part:
    """One node's part of a run; `state` is None where nothing was ever started."""

    node: str
    run: RunId
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


def parse_part(node: str, raw: Untrusted) -> Part | None:
    """Read what a node says of one part; None if it names no run."""
    run = parse_run_id(raw.text("run"))
    if run is None:
        return None
    return Part(
        node=node,
        run=run,
        leaf=raw.text("leaf", LONGEST_LEAF),
        state=parse_state(raw.record("state")) if raw.has_record("state") else None,
        age=min(max(0.0, raw.number("age") or 0.0), CENTURY),
        bytes=raw.count("bytes"),
        blocked=raw.text("blocked", 300),
        outside=parse_outside(raw.record("outside")),
    )


def choose(parts: Iterable[Part], bounds: Bounds, me: Owner | None) -> Choice:
    """Decide about every part; with `me` only about one's own runs."""
    runs: dict[RunId, list[Part]] = {}
    for part in parts:
        runs.setdefault(part.run, []).append(part)
    places = _places(runs)
    going: list[tuple[Part, str]] = []
    stays: list[tuple[Part, str]] = []
    for run, mine in sorted(runs.items()):  # by job, then by time
        if me is not None and not _is_own(mine, me):
            continue
        about, doubt = _why(mine, places.get(run, 0), bounds), _doubt(mine)
        for part in mine:
            why = about if about is not None else "never started" if part.age > HALF_MADE else ""
            hold = part.blocked or (doubt if why == BEYOND else "")
            if why and hold:
                stays.append((part, hold))
            elif why:
                going.append((part, why))
    return Choice(tuple(going), tuple(stays))


def _places(runs: Mapping[RunId, list[Part]]) -> dict[RunId, int]:
    """Count for every run how many of its job are newer, on the node that holds the fewest of them.

    Runs that a node makes up crowd out nobody's but its own.
    """
    jobs: dict[tuple[str, str, str], list[tuple[float, RunId]]] = {}
    for run, parts in runs.items():
        for part in parts:
            if part.state:
                key = (part.node, part.state.job, part.state.launched_id or part.state.launched_by)
                jobs.setdefault(key, []).append((part.state.submitted, run))
    places: dict[RunId, int] = {}
    for found in jobs.values():
        for place, (_, run) in enumerate(sorted(found, reverse=True)):
            places[run] = min(place, places.get(run, place))
    return places


def _is_own(parts: Iterable[Part], me: Owner) -> bool:
    states = [part.state for part in parts if part.state]
    return all(me.is_same(Owner(state.launched_by, state.launched_id)) for state in states)


def _why(parts: list[Part], newer: int, bounds: Bounds) -> str | None:
    """Say why a run's parts may go; empty if they stay, None for a run that was never started."""
    states = [one.state for one in parts if one.state]
    if any(state.live for state in states):
        return ""
    if not states:
        return None
    if min(one.age for one in parts) > bounds.older_than:
        return "old"
    return BEYOND if newer >= bounds.keep else ""


def _doubt(parts: list[Part]) -> str:
    """Say why nobody knows for certain that a run has ended; empty if all its nodes say so."""
    states = [one.state for one in parts if one.state]
    nnodes = max((state.nnodes for state in states), default=0)
    if len(states) < nnodes:
        return f"only {len(states)} of its {nnodes} nodes told of it, so age alone counts"
    if any(state.state == UNKNOWN for state in states):
        return "a node does not know how it ended, so age alone counts"
    return ""


@dataclass(frozen=True)
class Orphan:
    """One process of a run without guardian and agent; `known` if the node's work directory holds the run."""

    run: str | None = None
    pid: int | None = None
    starttime: int | None = None
    age: float | None = None
    command: str | None = None
    known: bool | None = None
    job: str | None = None
    state: str | None = None
    launched_by: str | None = None
    launched_id: str | None = None

    @property
    def owner(self) -> Owner:
        """Whose run it was."""
        return Owner(self.launched_by or "", self.launched_id or "")


@dataclass(frozen=True)
class Orphans:
    """What one node has: this account's, and how many other accounts have, as far as can be seen."""

    mine: tuple[Orphan, ...] = ()
    others: Mapping[str, int] = field(default_factory=dict)


def parse_orphans(mine: object, others: object) -> Orphans:
    """Read a node's answer; never raises. What bears no run's name is left out."""
    found: tuple[Orphan, ...] | None = read_value(tuple[Orphan, ...], mine, "orphans", [])
    counts: Mapping[str, int] | None = read_value(Mapping[str, int], others, "others", [])
    whole = tuple(
        one for one in found or () if one.pid and one.starttime is not None and parse_run_id(one.run)
    )
    return Orphans(whole, {clean_text(user): count for user, count in (counts or {}).items()})


def to_end(orphans: Iterable[Orphan], me: Owner | None) -> tuple[Orphan, ...]:
    """Choose what may be ended: of runs that the node knows, and with `me` only of one's own."""
    return tuple(one for one in orphans if one.known and (me is None or me.is_same(one.owner)))
