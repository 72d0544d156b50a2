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

from clusterctl.console.terminal import print_table, stdout, uses_color
from clusterctl.console.text import json_text, sanitize
from clusterctl.console.verdict import (
    LONGEST_LINE,
    UNBROKEN,
    render_attempts,
    render_cause,
    render_outside_note,
    state_mark,
)
from clusterctl.plans.runs.gang_record import SlotState
from clusterctl.plans.runs.selection import Owner, owner_of
from clusterctl.plans.runs.state import (
    NodeState,
    Parts,
    RankActivity,
    RankState,
    attempts_of,
    find_stall,
    find_stalls,
    measure_remaining,
    measure_start_skew,
    node_ranks,
    roster_of,
)
from clusterctl.plans.runs.verdict import (
    Verdict,
    attempt_to_json,
    cause_to_json,
    judge_recorded,
    judged_state,
    name_state,
)
from clusterctl.plans.sync.results import outside_to_json, with_outside_files
from clusterctl.protocol.exit_status import signal_name
from clusterctl.protocol.ranks import NodeRank, Rank
from clusterctl.protocol.run_id import RunId
from clusterctl.protocol.states import CANCELLED, FAILED, FAILED_SETUP, LIVE, LOST, SUCCEEDED, UNKNOWN
from clusterctl.protocol.tracebacks import clip
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import render_duration

if TYPE_CHECKING:
    from rich.live import Live


MOST_LINES = 16
LONGEST_LAST_LINE = 160


def render_timing(node_states: Parts, offsets: Mapping[str, float], now: float) -> str:
    """Say what is known of the whole run: `time limit 12 h, 3 h 20 min left; ranks began within 0.02 s`."""
    texts = []
    limit = next(
        (
            node_state.time_limit
            for node_state in node_states.values()
            if node_state and node_state.time_limit
        ),
        None,
    )
    time_left, skew = measure_remaining(node_states, offsets, now), measure_start_skew(node_states, offsets)
    if limit is not None:
        texts.append(
            f"time limit {render_duration(limit)}"
            + ("" if time_left is None else f", {render_duration(time_left)} left")
        )
    if skew is not None:
        texts.append(f"ranks began within {skew:.2f} s")
    attempt = max((node_state.attempt for node_state in node_states.values() if node_state), default=1)
    return "; ".join(texts + ([f"attempt {attempt}"] if attempt > 1 else []))


def render_last_lines(node_states: Parts) -> Iterator[str]:
    """Give the last line of each rank: `gpu02 r3 | step 1200 loss 0.31`; of many ranks those of the first."""
    with_output = [
        (name, activity)
        for name, node_state in node_states.items()
        if node_state
        for activity in node_state.rank_activity
        if activity.last_line
    ]
    ordered = sorted(with_output, key=lambda pair: pair[1].rank)
    width = max((len(_rank_label(*pair)) for pair in ordered[:MOST_LINES]), default=0)
    for name, activity in ordered[:MOST_LINES]:
        yield f"{_rank_label(name, activity).ljust(width)} | {sanitize(activity.last_line)[:LONGEST_LAST_LINE]}"
    if len(ordered) > MOST_LINES:
        yield f"and {len(ordered) - MOST_LINES} more ranks; --json has all"


def _rank_label(name: str, activity: RankActivity) -> str:
    return f"{name} r{activity.rank}"


def activity_to_json(activity: RankActivity | None, offset: float, now: float) -> dict[str, Any]:
    """Give a rank's signs of life for `status --json`; times by our clock."""
    if activity is None:
        return {"process": None, "last_line": None, "written": None, "stalled": None}
    return {
        "process": activity.process_state or None,
        "last_line": activity.last_line,
        "written": None if activity.written_at is None else round(activity.written_at - offset, 3),
        "stalled": find_stall(activity, now + offset) or None,
    }


_STYLES = {SUCCEEDED: "green", FAILED: "red", FAILED_SETUP: "red", LOST: "red"}

ClockOffsets = Mapping[str, float]  # the nodes' clocks minus ours, in seconds
NO_CLOCK_OFFSETS: ClockOffsets = MappingProxyType({})
LONGEST_DIRECTORY = 60
NO_STALLS: Mapping[Rank, str] = MappingProxyType({})


