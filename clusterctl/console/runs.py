"""Ps, status, live status."""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from rich.console import Group
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from clusterctl.console.terminal import out, print_table, wants_color
from clusterctl.console.text import json_text, sanitize
from clusterctl.console.verdict import LONGEST_LINE, render_attempts, render_cause, render_stranded
from clusterctl.plans.runs.gang_record import Seat
from clusterctl.plans.runs.selection import Owner, owner_of
from clusterctl.plans.runs.state import (
    FAILED,
    FAILED_SETUP,
    LIVE,
    LOST,
    SUCCEEDED,
    NodeState,
    Parts,
    Pulse,
    RankState,
    attempts_of,
    find_stall,
    find_stalls,
    measure_rest,
    measure_skew,
    node_ranks,
    roster_of,
    whole_state,
)
from clusterctl.plans.runs.verdict import attempt_to_json, cause_to_json, judge_recorded
from clusterctl.plans.sync.results import found_outside, outside_to_json
from clusterctl.protocol.root_cause import signal_name
from clusterctl.protocol.run_id import RunId
from clusterctl.protocol.tracebacks import clip
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import render_span

if TYPE_CHECKING:
    from rich.live import Live


MOST_LINES = 16
LONGEST_LAST_LINE = 160


def render_pulse(parts: Parts, offsets: Mapping[str, float], now: float) -> str:
    """Say what is known of the whole run: `time limit 12 h, 3 h 20 min left; ranks began within 0.02 s`."""
    said = []
    limit = next((part.time_limit for part in parts.values() if part and part.time_limit), None)
    rest, skew = measure_rest(parts, offsets, now), measure_skew(parts, offsets)
    if limit is not None:
        said.append(
            f"time limit {render_span(limit)}" + ("" if rest is None else f", {render_span(rest)} left")
        )
    if skew is not None:
        said.append(f"ranks began within {skew:.2f} s")
    attempt = max((part.attempt for part in parts.values() if part), default=1)
    return "; ".join(said + ([f"attempt {attempt}"] if attempt > 1 else []))


def render_last_lines(parts: Parts) -> Iterator[str]:
    """Give the last line of each rank: `gpu02 r3 | step 1200 loss 0.31`; of many ranks those of the first."""
    spoken = [(name, pulse) for name, part in parts.items() if part for pulse in part.pulses if pulse.line]
    ordered = sorted(spoken, key=lambda pair: pair[1].rank)
    width = max((len(_label(*pair)) for pair in ordered[:MOST_LINES]), default=0)
    for name, pulse in ordered[:MOST_LINES]:
        yield f"{_label(name, pulse).ljust(width)} | {sanitize(pulse.line)[:LONGEST_LAST_LINE]}"
    if len(ordered) > MOST_LINES:
        yield f"and {len(ordered) - MOST_LINES} more ranks; --json has all"


def _label(name: str, pulse: Pulse) -> str:
    return f"{name} r{pulse.rank}"


def pulse_to_json(pulse: Pulse | None, offset: float, now: float) -> dict[str, Any]:
    """Give a rank's signs of life for `status --json`; times by our clock."""
    if pulse is None:
        return {"process": None, "last_line": None, "written": None, "stalled": None}
    return {
        "process": pulse.process or None,
        "last_line": pulse.line,
        "written": None if pulse.written is None else round(pulse.written - offset, 3),
        "stalled": find_stall(pulse, now + offset) or None,
    }


_STYLES = {SUCCEEDED: "green", FAILED: "red", FAILED_SETUP: "red", LOST: "red"}

Offsets = Mapping[str, float]  # the nodes' clocks minus ours, in seconds
NO_OFFSETS: Offsets = MappingProxyType({})
LONGEST_FOLDER = 60
NO_STALLS: Mapping[int, str] = MappingProxyType({})


def show_runs(runs: Mapping[RunId, Parts], me: Owner) -> None:
    """Print the runs in the order in which they come; one's own are marked."""
    if not runs:
        out().print("no runs")
        return
    table = _runs_table(runs, me)
    wide = _runs_table(runs, me, with_folder=True)
    fits = Measurement.get(out(), out().options.update(max_width=1000), wide).maximum <= out().width
    print_table(out(), wide if fits else table)


