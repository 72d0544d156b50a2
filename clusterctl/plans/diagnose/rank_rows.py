"""The ranks of a run as rows of a table: those that do the same at the same line share one, the suspects come first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from clusterctl.node_texts import translate_node_text
from clusterctl.plans.diagnose.evidence import Entry, GroupRecord, RankEvidence
from clusterctl.plans.diagnose.hang import fold_numbers
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import render_duration
from clusterctl.translation import to_translate, tr

BUSY = 0.5  # processors
STATES = {
    "R": to_translate("runs"),
    "S": to_translate("sleeps"),
    "D": to_translate("waits in the kernel"),
    "T": to_translate("stopped"),
    "t": to_translate("held by a debugger"),
    "Z": to_translate("ended"),
    "I": to_translate("sleeps"),
}


@dataclass(frozen=True)
class RankRow:
    """Ranks that are alike: what their process does, at which line they are, and their last collective."""

    ranks: str
    nodes: str
    process: str
    at: str
    collective: str
    is_suspect: bool = False

    @property
    def cells(self) -> tuple[str, ...]:
        """Return the texts below `rank_headings`."""
        return self.ranks, self.nodes, self.process, self.at, self.collective


def rank_headings() -> tuple[str, ...]:
    """Return the headings of the rows."""
    return tr("RANK"), tr("NODE"), tr("PROCESS"), tr("AT"), tr("LAST COLLECTIVE")


def fold_ranks(ranks: Iterable[RankEvidence], suspects: Sequence[int]) -> list[RankRow]:
    """Put ranks that are at the same line in the same collective into one row."""
    rows: dict[tuple[object, ...], list[RankEvidence]] = {}
    for rank in sorted(ranks, key=lambda one: (one.rank not in suspects, one.rank)):
        is_suspect = rank.rank in suspects
        rows.setdefault(
            (is_suspect, _describe_process(rank), _where(rank), _collective_key(rank)), []
        ).append(rank)
    return [
        RankRow(
            fold_numbers([rank.rank for rank in alike]),
            fold_names(dict.fromkeys(rank.node for rank in alike)),
            _describe_process(alike[0]),
            _where(alike[0]),
            _describe_collective(alike),
            alike[0].rank in suspects,
        )
        for alike in rows.values()
    ]


def fold_stacks(ranks: Iterable[RankEvidence]) -> dict[str, list[int]]:
    """Return each stack once, with the ranks that are in it."""
    by_stack: dict[str, list[int]] = {}
    for rank in ranks:
        if rank.stack:
            by_stack.setdefault(rank.stack, []).append(rank.rank)
    return by_stack


def _describe_process(rank: RankEvidence) -> str:
    if rank.ended:
        return (
            tr("ended with signal {number}", number=rank.signal)
            if rank.signal
            else tr("exited with {code}", code=rank.exit or 0)
        )
    state = tr(STATES[rank.process]) if rank.process in STATES else rank.process
    return tr("{state}, busy", state=state) if (rank.cpu or 0.0) >= BUSY else state


def _where(rank: RankEvidence) -> str:
    if rank.where is not None:
        return str(rank.where)
    return "" if rank.problem in ("ended", "stopped") else translate_node_text(rank.problem)


def _collective_key(rank: RankEvidence) -> object:
    """Return what must be the same for ranks in one row."""
    found = newest_entry(rank)
    return found and (found[0].title, found[1].number, found[1].operation, found[1].done)


def _describe_collective(alike: Sequence[RankEvidence]) -> str:
    """Name the collective that these ranks have entered last, and for how long the first of them waits."""
    found = max(filter(None, map(newest_entry, alike)), key=lambda pair: pair[1].age, default=None)
    if found is None:
        return translate_node_text(alike[0].records_problem)
    group, entry = found
    facts = {"operation": entry.operation, "number": entry.number, "group": group.title}
    if entry.done:
        return tr("after {operation} #{number} of {group}", **facts)
    duration = render_duration(entry.age)
    return tr("in {operation} #{number} of {group} for {duration}", **facts, duration=duration)


def newest_entry(rank: RankEvidence) -> tuple[GroupRecord, Entry] | None:
    """Return what a rank has entered last, in which group; what is not over counts before what is."""
    entries = [(group, entry) for group in rank.groups for entry in group.entries]
    return min(entries, key=lambda pair: (pair[1].done, pair[1].age), default=None)
