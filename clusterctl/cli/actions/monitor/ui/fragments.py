"""The parts of the page as HTML, drawn as those of a report; every text in them is escaped there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from clusterctl.cli.actions.monitor.ui.feed import FOLD, View
from clusterctl.cli.context.nodes import as_bug
from clusterctl.client.run_evidence import ranks_of
from clusterctl.console.errors import render_error
from clusterctl.console.run.hang import describe_asked, list_gpu_lines
from clusterctl.console.run.verdict import state_mark
from clusterctl.console.text import sanitize
from clusterctl.errors import ClusterctlError
from clusterctl.plans.report.charts import render_fold, render_machines
from clusterctl.plans.report.markup import NOTHING, Child, Html, element, join
from clusterctl.plans.report.numbers import OVER_TIME, render_numbers
from clusterctl.plans.report.page import render_facts
from clusterctl.plans.report.reported_run import ReportedRun, make_scale
from clusterctl.plans.report.result import render_result
from clusterctl.plans.report.sections import list_facts, render_ranks, render_sentence, state_chip
from clusterctl.plans.report.timeline import render_timeline
from clusterctl.protocol.run_paths import short_id
from clusterctl.protocol.states import LIVE, STALLED
from clusterctl.specs.nodeset import fold_names
from clusterctl.translation import tr, trn

if TYPE_CHECKING:
    from clusterctl.cli.actions.monitor.status import Diagnosis
    from clusterctl.plans.runs.rows import NodeRow, RankCell

MAX_ROWS = 60
MAX_CELLS = 64  # ranks of one row
MAX_SOUGHT = 200  # characters


def _table(headings: Iterable[str], rows: Sequence[Html], class_: str | None = None) -> Html:
    head = element("tr", *(element("th", text, scope="col") for text in headings))
    table = element("table", element("thead", head), element("tbody", *rows), class_=class_)
    return element("div", table, class_="scroll", tabindex="0")


def render_away(errors: Iterable[ClusterctlError]) -> Html:
    """Name the nodes that do not answer."""
    by_reason: dict[str, list[str]] = {}
    for error in errors:
        by_reason.setdefault(f"{error.code} {error.message}", []).append(error.node or "?")
    lines = [
        element("p", tr("{nodes}: no answer: {reason}", nodes=fold_names(nodes), reason=sanitize(reason)))
        for reason, nodes in by_reason.items()
    ]
    return element("div", *lines, class_="warn") if lines else NOTHING


def describe_failure(error: Exception) -> ClusterctlError:
    """Return an error with a code; another is a bug."""
    return error if isinstance(error, ClusterctlError) else as_bug(error)


def render_problem(failure: Exception) -> Html:
    """Show an error as a terminal does."""
    error = describe_failure(failure)
    return element("div", render_lines([sanitize(line) for line in render_error(error)]), class_="bad")


def render_missing(run_id: str) -> Html:
    """Report that there is no such run any more, with a way back; the page then has no log and no buttons."""
    text = tr("{run} is not on these nodes: it was removed, or never was there.", run=sanitize(run_id))
    return element("div", element("p", text), element("p", _link_back()), data_missing="yes", class_="empty")


def _link_back() -> Html:
    return element("a", tr("All runs"), href="#")


def render_lines(lines: Sequence[str]) -> Html:
    """Draw lines below each other."""
    return element("div", *(element("div", line) for line in lines), class_="mono lines")


def render_summary(run: ReportedRun, timing: str, question: Sequence[str]) -> Html:
    """Draw the result and its cause, and what else is to be noted; the question before it is stopped goes with it."""
    remarks = element("div", render_lines(run.remarks), class_="warn") if run.remarks else None
    job = run.latest.job if run.latest else ""
    return element(
        "div",
        render_result(run, copies=True),
        element("p", timing, class_="faint") if timing else None,
        remarks,
        element("div", render_lines([*question, tr("Stop it?")]), class_="question", hidden=""),
        data_live="yes" if run.state in LIVE else None,
        data_title=f"{state_mark(run.state)} {run.state} {job} {short_id(run.run_id)}",
    )


def render_culprit(run: ReportedRun) -> Html:
    """Name whose lines show the cause of a failure, and a line to look for; nothing if no rank is known."""
    cause = run.verdict.cause if run.verdict else None
    if cause is None or cause.failure.rank is None or run.state in LIVE:
        return NOTHING
    failure = cause.failure
    text = failure.message.splitlines()[0] if failure.message else ""
    return element(
        "i", hidden="", data_node=failure.node, data_rank=failure.rank, data_text=sanitize(text)[:MAX_SOUGHT]
    )


def render_nodes(rows: Sequence[NodeRow]) -> Html:
    """Draw nodes by ranks; of many nodes those that are alike share a row."""
    drawn = [
        element(
            "tr",
            element("td", row.node_ranks),
            element("td", row.nodes),
            element("td", state_chip(STALLED if row.is_stalled else row.state, is_cause=row.is_cause)),
            element("td", row.since),
            element("td", *_cells(row.ranks)),
            element("td", row.note),
        )
        for row in rows[:MAX_ROWS]
    ]
    headings = (tr("NODE_RANK"), tr("NODE"), tr("STATE"), tr("SINCE"), tr("RANKS"), tr("NOTE"))
    more = len(rows) - MAX_ROWS
    note = element("p", trn("and {n} more row", "and {n} more rows", more)) if more > 0 else None
    return join([_table(headings, drawn, "nodes"), note])


def _cells(ranks: Sequence[RankCell]) -> list[Child]:
    cells: list[Child] = [
        element("span", f"r{cell.numbers} {cell.state}", class_=f"cell {cell.kind}".strip())
        for cell in ranks[:MAX_CELLS]
    ]
    more = len(ranks) - MAX_CELLS
    return [*cells, trn("and {n} more rank", "and {n} more ranks", more)] if more > 0 else cells


def render_plots(run: ReportedRun) -> tuple[dict[str, Html], dict[str, Html]]:
    """Draw by place the numbers of the run, the machines, the timeline and what the run is, as a report does.

    The second are what the page gets once a person opens it: plots over the time, further ones of the machines.
    """
    scale = replace(make_scale(run), has_script=True)
    numbers, over_time = render_numbers(run.records, scale)
    machines, folds = render_machines(run, scale)
    machines += [render_fold(fold, is_sent=False) for fold in folds]
    shown = {
        "numbers": numbers,
        "node-plots": _section(tr("Machines"), *machines),
        "timeline": _section(tr("Timeline"), render_timeline(run, scale)),
        "about": _section(tr("About the run"), render_facts(list_facts(run))),
    }
    return shown, {OVER_TIME: over_time, **{fold.name: fold.content for fold in folds}}


def publish_plots(view: View, run: ReportedRun) -> None:
    """Show the plots; what is folded comes first, so that a page may ask for it as soon as it has the fold."""
    shown, folds = render_plots(run)
    view.publish_rows(FOLD, folds)
    for name, html in shown.items():
        view.publish(name, html)


def _section(title: str, *content: Child) -> Html:
    return join([element("h3", title), *content]) if any(content) else NOTHING


def render_diagnosis(diagnosis: Diagnosis, asked_at: str, command: str) -> Html:
    """Draw what `diagnose --stacks` prints: the sentence, a row for ranks that are alike, and the stacks."""
    answers, judgement = diagnosis.answers, diagnosis.judgement
    asked, *notes = describe_asked(answers)
    details = [f"{asked_at} {asked}", *notes, *list_gpu_lines(diagnosis.gpus)]
    return element(
        "div",
        *render_sentence(judgement, command),
        *render_ranks(ranks_of(answers), judgement, opens=False),
        element("div", *(element("p", line) for line in details), class_="faint"),
        render_away(answers.errors.values()),
    )
