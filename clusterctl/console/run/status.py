"""One run: `status`, once or live; and runs as JSON. The list of runs is in `listing`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

from clusterctl.console.documents.output import write_line
from clusterctl.console.run.remarks import render_outside_note, wrap_remarks
from clusterctl.console.run.verdict import (
    render_alone,
    render_assembled_note,
    render_attempts,
    render_cause,
    render_hang,
    render_suspicion,
    state_mark,
)
from clusterctl.console.terminal import make_table, stdout, uses_color
from clusterctl.console.text import UNBROKEN, ItemsCell, WrappedCell, sanitize, wrap_text
from clusterctl.plans.diagnose.kept import KeptDiagnosis, kept_to_json
from clusterctl.plans.runs.checkpoints import describe_checkpoints
from clusterctl.plans.runs.rows import describe_node, list_node_rows
from clusterctl.plans.runs.speed import SpeedVerdict, speed_to_json
from clusterctl.plans.runs.state import (
    NO_OFFSETS,
    NodeState,
    Parts,
    RankActivity,
    attempts_of,
    find_checkpoints,
    find_resumed,
    find_smaller,
    find_stall,
    find_stalls,
    latest_part,
    measure_remaining,
    measure_start_skew,
    node_ranks,
    roster_of,
    run_seconds,
    stalled_since,
)
from clusterctl.plans.runs.verdict import (
    Verdict,
    alone_to_json,
    attempt_to_json,
    cause_to_json,
    conclude,
    judged_state,
    name_state,
)
from clusterctl.plans.sync.listed_files import with_outside_files
from clusterctl.protocol.ranks import NodeRank, Rank
from clusterctl.protocol.run_id import RunId
from clusterctl.protocol.states import FAILED, FAILED_SETUP, LIVE, LOST, STALLED, SUCCEEDED, UNKNOWN, RunState
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import render_duration, render_seconds
from clusterctl.translation import fill, tr

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

    from clusterctl.console.documents.runs import (
        RankActivityEntry,
        RunEntry,
        RunNode,
        StatusDocument,
    )


MAX_LINES = 16
MAX_LAST_LINE = 160  # characters


def render_timing(node_states: Parts, offsets: Mapping[str, float], now: float) -> str:
    """Return what is known of the whole run: `time limit 12h, 3h20m left; ranks started within 0.02 s`."""
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
    if limit is not None and time_left is not None:
        limit_text, left = render_duration(limit), render_duration(time_left)
        texts.append(tr("time limit {limit}, {left} left", limit=limit_text, left=left))
    elif limit is not None:
        texts.append(tr("time limit {limit}", limit=render_duration(limit)))
    if skew is not None:
        texts.append(tr("ranks started within {seconds:.2f} s", seconds=skew))
    attempt, smaller = latest_part(node_states).attempt, find_smaller(node_states)
    if smaller is not None:
        texts.append(tr("attempt {n} with {nodes} of {of} nodes", n=attempt, **smaller))
    elif attempt > 1:
        texts.append(tr("attempt {n}", n=attempt))
    return tr("; ").join(texts)


def render_checkpoints(node_states: Parts, offsets: Mapping[str, float], now: float) -> list[str]:
    """Return how far the checkpoints are that the nodes keep for each other, and which one is in use; often nothing."""
    text, resumed = (
        describe_checkpoints(find_checkpoints(node_states, offsets), now),
        find_resumed(node_states),
    )
    lines = [tr("checkpoint {text}", text=text)] if text else []
    attempt = latest_part(node_states).attempt
    return lines + ([tr("attempt {n} resumed from {name}", n=attempt, name=resumed)] if resumed else [])


def render_last_lines(node_states: Parts) -> Iterator[str]:
    """Yield the last line of each rank: `gpu02 r3 | step 1200 loss 0.31`; of many ranks those of the first."""
    with_output = [
        (name, activity)
        for name, node_state in node_states.items()
        if node_state
        for activity in node_state.rank_activity
        if activity.last_line
    ]
    ordered = sorted(with_output, key=lambda pair: pair[1].rank)
    width = max((len(_rank_label(*pair)) for pair in ordered[:MAX_LINES]), default=0)
    for name, activity in ordered[:MAX_LINES]:
        yield f"{_rank_label(name, activity).ljust(width)} | {sanitize(activity.last_line)[:MAX_LAST_LINE]}"
    if len(ordered) > MAX_LINES:
        yield tr("and {n} more ranks; --json has all", n=len(ordered) - MAX_LINES)


def _rank_label(name: str, activity: RankActivity) -> str:
    return f"{name} r{activity.rank}"


def activity_to_json(activity: RankActivity | None, offset: float, now: float) -> RankActivityEntry:
    """Return a rank's signs of life for `status --json`; times by our clock."""
    if activity is None:
        return {"process": None, "last_line": None, "written": None, "stalled": None}
    return {
        "process": activity.process_state or None,
        "last_line": activity.last_line,
        "written": None if activity.written_at is None else round(activity.written_at - offset, 3),
        "stalled": find_stall(activity, now + offset) or None,
    }


