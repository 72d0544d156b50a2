"""Processes that crashed runs have left on the nodes, read with distrust."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from clusterctl.plans.facts_reading import clean_text, read_value
from clusterctl.plans.owner import Owner
from clusterctl.protocol.run_id import parse_run_id


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