def _runs_table(runs: Mapping[RunId, Parts], me: Owner, *, with_folder: bool = False) -> Table:
    """Draw the runs; where each was launched is left out where there is no room."""
    table = _table("run", "state", "nodes", "launched", "by", *(["from"] if with_folder else []))
    for run, parts in runs.items():
        part = _any_part(parts)
        state = whole_state(parts)
        table.add_row(
            Text(sanitize(run)),
            Text(state, _style(state)) + _attempt(parts),
            _render_nodes(parts),
            f"{_age(part.submitted)} ago",
            Text(sanitize(part.launched_by) + (" (you)" if owner_of(parts).is_same(me) else "")),
            *([Text(render_folder(part.launched_from))] if with_folder else []),
        )
    return table


def _attempt(parts: Parts) -> str:
    number = max((part.attempt for part in parts.values() if part), default=1)
    return f", attempt {number}" if number > 1 else ""


def _render_nodes(parts: Parts) -> str:
    """Name the nodes, those that take no part at the moment apart."""
    seats = [seat for seat in roster_of(parts) if seat.node_rank is None]
    out = {seat.node: "spare" if seat.idle else "lost" if seat.lost else "unfit" for seat in seats}
    said = [fold_names([name for name in parts if name not in out])]
    for word in ("spare", "unfit", "lost"):
        names = [name for name in parts if out.get(name) == word]
        said += [f"{word}: {fold_names(names)}"] if names else []
    return "; ".join(said)


def show_status(
    run: RunId,
    parts: Parts,
    offsets: Offsets = NO_OFFSETS,
    command: str = "clusterctl",
    names: Collection[str] = (),
) -> None:
    """Print one run: its whole state, every node with its ranks, what they said last, and why it failed.

    `names` are the nodes of the inventory.
    """
    out().print(render_status(run, parts, offsets), soft_wrap=not out().is_terminal)
    verdict = judge_recorded(run, parts, names)
    if verdict is not None and verdict.cause is not None:
        out().print(Text("\n".join(map(sanitize, render_cause(verdict.cause, run, command)))))
    outside = found_outside({name: part.outside for name, part in parts.items() if part})
    for line in render_stranded(outside, run, command):
        out().print(Text(sanitize(line)))


def render_status(run: RunId, parts: Parts, offsets: Offsets = NO_OFFSETS) -> Group:
    """Draw one run."""
    part = _any_part(parts)
    state = whole_state(parts)
    master = sanitize(part.master) or "-"
    about = (
        f"job {sanitize(part.job)}, {describe_launch(parts)}, world size {part.world_size}, master {master}"
    )
    now = time.time()
    stalls = find_stalls(parts, offsets, now)
    table = _table("node_rank", "node", "state", "since", "ranks", "note")
    ranks, seats = node_ranks(parts), {seat.node: seat for seat in roster_of(parts)}
    for name in sorted(parts, key=lambda name: _order(ranks[name])):
        row = _status_row(name, parts[name], stalls.get(name, NO_STALLS), seats.get(name))
        table.add_row(_render_rank(ranks[name], seats.get(name)), *row)
    head = Text.assemble(sanitize(run), "  ", (state, _style(state)))
    said = filter(None, (about, render_pulse(parts, offsets, now), *render_attempts(attempts_of(parts))))
    return Group(head, *map(Text, said), table, *map(Text, render_last_lines(parts)))


def describe_node(name: str, node: NodeState | None) -> str:
    """Say in one line how a node's part of a run stands."""
    _, state, _, ranks, note = _status_row(name, node)
    return "  ".join(filter(None, (f"{name} {state}", str(ranks), str(note))))


def describe_launch(parts: Parts) -> str:
    """Say whose a run is: `launched by ann@laptop 3h ago from /home/ann/digits`."""
    part = _any_part(parts)
    place = f" from {render_folder(part.launched_from)}" if part.launched_from else ""
    return sanitize(f"launched by {part.launched_by or 'an unknown user'} {_age(part.submitted)} ago") + place