_STYLES = {SUCCEEDED: "green", FAILED: "red", FAILED_SETUP: "red", LOST: "red"}

MAX_DIRECTORY = 60  # characters


def render_nodes(node_states: Parts) -> str:
    """Name the nodes, those that take no part at the moment apart."""
    slots = [slot for slot in roster_of(node_states) if slot.node_rank is None]
    names_by_status = {
        tr("spare: {nodes}"): [slot.node for slot in slots if slot.is_idle],
        tr("cannot take part: {nodes}"): [slot.node for slot in slots if not slot.is_idle and not slot.lost],
        tr("lost: {nodes}"): [slot.node for slot in slots if slot.lost],
    }
    absent = {slot.node for slot in slots}
    texts = [fold_names([name for name in node_states if name not in absent])]
    for text, nodes in names_by_status.items():
        names = [name for name in node_states if name in nodes]
        texts += [fill(text, {"nodes": fold_names(names)})] if names else []
    return tr("; ").join(texts)


def show_status(
    run_id: RunId,
    node_states: Parts,
    offsets: Mapping[str, float] = NO_OFFSETS,
    command: str = "clusterctl",
    node_names: Collection[str] = (),
    hang: KeptDiagnosis | None = None,
    speed: SpeedVerdict | None = None,
) -> None:
    """Print one run: its whole state, why it failed or stalled, every node with its ranks, and their last lines.

    `node_names` are the nodes of the inventory.
    """
    from rich.text import Text

    verdict, console = conclude(run_id, node_states, node_names, offsets), stdout()
    width = console.width if console.is_terminal else UNBROKEN

    def print_lines(lines: Sequence[str]) -> None:
        """Print as `launch` does: the terminal breaks long lines, so that they can be copied whole."""
        for line in lines:
            console.print(Text(sanitize(line)), soft_wrap=True)

    head, *rest = render_status(run_id, node_states, offsets, verdict, speed).renderables
    console.print(head, soft_wrap=True)
    print_lines(_render_why(verdict, hang, run_id, command, width))
    for item in rest:
        console.print(item, soft_wrap=isinstance(item, Text) or not console.is_terminal)
    outside = with_outside_files(
        {name: node_state.outside_files for name, node_state in node_states.items() if node_state}
    )
    if verdict is not None:
        print_lines(wrap_remarks([*render_suspicion(verdict), *render_assembled_note(verdict)], width))
    print_lines(render_outside_note(outside, run_id, command, width))


def _render_why(
    verdict: Verdict | None, hang: KeptDiagnosis | None, run_id: RunId, command: str, width: int
) -> list[str]:
    """Return the lines that explain why a run failed or stalled, and an empty line after them."""
    lines: list[str] = []
    if verdict is not None and verdict.cause is not None:
        lines += render_cause(verdict.cause, run_id, command, width, f"{state_mark(verdict.state)} ")
    elif verdict is not None:
        lines += render_alone(verdict, command, width)
    if hang is not None:
        lines += render_hang(hang, width, command)
    return [*lines, ""] if lines else []


