"""The list of runs that `ps` prints, also as JSON; one run is in `runs`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from clusterctl.console.run.status import (
    render_age,
    render_directory,
    render_nodes,
    run_to_json,
    state_style,
)
from clusterctl.console.run.verdict import state_mark
from clusterctl.console.terminal import is_verbose, make_table, stdout, table_width
from clusterctl.console.text import UNBROKEN, cut_text, sanitize
from clusterctl.node_texts import translate_node_text
from clusterctl.plans.runs.cause import describe_cause
from clusterctl.plans.runs.checkpoints import find_safe
from clusterctl.plans.runs.progress import Progress
from clusterctl.plans.runs.rows import join_ranks
from clusterctl.plans.runs.selection import Owner, owner_of
from clusterctl.plans.runs.state import (
    NO_OFFSETS,
    NodeState,
    Parts,
    find_checkpoints,
    find_progress,
    find_smaller,
    latest_part,
    roster_of,
    run_ended,
    run_seconds,
    stalled_since,
    taking_part,
)
from clusterctl.plans.runs.verdict import Verdict, conclude, judged_state
from clusterctl.protocol.run_id import RunId
from clusterctl.protocol.run_paths import short_id
from clusterctl.protocol.states import LIVE, STALLED, SUCCEEDED, UNKNOWN, RunState
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import render_seconds
from clusterctl.translation import tr, trn

if TYPE_CHECKING:
    from clusterctl.console.documents.runs import ListedRun, PsDocument, WarmProcess

MAX_JOB = 24  # columns
MAX_CAUSE = 100  # characters
MIN_CAUSE = 12  # columns; with less room the causes are left to `status`


@dataclass(frozen=True)
class _Row:
    run_id: RunId
    parts: Parts
    verdict: Verdict | None
    is_own: bool
    offsets: Mapping[str, float] = field(default_factory=dict)

    @property
    def state(self) -> RunState:
        return judged_state(self.verdict, self.parts)


def show_runs(
    runs: Mapping[RunId, Parts],
    viewer: Owner,
    node_names: Collection[str] = (),
    offsets: Mapping[str, float] = NO_OFFSETS,
) -> None:
    """Print the runs in the order in which they come; `node_names` are the inventory's.

    With -v ids, names of nodes and the directory of the launch are shown in full, in a terminal that is too narrow for
    that as a block for each run.
    """
    if not runs:
        stdout().print(tr("no runs on these nodes"))
        return
    rows = _judge_runs(runs, viewer, node_names, offsets)
    console = stdout()
    table = _make_runs_table(rows, None)
    if not is_verbose() and console.is_terminal:
        table = _make_runs_table(
            rows, console.width - table_width(console, _make_runs_table(rows, 0), UNBROKEN) - 2
        )
    elif console.is_terminal and table_width(console, table, UNBROKEN) > console.width:
        for row in rows:
            console.print(_render_block(row))
        return
    console.width = max(
        console.width, table_width(console, table, UNBROKEN)
    )  # a narrow terminal breaks lines, nothing is lost
    console.print(table)


@dataclass(frozen=True)
class RunSummary:
    """A run in the list of the page of `ui`; `cause` may be long.

    Of a live run alone `began` is by our clock, and `quiet_since` when a rank made progress last, if that is too long.
    """

    run_id: RunId
    state: RunState
    job: str
    attempt: int
    nodes: str
    launched_by: str
    is_own: bool
    cause: str
    submitted: float
    began: float | None
    seconds: float | None
    progress: Progress | None
    quiet_since: float | None = None


def summarize_runs(
    runs: Mapping[RunId, Parts],
    viewer: Owner,
    node_names: Collection[str] = (),
    offsets: Mapping[str, float] = NO_OFFSETS,
) -> list[RunSummary]:
    """Sum up each run, in the order in which they come; texts of nodes are harmless in a terminal."""
    return [_summarize(row) for row in _judge_runs(runs, viewer, node_names, offsets)]


def _summarize(row: _Row) -> RunSummary:
    now, part = time.time(), latest_part(row.parts)
    seconds = run_seconds(row.parts, now, row.offsets)
    is_live = row.state in LIVE
    return RunSummary(
        run_id=row.run_id,
        state=row.state,
        job=sanitize(part.job),
        attempt=part.attempt,
        nodes=_count_nodes(row.parts),
        launched_by=tr("you") if row.is_own else sanitize(part.launched_by),
        is_own=row.is_own,
        cause="" if row.state == STALLED else sanitize(_describe_end(row)),
        submitted=part.submitted - row.offsets.get(part.node, 0.0),
        began=now - seconds if is_live and seconds is not None else None,
        seconds=seconds,
        progress=find_progress(row.parts),
        quiet_since=stalled_since(row.parts) if row.state == STALLED else None,
    )


def _judge_runs(
    runs: Mapping[RunId, Parts],
    viewer: Owner,
    node_names: Collection[str],
    offsets: Mapping[str, float] = NO_OFFSETS,
) -> list[_Row]:
    return [
        _Row(
            run_id,
            parts,
            conclude(run_id, parts, node_names, offsets),
            owner_of(parts).is_same(viewer),
            offsets,
        )
        for run_id, parts in runs.items()
    ]


def _make_runs_table(rows: list[_Row], room: int | None) -> Table:
    """Draw the runs; causes are cut to `room` columns, and left out without room."""
    verbose, counts = is_verbose(), Counter(short_id(row.run_id) for row in rows)
    has_cause = room is None or room >= MIN_CAUSE
    headings = [tr("ID"), *run_headings()]
    table = make_table(
        *headings[: None if has_cause else -1], *([tr("FROM")] if verbose else []), no_wrap=True
    )
    for row in rows:
        is_short = not verbose and counts[short_id(row.run_id)] == 1
        *cells, cause = _render_cells(row)
        cells += [Text(cut_text(cause.plain, min(room or MAX_CAUSE, MAX_CAUSE)))] if has_cause else []
        table.add_row(
            Text(sanitize(short_id(row.run_id) if is_short else row.run_id)),
            *cells,
            *([_render_origin(row)] if verbose else []),
        )
    return table


def run_headings() -> list[str]:
    """Return the headings of the list, after that of the ids."""
    return [tr("JOB"), tr("STATE"), tr("NODES"), tr("RAN"), tr("STARTED"), tr("BY"), tr("CAUSE")]


def _render_cells(row: _Row) -> list[Text]:
    """Return what is below the headings."""
    verbose = is_verbose()
    part, seconds = latest_part(row.parts), run_seconds(row.parts, time.time(), row.offsets)
    return [
        Text(sanitize(part.job) if verbose else cut_text(sanitize(part.job), MAX_JOB)),
        Text(f"{state_mark(row.state)} {row.state}", state_style(row.state)) + _render_attempt(row.parts),
        Text(sanitize(render_nodes(row.parts)) if verbose else _count_nodes(row.parts)),
        Text("-" if seconds is None else render_seconds(seconds)),
        Text(tr("{age} ago", age=render_age(part.submitted))),
        Text(tr("you") if row.is_own else sanitize(part.launched_by)),
        Text(sanitize(_describe_end(row))),
    ]


def _render_origin(row: _Row) -> Text:
    return Text(render_directory(latest_part(row.parts).launched_from))


def _render_block(row: _Row) -> Group:
    """Draw a run in full, each fact on a line of its own."""
    job, state, *cells = zip(run_headings(), _render_cells(row), strict=True)
    head = Text.assemble((sanitize(row.run_id), "bold"), "  ", state[1])
    facts = Table.grid(padding=(0, 2, 0, 0))
    for heading, cell in (job, *cells, (tr("FROM"), _render_origin(row))):
        if cell.plain:
            facts.add_row(Text(f"  {heading}", "dim"), cell)
    return Group(head, facts)


def _render_attempt(parts: Parts) -> str:
    attempt = latest_part(parts).attempt
    return tr(", attempt {n}", n=attempt) if attempt > 1 else ""


def _count_nodes(parts: Parts) -> str:
    """Count the nodes that take part and answered: `3/3`, `1/2 +1 spare`, `2/2 of 4` where min_nodes lets it go on."""
    now, smaller = taking_part(parts), find_smaller(parts)
    total = max(len(now), latest_part(parts).nnodes)
    counted = f"{sum(part is not None for part in now.values())}/{total}"
    if smaller is not None:
        counted = tr("{nodes} of {of}", nodes=counted, of=smaller["of"])
    spares = sum(slot.is_idle for slot in roster_of(parts))
    if not spares:
        return counted
    return trn("{nodes} +{n} spare", "{nodes} +{n} spares", spares, nodes=counted)


def _describe_end(row: _Row) -> str:
    """Describe in a few words why a run did not succeed, or what is wrong with a live one."""
    known = [part for part in row.parts.values() if part]
    if row.state in LIVE:
        return _describe_life(row, known)
    if row.state == SUCCEEDED:
        return ""
    why = _describe_cause(row, known)
    return why if not why or stalled_since(row.parts) is None else tr("{cause}; it had stalled", cause=why)


def _describe_cause(row: _Row, known: Sequence[NodeState]) -> str:
    if row.verdict is not None and row.verdict.cause is not None:
        return describe_cause(row.verdict.cause)
    if row.state == UNKNOWN:
        silent = [name for name, part in row.parts.items() if part is None]
        return tr("no answer from {nodes}", nodes=fold_names(silent)) if silent else ""
    return translate_node_text(next((part.reason for part in known if part.reason), ""))


def _describe_life(row: _Row, known: Sequence[NodeState]) -> str:
    if any(part.live and part.stopping for part in known):
        return tr("being stopped")
    since = stalled_since(row.parts)
    return "" if since is None else tr("no progress for {span}", span=render_age(since))


def describe_live_runs(runs: Mapping[RunId, Parts]) -> dict[str, str]:
    """Yield for each node its live run, and which ranks of it: `a017 r0-3`; the newest if there are several."""
    found: dict[str, str] = {}
    for run_id, parts in runs.items():
        for name, part in parts.items():
            if part is not None and part.live and name not in found:
                ranks = join_ranks([str(rank.rank) for rank in part.ranks])
                found[name] = f"{short_id(run_id)} r{ranks}" if ranks else short_id(run_id)
    return found


def runs_to_json(
    runs: Mapping[RunId, Parts],
    viewer: Owner,
    node_names: Collection[str] = (),
    warm: Sequence[WarmProcess] = (),
    offsets: Mapping[str, float] = NO_OFFSETS,
) -> PsDocument:
    """Return the document of `ps --json`; `node_names` are the nodes of the inventory."""
    now = time.time()
    entries: list[ListedRun] = [
        {
            **run_to_json(row.run_id, row.parts, row.state),
            "own": row.is_own,
            "cause": _describe_end(row) or None,
            "ran": run_seconds(row.parts, now, offsets),
            "ended": run_ended(row.parts, offsets),
            "stalled_since": stalled_since(row.parts),
            "checkpoint": find_safe(find_checkpoints(row.parts, offsets)),
        }
        for row in _judge_runs(runs, viewer, node_names, offsets)
    ]
    return {"schema": 1, "runs": entries, "warm": list(warm)}
