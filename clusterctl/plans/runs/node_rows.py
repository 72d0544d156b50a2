"""The nodes of a run as rows of a table: those that are alike share one, with a cell for ranks in the same state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from clusterctl.node_texts import translate_node_text
from clusterctl.plans.diagnose.hang import Judgement
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
from clusterctl.protocol.states import LOST, STOPPED, UNKNOWN
from clusterctl.protocol.tracebacks import clip
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import command_line
from clusterctl.translation import tr, trn

MAX_ROWS = 8  # nodes; of more those that are alike share a row
MAX_STALLS = 4  # ranks of a row that are named as silent
MAX_NOTE = 300  # characters
NO_STALLS: Mapping[Rank, str] = MappingProxyType({})
Age = Callable[[float], str]  # writes how long ago a moment was, by this machine's clock


@dataclass(frozen=True)
class RankCell:
    """Ranks in the same state: `0-7`, `running`; `kind` is good, bad, live, warn or nothing."""

    numbers: str
    state: str
    kind: str


@dataclass(frozen=True)
class NodeRow:
    """A node of a run, or many that are alike."""

    node_ranks: str
    nodes: str
    state: str
    since: str
    ranks: tuple[RankCell, ...]
    note: str


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
    cells = {name: _rank_cells(node_states[name], stalls.get(name, NO_STALLS), judgement) for name in names}
    groups: dict[object, list[str]] = {}
    for name in names:
        alike = (*rows[name], tuple((cell.state, cell.kind) for cell in cells[name]), ranks[name] is None)
        groups.setdefault(alike if len(names) > MAX_ROWS else name, []).append(name)
    return [
        NodeRow(
            fold_numbers([_render_rank(ranks[name], slots.get(name)) for name in group]),
            fold_names(group),
            rows[group[0]][0],
            _describe_since(node_states[group[0]], age),
            cells[group[0]] if len(group) == 1 else _fold_cells([cells[name] for name in group]),
            _join_notes(
                rows[group[0]][1],
                _describe_stalls(group, stalls),
                _describe_quiet([node_states[name] for name in group], age),
            ),
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


def fold_numbers(texts: Sequence[str]) -> str:
    """Write ranks as ranges: `0-3, 7`; what is no number comes last, once."""
    numbers = sorted({int(text) for text in texts if text.isdecimal()})
    starts = [number for number in numbers if number - 1 not in numbers]
    ends = [number for number in numbers if number + 1 not in numbers]
    ranges = [f"{a}-{b}" if a < b else str(a) for a, b in zip(starts, ends, strict=True)]
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


def _fold_cells(nodes: Sequence[Sequence[RankCell]]) -> tuple[RankCell, ...]:
    """Put ranks in the same state together."""
    numbers: dict[tuple[str, str], list[str]] = {}
    for cell in (cell for cells in nodes for cell in cells):
        numbers.setdefault((cell.state, cell.kind), []).append(cell.numbers)
    return tuple(RankCell(fold_numbers(ranks), *alike) for alike, ranks in numbers.items())


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