def render_status(
    run_id: RunId,
    node_states: Parts,
    offsets: Mapping[str, float] = NO_OFFSETS,
    verdict: Verdict | None = None,
    speed: SpeedVerdict | None = None,
) -> Group:
    """Draw one run; `verdict` is what `conclude` has found, None while it lives."""
    from rich.console import Group
    from rich.text import Text

    node = latest_part(node_states)
    state = judged_state(verdict, node_states)
    about = tr(
        "job {job}, {ranks} ranks, {launch}, master {master}",
        job=sanitize(node.job),
        ranks="?" if node.world_size is None else node.world_size,
        launch=describe_launch(node_states),
        master=sanitize(node.master) or "-",
    )
    staged = tr("staged {sources}", sources=sanitize(node.staged))
    now, console = time.time(), stdout()
    width = console.width if console.is_terminal else UNBROKEN
    stopping = any(part.live and part.stopping for part in node_states.values() if part)
    head = Text.assemble(sanitize(run_id), "  ", (f"{state_mark(state)} {state}", state_style(state)))
    if stopping and state in LIVE:
        head.append(tr(", being stopped"))
    if state == STALLED and (since := stalled_since(node_states)) is not None:
        head.append(tr("   no progress for {span}", span=render_age(since)))
    if (seconds := run_seconds(node_states, now, offsets)) is not None:
        head.append(tr("   ran {span}", span=render_seconds(seconds)))
    texts = filter(
        None,
        (
            *wrap_text(about, width, indent="  "),
            *(wrap_text(staged, width, indent="  ") if node.staged else ()),
            render_timing(node_states, offsets, now),
            *render_attempts(attempts_of(node_states)),
            *wrap_remarks(map(sanitize, render_checkpoints(node_states, offsets, now)), width),
            *(wrap_remarks([sanitize(speed.sentence)], width) if speed is not None else ()),
        ),
    )
    table = _make_nodes_table(node_states, find_stalls(node_states, offsets, now), verdict)
    return Group(head, *map(Text, texts), table, *map(Text, render_last_lines(node_states)))


def _make_nodes_table(
    node_states: Parts, stalls: Mapping[str, Mapping[Rank, str]], verdict: Verdict | None
) -> Table:
    """Draw the nodes by their ranks."""
    from rich.text import Text

    table = make_table(tr("NODE_RANK"), tr("NODE"), tr("STATE"), tr("SINCE"), tr("RANKS"), tr("NOTE"))
    for row in list_node_rows(node_states, stalls, verdict, render_age):
        style = "red" if row.state in (LOST, UNKNOWN) else state_style(row.state)
        table.add_row(
            row.node_ranks,
            row.nodes,
            Text(row.state, style),
            row.since,
            ItemsCell([f"r{cell.numbers} {cell.state}" for cell in row.ranks]),
            WrappedCell(sanitize(row.note)),
        )
    return table


def describe_launch(node_states: Parts) -> str:
    """Return whose a run is: `launched by ann@laptop 3h ago from /home/ann/digits`."""
    node_state = latest_part(node_states)
    facts = {
        "user": sanitize(node_state.launched_by) or tr("an unknown user"),
        "age": render_age(node_state.submitted),
    }
    if not node_state.launched_from:
        return tr("launched by {user} {age} ago", **facts)
    directory = render_directory(node_state.launched_from)
    return tr("launched by {user} {age} ago from {directory}", directory=directory, **facts)


def describe_run(run_id: str, node_states: Parts, cluster: str) -> list[str]:
    """Return which run is meant, for a question: its state, age and nodes, the cluster, and where it was launched."""
    state, nodes = name_state(RunId(run_id), node_states), render_nodes(node_states)
    return [
        sanitize(
            tr("{run}: {state}, {launch}", run=run_id, state=state, launch=describe_launch(node_states))
        ),
        sanitize(tr("  on {nodes} of {cluster}", nodes=nodes, cluster=cluster)),
    ]


def render_directory(path: str) -> str:
    """Write the directory that a run was launched from; of a long path the end, which distinguishes more."""
    text = sanitize(path)
    return text if len(text) <= MAX_DIRECTORY else f"...{text[3 - MAX_DIRECTORY :]}"


