"""A run as rows of a table; what is alike shares one.

A row of nodes has a cell for ranks in the same state. In the rows of `diagnose` are ranks that do the same at the same
line, the suspects first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from clusterctl.node_texts import translate_node_text
from clusterctl.plans.diagnose.evidence import Entry, GroupRecord, RankEvidence
from clusterctl.plans.diagnose.hang import Judgement, fold_numbers
from clusterctl.plans.runs.state import (
    HaltedProcess,
    NodeState,
    Parts,
    RankState,
    SlotState,
    node_ranks,
    roster_of,
)
from clusterctl.plans.runs.verdict import Verdict
from clusterctl.protocol.exit_status import signal_name
from clusterctl.protocol.ranks import NodeRank, Rank
from clusterctl.protocol.root_cause import Failure
from clusterctl.protocol.states import LOST, STOPPED, UNKNOWN
from clusterctl.protocol.tracebacks import clip
from clusterctl.specs.nodeset import fold_names, fold_ranges
from clusterctl.specs.text import command_line, render_duration
from clusterctl.translation import to_translate, tr, trn

MAX_ROWS = 8  # nodes; of more those that are alike share a row
MAX_STALLS = 4  # ranks of a row that are named as silent
MAX_NOTE = 300  # characters
NO_STALLS: Mapping[Rank, str] = MappingProxyType({})
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
Age = Callable[[float], str]  # writes how long ago a moment was, by this machine's clock


@dataclass(frozen=True)
class RankCell:
    """Ranks in the same state: `0-7`, `running`; `kind` is good, bad, live, warn or nothing.

    Of a run that has ended only the rank that is the cause is bad, if one is known.
    """

    numbers: str
    state: str
    kind: str


@dataclass(frozen=True)
class NodeRow:
    """A node of a run, or many that are alike; `is_cause`: its failure, if it has one, may be that of the run."""

    node_ranks: str
    nodes: str
    state: str
    since: str
    ranks: tuple[RankCell, ...]
    note: str
    is_cause: bool = True
    is_stalled: bool = False


def list_node_rows(
    node_states: Parts,
    stalls: Mapping[str, Mapping[Rank, str]],
    verdict: Verdict | None,
    age: Age,
    judgement: Judgement | None = None,
) -> list[NodeRow]:
    """List the nodes by their ranks; of many nodes those that are alike share a row.

    `judgement`: of a run that hangs; the ranks that it names are marked, and those that wait for them.
    """
    ranks, slots = node_ranks(node_states), {slot.node: slot for slot in roster_of(node_states)}
    names = sorted(node_states, key=lambda name: _node_rank_key(ranks[name]))
    losses = verdict.losses if verdict is not None else {}  # why the others lost a node
    rows = {name: _describe_part(node_states[name], slots.get(name), losses.get(name, "")) for name in names}
    cause = verdict.cause.failure if verdict is not None and verdict.cause is not None else None
    cells = {
        name: _keep_cause(_rank_cells(node_states[name], stalls.get(name, NO_STALLS), judgement), cause)
        for name in names
    }
    groups: dict[object, list[str]] = {}
    for name in names:
        states = tuple((cell.state, cell.kind) for cell in cells[name])
        alike = (*rows[name], states, ranks[name] is None, cause is not None and cause.node == name)
        groups.setdefault(alike if len(names) > MAX_ROWS else name, []).append(name)
    return [
        NodeRow(
            join_ranks([_render_rank(ranks[name], slots.get(name)) for name in group]),
            fold_names(group),
            rows[group[0]][0],
            _describe_since(node_states[group[0]], age),
            cells[group[0]] if len(group) == 1 else _fold_cells([cells[name] for name in group]),
            _join_notes(
                rows[group[0]][1],
                _describe_stalls(group, stalls),
                _describe_quiet([node_states[name] for name in group], age),
            ),
            is_cause=cause is None or cause.node in group,
            is_stalled=any(part.is_stalled for name in group if (part := node_states[name]) is not None),
        )
        for group in groups.values()
    ]


def describe_node(name: str, node: NodeState | None, age: Age) -> str:
    """Describe a node's part of a run in one line."""
    state, note = _describe_part(node, None, "")
    ranks = "  ".join(f"r{cell.numbers} {cell.state}" for cell in _rank_cells(node, NO_STALLS, None))
    return "  ".join(
        filter(None, (f"{name} {state}", ranks, _join_notes(note, _describe_quiet([node], age))))
    )


def _describe_since(node: NodeState | None, age: Age) -> str:
    return age(node.since) if node is not None else ""


def _join_notes(*notes: str) -> str:
    return tr("; ").join(filter(None, notes))


def _describe_quiet(nodes: Sequence[NodeState | None], age: Age) -> str:
    """Return for how long no rank has made progress, if that is why one of these nodes has asked its ranks."""
    stalled = [node for node in nodes if node is not None and node.is_stalled]
    since = [node.quiet_since for node in stalled if node.quiet_since is not None]
    return tr("no progress for {span}", span=age(min(since))) if since else ""