def show_runs(runs: Mapping[RunId, Parts], viewer: Owner, node_names: Collection[str] = ()) -> None:
    """Print the runs in the order in which they come; one's own are marked; `node_names` are the inventory's."""
    if not runs:
        stdout().print("no runs")
        return
    states = {run_id: name_state(run_id, parts, node_names) for run_id, parts in runs.items()}
    table = _runs_table(runs, viewer, states)
    wide_table = _runs_table(runs, viewer, states, with_directory=True)
    fits = (
        Measurement.get(stdout(), stdout().options.update(max_width=1000), wide_table).maximum
        <= stdout().width
    )
    print_table(stdout(), wide_table if fits else table)


def _runs_table(
    runs: Mapping[RunId, Parts],
    viewer: Owner,
    states: Mapping[RunId, str],
    *,
    with_directory: bool = False,
) -> Table:
    """Draw the runs; where each was launched is left out where there is no room."""
    table = _make_table("run", "state", "nodes", "launched", "by", *(["from"] if with_directory else []))
    for run_id, node_states in runs.items():
        node_state, state = _latest_part(node_states), states[run_id]
        table.add_row(
            Text(sanitize(run_id)),
            Text(state, _state_style(state)) + _render_attempt(node_states),
            _render_nodes(node_states),
            f"{_render_age(node_state.submitted)} ago",
            Text(
                sanitize(node_state.launched_by) + (" (you)" if owner_of(node_states).is_same(viewer) else "")
            ),
            *([Text(render_directory(node_state.launched_from))] if with_directory else []),
        )
    return table


def _render_attempt(node_states: Parts) -> str:
    attempt = max((node_state.attempt for node_state in node_states.values() if node_state), default=1)
    return f", attempt {attempt}" if attempt > 1 else ""


def _render_nodes(node_states: Parts) -> str:
    """Name the nodes, those that take no part at the moment apart."""
    slots = [slot for slot in roster_of(node_states) if slot.node_rank is None]
    status_by_node = {
        slot.node: "spare" if slot.is_idle else "lost" if slot.lost else "unfit" for slot in slots
    }
    texts = [fold_names([name for name in node_states if name not in status_by_node])]
    for status in ("spare", "unfit", "lost"):
        names = [name for name in node_states if status_by_node.get(name) == status]
        texts += [f"{status}: {fold_names(names)}"] if names else []
    return "; ".join(texts)


def show_status(
    run_id: RunId,
    node_states: Parts,
    offsets: ClockOffsets = NO_CLOCK_OFFSETS,
    command: str = "clusterctl",
    node_names: Collection[str] = (),
) -> None:
    """Print one run: its whole state, every node with its ranks, what they said last, and why it failed.

    `node_names` are the nodes of the inventory.
    """
    verdict, console = judge_recorded(run_id, node_states, node_names, offsets), stdout()
    for item in render_status(run_id, node_states, offsets, verdict).renderables:
        console.print(item, soft_wrap=isinstance(item, Text) or not console.is_terminal)
    lines = []
    if verdict is not None and verdict.cause is not None:
        start = f"{state_mark(verdict.state)} "
        width = console.width if console.is_terminal else UNBROKEN
        lines += ["", *render_cause(verdict.cause, run_id, command, width, start)]
    outside = with_outside_files(
        {name: node_state.outside_files for name, node_state in node_states.items() if node_state}
    )
    lines += render_outside_note(outside, run_id, command)
    for (
        line
    ) in lines:  # as `launch` prints them: the terminal breaks long lines, so that they can be copied whole
        console.print(Text(sanitize(line)), soft_wrap=True)