def status_to_json(
    run_id: RunId,
    node_states: Parts,
    offsets: Mapping[str, float] = NO_OFFSETS,
    node_names: Collection[str] = (),
    hang: KeptDiagnosis | None = None,
    speed: SpeedVerdict | None = None,
) -> StatusDocument:
    """Return the document of `status --json`; `node_names` are the nodes of the inventory."""
    ranks, verdict = node_ranks(node_states), conclude(run_id, node_states, node_names, offsets)
    nodes = [
        _node_to_json(name, ranks[name], node, offsets.get(name, 0.0)) for name, node in node_states.items()
    ]
    if verdict is not None:
        for entry in nodes:
            entry["state"] = verdict.node_states[entry["node"]]
    cause = (
        cause_to_json(verdict.cause, run_id) if verdict is not None and verdict.cause is not None else None
    )
    return {
        "schema": 1,
        "run": {
            **run_to_json(run_id, node_states, judged_state(verdict, node_states)),
            "time_left": _rounded(measure_remaining(node_states, offsets, time.time())),
            "start_skew": _rounded(measure_start_skew(node_states, offsets)),
            "checkpoints": [asdict(checkpoint) for checkpoint in find_checkpoints(node_states, offsets)],
            "resumed": find_resumed(node_states) or None,
        },
        "nodes": nodes,
        "cause": cause,
        "alone": alone_to_json(verdict.alone) if verdict is not None and verdict.alone else None,
        "hang": None if hang is None else kept_to_json(hang),
        "speed": None if speed is None else speed_to_json(speed),
    }


def run_to_json(run_id: RunId, node_states: Parts, state: RunState) -> RunEntry:
    """Return what `ps --json` and `status --json` have of a run as a whole."""
    node_state = latest_part(node_states)
    return {
        "run": run_id,
        "job": node_state.job,
        "cluster": node_state.cluster,
        "state": state,
        "attempt": node_state.attempt,
        "attempts": [attempt_to_json(attempt) for attempt in attempts_of(node_states)],
        "smaller": find_smaller(node_states),
        "nodes": list(node_states),
        "spares": [slot.node for slot in roster_of(node_states) if slot.is_idle],
        "world_size": node_state.world_size,
        "launched_by": node_state.launched_by,
        "launched_from": node_state.launched_from,
        "staged": node_state.staged,
        "submitted": node_state.submitted,
    }


def _node_to_json(name: str, node_rank: NodeRank | None, node: NodeState | None, offset: float) -> RunNode:
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
        "halted": [asdict(halted) for halted in node.halted],
        "left": list(node.left_processes),
        "outside": None if (files := node.outside_files) is None else asdict(files),
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


def state_style(state: str) -> str:
    """Choose the colour of a state."""
    return "cyan" if state in LIVE and state != STALLED else _STYLES.get(state, "yellow")


def render_age(timestamp: float) -> str:
    """Write how long ago something was (Unix s), by this machine's clock."""
    return render_duration(time.time() - timestamp)


@contextmanager
def showing_status(
    run_id: RunId, offsets: Mapping[str, float], *, as_json: bool
) -> Iterator[Callable[[Parts], None]]:
    """Yield a function that shows the parts of a run at each change: as NDJSON, a live table, or lines."""
    if as_json:
        yield lambda parts: write_line(status_to_json(run_id, parts, offsets))
    elif sys.stdout.isatty() and uses_color(sys.stdout):
        with _showing_table(run_id, offsets) as show:
            yield show
    else:
        with showing_lines(run_id) as show:
            yield show


@contextmanager
def showing_lines(run_id: RunId) -> Iterator[Callable[[Parts], None]]:
    """Write one line for each node that has changed: `14:03:05 gpu02 RUNNING  r1 running`; last the run's own.

    The first node that has the record of the end shows the run's state; the others may change after that.
    """
    written: dict[str, str] = {}
    last = ""  # whose line was written last

    def write(name: str, line: str) -> None:
        nonlocal last
        last = name
        written[name] = line
        print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)

    def show(parts: Parts) -> None:
        for name, part in parts.items():
            if written.get(name) != (line := sanitize(describe_node(name, part, render_age))):
                write(name, line)
        line = f"{run_id} {name_state(run_id, parts)}"
        if written.get(run_id) != line:
            write(run_id, line)

    yield show
    if last not in ("", run_id):
        write(run_id, written[run_id])


@contextmanager
def _showing_table(run_id: RunId, offsets: Mapping[str, float]) -> Iterator[Callable[[Parts], None]]:
    """Redraw the table of `status`; ages go on by themselves. At the end it stays as `status` shows it."""
    from rich.live import Live

    newest: Parts = {}

    def render() -> Group | str:
        if not newest:
            return ""
        return render_status(run_id, newest, offsets, conclude(run_id, newest, offsets=offsets))

    def show(parts: Parts) -> None:
        nonlocal newest
        newest = dict(parts)
        live.refresh()

    live = Live(console=stdout(), get_renderable=render, refresh_per_second=2, transient=True)
    try:
        with live:
            yield show
    finally:
        if newest:
            show_status(run_id, newest, offsets)