def describe_run(run: str, parts: Parts, place: str) -> list[str]:
    """Say which run is meant, for a question: its state, age and nodes, the cluster, and where it was launched."""
    nodes = _render_nodes(parts)
    return [
        sanitize(f"{run}: {whole_state(parts)}, {describe_launch(parts)}"),
        sanitize(f"  on {nodes} of {place}"),
    ]


def render_folder(path: str) -> str:
    """Write the directory that a run was launched from; of a long path the end, which tells more."""
    text = sanitize(path)
    return text if len(text) <= LONGEST_FOLDER else f"...{text[3 - LONGEST_FOLDER :]}"


def _order(node_rank: int | None) -> int:
    return 1 << 30 if node_rank is None else node_rank


def _render_rank(node_rank: int | None, seat: Seat | None) -> str:
    if node_rank is not None:
        return str(node_rank)
    return "?" if seat is None else "spare" if seat.idle else "-"


def _status_row(
    name: str, node: NodeState | None, stalls: Mapping[int, str] = NO_STALLS, seat: Seat | None = None
) -> tuple[str | Text, ...]:
    if node is None and seat is not None and seat.lost:
        return name, Text(LOST, "red"), "", "", Text(sanitize(seat.reason))
    if node is None:
        return name, Text("UNKNOWN", "red"), "", "", "did not answer"
    ranks = "  ".join(f"r{rank.rank} {_ending(rank, live=node.live)}" for rank in node.ranks)
    notes = [node.reason, *(f"left: {left}" for left in node.left)]
    notes += [seat.reason] if seat is not None and seat.reason != node.reason else []
    notes += ["WORLD_SIZE {}, planned {}".format(*node.unplanned)] if node.unplanned else []
    notes += [f"r{rank}: {why}" for rank, why in stalls.items()]
    notes = [clip(note, LONGEST_LINE) for note in notes]
    return (
        name,
        Text(node.state, _style(node.state)),
        _age(node.since),
        ranks,
        Text(sanitize("; ".join(filter(None, notes)))),
    )


def _ending(rank: RankState, *, live: bool) -> str:
    if rank.signal is not None:
        return signal_name(rank.signal)
    if rank.exit is not None:
        return "ok" if rank.exit == 0 else f"exit {rank.exit}"
    if rank.stopped and live:
        return "stopped (SIGSTOP)"
    return "running" if live else "?"


def runs_to_json(runs: Mapping[RunId, Parts], me: Owner) -> dict[str, Any]:
    """Give `ps --json`."""
    entries = [
        {**_run_to_json(run, parts), "own": owner_of(parts).is_same(me)} for run, parts in runs.items()
    ]
    return {"schema": 1, "runs": entries}


def status_to_json(
    run: RunId, parts: Parts, offsets: Offsets = NO_OFFSETS, names: Collection[str] = ()
) -> dict[str, Any]:
    """Give `status --json`; `names` are the nodes of the inventory."""
    ranks = node_ranks(parts)
    nodes = [_node_to_json(name, ranks[name], node, offsets.get(name, 0.0)) for name, node in parts.items()]
    verdict = judge_recorded(run, parts, names)
    cause = cause_to_json(verdict.cause, run) if verdict is not None and verdict.cause is not None else None
    more = {
        "time_left": _rounded(measure_rest(parts, offsets, time.time())),
        "start_skew": _rounded(measure_skew(parts, offsets)),
    }
    return {"schema": 1, "run": {**_run_to_json(run, parts), **more}, "nodes": nodes, "cause": cause}


def _run_to_json(run: RunId, parts: Parts) -> dict[str, Any]:
    part = _any_part(parts)
    return {
        "run": run,
        "job": part.job,
        "cluster": part.cluster,
        "state": whole_state(parts),
        "attempt": max((part.attempt for part in parts.values() if part), default=1),
        "attempts": [attempt_to_json(attempt) for attempt in attempts_of(parts)],
        "nodes": list(parts),
        "spares": [seat.node for seat in roster_of(parts) if seat.idle],
        "world_size": part.world_size,
        "launched_by": part.launched_by,
        "launched_from": part.launched_from,
        "submitted": part.submitted,
    }