def render_status(
    run_id: RunId,
    node_states: Parts,
    offsets: ClockOffsets = NO_CLOCK_OFFSETS,
    verdict: Verdict | None = None,
) -> Group:
    """Draw one run; `verdict` is what `judge_recorded` has found, None while it lives."""
    node = _latest_part(node_states)
    state = judged_state(verdict, node_states)
    master = sanitize(node.master) or "-"
    about = f"job {sanitize(node.job)}, {describe_launch(node_states)}, world size {node.world_size}, master {master}"
    now = time.time()
    stalls = find_stalls(node_states, offsets, now)
    table = _make_table("node_rank", "node", "state", "since", "ranks", "note")
    ranks, slots = node_ranks(node_states), {slot.node: slot for slot in roster_of(node_states)}
    for name in sorted(node_states, key=lambda name: _node_rank_key(ranks[name])):
        row = _status_row(
            name, node_states[name], stalls.get(name, NO_STALLS), slots.get(name), _judged_loss(name, verdict)
        )
        table.add_row(_render_rank(ranks[name], slots.get(name)), *row)
    stopping = any(part.live and part.stopping for part in node_states.values() if part)
    note = ", being stopped" if stopping and state in LIVE else ""
    head = Text.assemble(sanitize(run_id), "  ", (state, _state_style(state)), note)
    texts = filter(
        None, (about, render_timing(node_states, offsets, now), *render_attempts(attempts_of(node_states)))
    )
    return Group(head, *map(Text, texts), table, *map(Text, render_last_lines(node_states)))


def describe_node(name: str, node: NodeState | None) -> str:
    """Say in one line how a node's part of a run stands."""
    _, state, _, ranks, note = _status_row(name, node)
    return "  ".join(filter(None, (f"{name} {state}", str(ranks), str(note))))


def describe_launch(node_states: Parts) -> str:
    """Say whose a run is: `launched by ann@laptop 3h ago from /home/ann/digits`."""
    node_state = _latest_part(node_states)
    launched_from = f" from {render_directory(node_state.launched_from)}" if node_state.launched_from else ""
    return (
        sanitize(
            f"launched by {node_state.launched_by or 'an unknown user'} {_render_age(node_state.submitted)} ago"
        )
        + launched_from
    )


def describe_run(run_id: str, node_states: Parts, cluster: str) -> list[str]:
    """Say which run is meant, for a question: its state, age and nodes, the cluster, and where it was launched."""
    nodes = _render_nodes(node_states)
    return [
        sanitize(f"{run_id}: {name_state(RunId(run_id), node_states)}, {describe_launch(node_states)}"),
        sanitize(f"  on {nodes} of {cluster}"),
    ]


def render_directory(path: str) -> str:
    """Write the directory that a run was launched from; of a long path the end, which tells more."""
    text = sanitize(path)
    return text if len(text) <= LONGEST_DIRECTORY else f"...{text[3 - LONGEST_DIRECTORY :]}"


def _node_rank_key(node_rank: NodeRank | None) -> int:
    return 1 << 30 if node_rank is None else node_rank


def _render_rank(node_rank: NodeRank | None, slot: SlotState | None) -> str:
    if node_rank is not None:
        return str(node_rank)
    return "?" if slot is None else "spare" if slot.is_idle else "-"


def _judged_loss(name: str, verdict: Verdict | None) -> str:
    """Say why the others lost a node, if they did."""
    return verdict.losses.get(name, "") if verdict is not None else ""


def _status_row(
    name: str,
    node: NodeState | None,
    stalls: Mapping[Rank, str] = NO_STALLS,
    slot: SlotState | None = None,
    loss: str = "",
) -> tuple[str | Text, ...]:
    if node is None and slot is not None and slot.lost:
        return name, Text(LOST, "red"), "", "", Text(sanitize(slot.reason))
    if node is None and loss:
        return name, Text(LOST, "red"), "", "", Text(sanitize(f"{loss}; did not answer"))
    if node is None:
        return name, Text(UNKNOWN, "red"), "", "", "did not answer"
    ranks = "  ".join(f"r{rank.rank} {_describe_rank(rank, live=node.live)}" for rank in node.ranks)
    adds_loss = loss and node.state in (CANCELLED, UNKNOWN)  # else its own reason says why it was lost
    stopping = f"stopping: {node.stopping}" if node.live and node.stopping else ""
    reason = f"{loss}; it reports: {node.reason}" if adds_loss else node.reason
    notes = [reason, stopping, *(f"left: {remaining}" for remaining in node.left_processes)]
    notes += [slot.reason] if slot is not None and slot.reason != node.reason else []
    notes += (
        ["WORLD_SIZE {}, planned {}".format(*node.unplanned_world_size)] if node.unplanned_world_size else []
    )
    notes += [f"r{rank}: {reason}" for rank, reason in stalls.items()]
    notes = [clip(note, LONGEST_LINE) for note in notes]
    return (
        name,
        Text(node.state, _state_style(node.state)),
        _render_age(node.since),
        ranks,
        Text(sanitize("; ".join(filter(None, notes)))),
    )