def _describe_stalls(names: Sequence[str], stalls: Mapping[str, Mapping[Rank, str]]) -> str:
    """Return which of the ranks of these nodes may hang; of many the first."""
    found = [(rank, text) for name in names for rank, text in stalls.get(name, NO_STALLS).items()]
    shown = tr("; ").join(f"r{rank}: {clip(text, MAX_NOTE)}" for rank, text in found[:MAX_STALLS])
    if len(found) <= MAX_STALLS:
        return shown
    more = len(found) - MAX_STALLS
    return f"{shown}; {trn('and {n} more rank', 'and {n} more ranks', more)}"


def join_ranks(texts: Sequence[str]) -> str:
    """Write ranks as ranges: `0-3, 7`; what is no number comes last, once."""
    ranges = fold_ranges(sorted({int(text) for text in texts if text.isdecimal()}))
    return ", ".join([*ranges, *dict.fromkeys(text for text in texts if not text.isdecimal())])


def _rank_cells(
    node: NodeState | None, stalls: Mapping[Rank, str], judgement: Judgement | None
) -> tuple[RankCell, ...]:
    """List the ranks of a node, each alone."""
    if node is None:
        return ()
    return tuple(
        RankCell(str(rank.rank), *_mark_rank(rank, node, judgement, is_stalled=rank.rank in stalls))
        for rank in node.ranks
    )


def _keep_cause(cells: tuple[RankCell, ...], cause: Failure | None) -> tuple[RankCell, ...]:
    """Leave only the rank bad that is the cause; where a node is the cause no rank is."""
    if cause is None:
        return cells
    return tuple(
        replace(cell, kind="") if cell.kind == "bad" and cell.numbers != str(cause.rank) else cell
        for cell in cells
    )


def _fold_cells(nodes: Sequence[Sequence[RankCell]]) -> tuple[RankCell, ...]:
    """Put ranks in the same state together."""
    numbers: dict[tuple[str, str], list[str]] = {}
    for cell in (cell for cells in nodes for cell in cells):
        numbers.setdefault((cell.state, cell.kind), []).append(cell.numbers)
    return tuple(RankCell(join_ranks(ranks), *alike) for alike, ranks in numbers.items())


def _mark_rank(
    rank: RankState, node: NodeState, judgement: Judgement | None, *, is_stalled: bool
) -> tuple[str, str]:
    """Return a rank's state and kind, and what a judgement has of it."""
    state, kind = (
        _describe_rank(rank, live=node.live),
        _rank_kind(rank, live=node.live, is_stalled=is_stalled),
    )
    if judgement is not None and rank.rank in judgement.suspects:
        return tr("{state}, suspect", state=state), "bad"
    if judgement is not None and rank.rank in judgement.waiting and kind in ("live", "warn"):
        return tr("{state}, waits", state=state), "warn"
    return state, kind


def _rank_kind(rank: RankState, *, live: bool, is_stalled: bool) -> str:
    if rank.failed or rank.exit is not None:
        return "bad" if rank.failed else "good"
    return "warn" if live and (rank.stopped or is_stalled) else "live" if live else ""


def _node_rank_key(node_rank: NodeRank | None) -> int:
    return 1 << 30 if node_rank is None else node_rank


def _render_rank(node_rank: NodeRank | None, slot: SlotState | None) -> str:
    if node_rank is not None:
        return str(node_rank)
    return "?" if slot is None else tr("spare") if slot.is_idle else "-"


def _describe_part(node: NodeState | None, slot: SlotState | None, loss: str) -> tuple[str, str]:
    """Return a node's state, and what else is known."""
    loss = translate_node_text(loss)
    if node is None and slot is not None and slot.lost:
        return LOST, translate_node_text(slot.reason)
    if node is None and loss:
        return LOST, tr("{reason}; no answer", reason=loss)
    if node is None:
        return UNKNOWN, tr("no answer")
    adds_loss = loss and node.state in (STOPPED, UNKNOWN)  # else its own reason is why it was lost
    given, stop = translate_node_text(node.reason), translate_node_text(node.stopping)
    stopping = tr("stopping: {reason}", reason=stop) if node.live and stop else ""
    own_reason = tr("{reason}; the node reports: {own}", reason=loss, own=given)
    notes = [own_reason if adds_loss else given, stopping]
    notes += [tr("still running: {process}", process=remaining) for remaining in node.left_processes]
    notes += [translate_node_text(slot.reason)] if slot is not None and slot.reason != node.reason else []
    notes += [describe_halted(node.node, halted) for halted in node.halted if node.live]
    if node.unplanned_world_size:
        observed, planned = node.unplanned_world_size
        notes.append(tr("WORLD_SIZE {observed}, planned {planned}", observed=observed, planned=planned))
    return node.state, _join_notes(*(clip(note, MAX_NOTE) for note in notes))


def _describe_rank(rank: RankState, *, live: bool) -> str:
    if rank.signal is not None:
        return signal_name(rank.signal)
    if rank.exit is not None:
        return "ok" if rank.exit == 0 else tr("exit {code}", code=rank.exit)
    if rank.stopped and live:
        return tr("stopped (SIGSTOP)")
    return tr("running") if live else "?"


def describe_halted(node: str, halted: HaltedProcess) -> str:
    """Return which process of a node is halted, and the command that continues it."""
    return tr(
        "{process} is halted (SIGSTOP, pid {pid}); to continue it: {command}",
        process=halted.name,
        pid=halted.pid,
        command=command_line(
            "exec", "--nodes", node, "--", "kill", "-CONT", str(halted.pid), command="clusterctl"
        ),
    )


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