def _node_to_json(name: str, rank: int | None, node: NodeState | None, offset: float) -> dict[str, Any]:
    if node is None:
        return {"node": name, "node_rank": rank, "state": "UNKNOWN", "ranks": []}
    pulses = {pulse.rank: pulse for pulse in node.pulses}
    return {
        "node": name,
        "node_rank": rank,
        "attempt": node.attempt,
        "state": node.state,
        "since": node.since,
        "world_size_seen": node.world_size_seen,
        "torchrun_exit": node.torchrun_exit,
        "reason": node.reason,
        "left": list(node.left),
        "outside": outside_to_json(node.outside),
        "ranks": [
            {
                "rank": rank.rank,
                "local_rank": rank.local_rank,
                "exit": rank.exit,
                "signal": rank.signal,
                "stopped": rank.stopped,
                **pulse_to_json(pulses.get(rank.rank), offset, time.time()),
            }
            for rank in node.ranks
        ],
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 2)


def _any_part(parts: Parts) -> NodeState:
    """Give the word of a node that got as far as any: what all have in common."""
    return max((part for part in parts.values() if part is not None), key=lambda part: part.attempt)


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def _style(state: str) -> str:
    return "cyan" if state in LIVE else _STYLES.get(state, "yellow")


def _age(moment: float) -> str:
    """Write how long ago something was: 42s, 7m, 3h, 2d."""
    seconds = max(0.0, time.time() - moment)
    steps: Sequence[tuple[float, str]] = ((86400, "d"), (3600, "h"), (60, "m"))
    unit, letter = next((step for step in steps if seconds >= 2 * step[0]), (1.0, "s"))
    return f"{seconds / unit:.0f}{letter}"


class Board(Protocol):
    """Shows the parts of a run whenever one of them has changed."""

    def show(self, parts: Parts) -> None:
        """Show how things stand now."""

    def __enter__(self) -> Board:
        """Begin."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the last state on the screen."""


def make_board(run: RunId, offsets: Mapping[str, float], *, as_json: bool) -> Board:
    """Choose how to show a run: NDJSON, a live table, or lines."""
    if as_json:
        return JsonBoard(run, offsets)
    live = sys.stdout.isatty() and wants_color(sys.stdout)
    return LiveBoard(run, offsets) if live else LineBoard(run, offsets)


class _Board(ABC):
    def __init__(self, run: RunId, offsets: Mapping[str, float]) -> None:
        self._run, self._offsets = run, offsets

    def __enter__(self) -> _Board:
        return self

    def __exit__(  # noqa: B027 - most boards have nothing open
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is open."""

    @abstractmethod
    def show(self, parts: Parts) -> None:
        """Show how things stand now."""


class JsonBoard(_Board):
    """Writes the whole state as one line of JSON, as `status --json` does, whenever it changes."""

    def show(self, parts: Parts) -> None:
        """Write one line."""
        print(json_text(status_to_json(self._run, parts, self._offsets)), flush=True)


class LineBoard(_Board):
    """Writes one line for each node that has changed: `14:03:05 gpu02 RUNNING  r1 running`."""

    def __init__(self, run: RunId, offsets: Mapping[str, float]) -> None:
        super().__init__(run, offsets)
        self._written: dict[str, str] = {}

    def show(self, parts: Parts) -> None:
        """Write what is new."""
        said = {name: describe_node(name, part) for name, part in parts.items()}
        said[self._run] = f"{self._run} {whole_state(parts)}"
        for name, line in said.items():
            if self._written.get(name) != line:
                print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)
        self._written = said


class LiveBoard(_Board):
    """Redraws the table of `status`; ages go on by themselves."""

    def __init__(self, run: RunId, offsets: Mapping[str, float]) -> None:
        super().__init__(run, offsets)
        self._parts: Parts = {}
        self._live: Live | None = None

    def __enter__(self) -> LiveBoard:
        from rich.live import Live

        self._live = Live(console=out(), get_renderable=self._render, refresh_per_second=2, transient=True)
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
        if self._parts:
            show_status(self._run, self._parts, self._offsets)

    def show(self, parts: Parts) -> None:
        """Redraw."""
        self._parts = dict(parts)
        if self._live is not None:
            self._live.refresh()

    def _render(self) -> Group | str:
        return render_status(self._run, self._parts, self._offsets) if self._parts else ""