def _describe_rank(rank: RankState, *, live: bool) -> str:
    if rank.signal is not None:
        return signal_name(rank.signal)
    if rank.exit is not None:
        return "ok" if rank.exit == 0 else f"exit {rank.exit}"
    if rank.stopped and live:
        return "stopped (SIGSTOP)"
    return "running" if live else "?"


def runs_to_json(
    runs: Mapping[RunId, Parts], viewer: Owner, node_names: Collection[str] = ()
) -> dict[str, Any]:
    """Give `ps --json`; `node_names` are the nodes of the inventory."""
    entries = [
        {
            **_run_to_json(run_id, node_states, name_state(run_id, node_states, node_names)),
            "own": owner_of(node_states).is_same(viewer),
        }
        for run_id, node_states in runs.items()
    ]
    return {"schema": 1, "runs": entries}


def status_to_json(
    run_id: RunId,
    node_states: Parts,
    offsets: ClockOffsets = NO_CLOCK_OFFSETS,
    node_names: Collection[str] = (),
) -> dict[str, Any]:
    """Give `status --json`; `node_names` are the nodes of the inventory."""
    ranks, verdict = node_ranks(node_states), judge_recorded(run_id, node_states, node_names, offsets)
    nodes = [
        {
            **_node_to_json(name, ranks[name], node, offsets.get(name, 0.0)),
            **({"state": verdict.node_states[name]} if verdict is not None else {}),
        }
        for name, node in node_states.items()
    ]
    cause = (
        cause_to_json(verdict.cause, run_id) if verdict is not None and verdict.cause is not None else None
    )
    timing = {
        "time_left": _rounded(measure_remaining(node_states, offsets, time.time())),
        "start_skew": _rounded(measure_start_skew(node_states, offsets)),
    }
    return {
        "schema": 1,
        "run": {
            **_run_to_json(run_id, node_states, judged_state(verdict, node_states)),
            **timing,
        },
        "nodes": nodes,
        "cause": cause,
    }


def _run_to_json(run_id: RunId, node_states: Parts, state: str) -> dict[str, Any]:
    node_state = _latest_part(node_states)
    return {
        "run": run_id,
        "job": node_state.job,
        "cluster": node_state.cluster,
        "state": state,
        "attempt": max((node_state.attempt for node_state in node_states.values() if node_state), default=1),
        "attempts": [attempt_to_json(attempt) for attempt in attempts_of(node_states)],
        "nodes": list(node_states),
        "spares": [slot.node for slot in roster_of(node_states) if slot.is_idle],
        "world_size": node_state.world_size,
        "launched_by": node_state.launched_by,
        "launched_from": node_state.launched_from,
        "submitted": node_state.submitted,
    }


def _node_to_json(
    name: str, node_rank: NodeRank | None, node: NodeState | None, offset: float
) -> dict[str, Any]:
    if node is None:
        return {"node": name, "node_rank": node_rank, "state": UNKNOWN, "ranks": []}
    activities = {activity.rank: activity for activity in node.rank_activity}
    return {
        "node": name,
        "node_rank": node_rank,
        "attempt": node.attempt,
        "state": node.state,
        "since": node.since,
        "world_size_seen": node.world_size_seen,
        "torchrun_exit": node.torchrun_exit,
        "reason": node.reason,
        "stopping": node.stopping or None,
        "left": list(node.left_processes),
        "outside": outside_to_json(node.outside_files),
        "ranks": [
            {
                "rank": rank.rank,
                "local_rank": rank.local_rank,
                "exit": rank.exit,
                "signal": rank.signal,
                "stopped": rank.stopped,
                **activity_to_json(activities.get(rank.rank), offset, time.time()),
            }
            for rank in node.ranks
        ],
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 2)


def _latest_part(node_states: Parts) -> NodeState:
    """Return the state of a node that is at the latest attempt: of that, what all have in common is used."""
    return max(
        (node_state for node_state in node_states.values() if node_state is not None),
        key=lambda node_state: node_state.attempt,
    )


def _make_table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def _state_style(state: str) -> str:
    return "cyan" if state in LIVE else _STYLES.get(state, "yellow")


def _render_age(timestamp: float) -> str:
    """Write how long ago something was: 42s, 7m, 3h, 2d."""
    seconds = max(0.0, time.time() - timestamp)
    units: Sequence[tuple[float, str]] = ((86400, "d"), (3600, "h"), (60, "m"))
    unit, letter = next((unit_step for unit_step in units if seconds >= 2 * unit_step[0]), (1.0, "s"))
    return f"{seconds / unit:.0f}{letter}"


class StatusView(Protocol):
    """Shows the parts of a run whenever one of them has changed."""

    def show(self, node_states: Parts) -> None:
        """Show how things stand now."""

    def __enter__(self) -> StatusView:
        """Begin."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the last state on the screen."""


def make_status_view(run_id: RunId, offsets: Mapping[str, float], *, as_json: bool) -> StatusView:
    """Choose how to show a run: NDJSON, a live table, or lines."""
    if as_json:
        return JsonStatusView(run_id, offsets)
    live = sys.stdout.isatty() and uses_color(sys.stdout)
    return LiveStatusView(run_id, offsets) if live else LineStatusView(run_id, offsets)


class _BaseStatusView(ABC):
    def __init__(self, run_id: RunId, offsets: Mapping[str, float]) -> None:
        self._run_id, self._offsets = run_id, offsets

    def __enter__(self) -> _BaseStatusView:
        return self

    def __exit__(  # noqa: B027 - most views have nothing open
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is open."""

    @abstractmethod
    def show(self, node_states: Parts) -> None:
        """Show how things stand now."""


class JsonStatusView(_BaseStatusView):
    """Writes the whole state as one line of JSON, as `status --json` does, whenever it changes."""

    def show(self, node_states: Parts) -> None:
        """Write one line."""
        print(json_text(status_to_json(self._run_id, node_states, self._offsets)), flush=True)


class LineStatusView(_BaseStatusView):
    """Writes one line for each node that has changed: `14:03:05 gpu02 RUNNING  r1 running`."""

    def __init__(self, run_id: RunId, offsets: Mapping[str, float]) -> None:
        super().__init__(run_id, offsets)
        self._written: dict[str, str] = {}

    def show(self, node_states: Parts) -> None:
        """Write what is new."""
        lines = {name: describe_node(name, node_state) for name, node_state in node_states.items()}
        lines[self._run_id] = f"{self._run_id} {name_state(self._run_id, node_states)}"
        for name, line in lines.items():
            if self._written.get(name) != line:
                print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)
        self._written = lines


class LiveStatusView(_BaseStatusView):
    """Redraws the table of `status`; ages go on by themselves."""

    def __init__(self, run_id: RunId, offsets: Mapping[str, float]) -> None:
        super().__init__(run_id, offsets)
        self._parts: Parts = {}
        self._live: Live | None = None

    def __enter__(self) -> LiveStatusView:
        from rich.live import Live

        self._live = Live(console=stdout(), get_renderable=self._render, refresh_per_second=2, transient=True)
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
        if self._parts:
            show_status(self._run_id, self._parts, self._offsets)

    def show(self, node_states: Parts) -> None:
        """Redraw."""
        self._parts = dict(node_states)
        if self._live is not None:
            self._live.refresh()

    def _render(self) -> Group | str:
        if not self._parts:
            return ""
        verdict = judge_recorded(self._run_id, self._parts, offsets=self._offsets)
        return render_status(self._run_id, self._parts, self._offsets, verdict)
