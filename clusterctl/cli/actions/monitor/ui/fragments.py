"""The parts of the page as HTML, drawn as those of a report; every text in them is escaped there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from clusterctl.client.run_evidence import ranks_of
from clusterctl.console.errors import render_error
from clusterctl.console.run.hang import describe_asked, list_gpu_lines
from clusterctl.console.run.listing import run_headings
from clusterctl.console.run.verdict import state_mark
from clusterctl.console.text import sanitize
from clusterctl.plans.report.charts import render_machines, render_scalars
from clusterctl.plans.report.markup import NOTHING, Child, Html, element, join, live_document
from clusterctl.plans.report.page import render_facts
from clusterctl.plans.report.reported_run import ReportedRun, make_scale
from clusterctl.plans.report.result import render_head, render_result
from clusterctl.plans.report.sections import list_facts, render_ranks, render_sentence
from clusterctl.plans.report.timeline import render_timeline
from clusterctl.protocol.run_paths import short_id
from clusterctl.protocol.states import LIVE, STALLED, STOPPED, SUCCEEDED
from clusterctl.specs.nodeset import fold_names
from clusterctl.translation import language, tr, trn

if TYPE_CHECKING:
    from clusterctl.cli.actions.monitor.status import Diagnosis
    from clusterctl.errors import ClusterctlError
    from clusterctl.plans.runs.rows import NodeRow, RankCell
    from clusterctl.protocol.run_id import RunId

MAX_RUNS = 100
MAX_ROWS = 60
MAX_CELLS = 64  # ranks of one row


def _kind(state: str) -> str | None:
    if state in LIVE:
        return "warn" if state == STALLED else "live"
    return "good" if state == SUCCEEDED else None if state == STOPPED else "bad"


def _table(headings: Iterable[str], rows: Sequence[Html], class_: str | None = None) -> Html:
    head = element("tr", *(element("th", text, scope="col") for text in headings))
    table = element("table", element("thead", head), element("tbody", *rows), class_=class_)
    return element("div", table, class_="scroll", tabindex="0")


def render_runs(rows: Sequence[tuple[RunId, str, list[str]]]) -> Html:
    """Draw the list of runs, as `ps` prints it."""
    if not rows:
        return element("p", tr("no runs on these nodes"), class_="faint")
    drawn = []
    for run_id, state, (job, shown_state, *cells) in rows[:MAX_RUNS]:
        link = element("a", short_id(run_id), href=f"#{run_id}", class_="mono")
        texts = [element("td", job), element("td", shown_state, class_=_kind(state))]
        drawn.append(element("tr", element("td", link), *texts, *(element("td", cell) for cell in cells)))
    more = len(rows) - MAX_RUNS
    note = element("p", trn("and {n} more run", "and {n} more runs", more)) if more > 0 else None
    return join([_table([tr("ID"), *run_headings()], drawn, "runs"), note])


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


def render_problem(error: ClusterctlError) -> Html:
    """Show an error as a terminal does."""
    return element("div", render_lines([sanitize(line) for line in render_error(error)]), class_="bad")


def render_missing(run_id: str) -> Html:
    """Report that there is no such run, or that it has ended."""
    return element("p", tr("{run} is not on these nodes, or has ended", run=sanitize(run_id)), class_="warn")


def render_lines(lines: Sequence[str]) -> Html:
    """Draw lines below each other."""
    return element("div", *(element("div", line) for line in lines), class_="mono lines")


def render_summary(run: ReportedRun, timing: str, question: Sequence[str]) -> Html:
    """Draw the result and its cause, then what run it is; the question before it is stopped goes with it."""
    about = element("p", timing, class_="faint") if timing else None
    remarks = element("div", render_lines(run.remarks), class_="warn") if run.remarks else None
    return element(
        "div",
        render_head(run, "h2"),
        render_result(run, copies=True),
        about,
        remarks,
        element("div", render_lines([*question, tr("Stop it?")]), class_="question", hidden=""),
        data_live="yes" if run.state in LIVE else None,
        data_title=f"{state_mark(run.state)} {run.state} {short_id(run.run_id)}",
    )


def render_nodes(rows: Sequence[NodeRow]) -> Html:
    """Draw nodes by ranks; of many nodes those that are alike share a row."""
    drawn = [
        element(
            "tr",
            element("td", row.node_ranks),
            element("td", row.nodes),
            element("td", row.state, class_=_kind(row.state)),
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


def render_plots(run: ReportedRun) -> Html:
    """Draw the numbers of the run, the timeline, the machines and what the run is, as a report does."""
    scale = replace(make_scale(run), has_script=True)
    content = _section(tr("Numbers of the run"), *render_scalars(run.records, scale))
    content += _section(tr("Machines"), *render_machines(run, scale))
    content += _section(tr("Timeline"), render_timeline(run, scale))
    content += _section(tr("About the run"), render_facts(list_facts(run)))
    return join(content)


def _section(title: str, *content: Child) -> list[Child]:
    return [element("h3", title), *content] if any(content) else []


def render_diagnosis(diagnosis: Diagnosis, asked_at: str, command: str) -> Html:
    """Draw what `diagnose --stacks` prints: the sentence, a row for ranks that are alike, and the stacks."""
    answers, judgement = diagnosis.answers, diagnosis.judgement
    details = [f"{asked_at} {describe_asked(answers.nodes.values())}", *list_gpu_lines(diagnosis.gpus)]
    return element(
        "div",
        *render_sentence(judgement, command),
        *render_ranks(ranks_of(answers), judgement, opens=False),
        element("div", *(element("p", line) for line in details), class_="faint"),
        render_away(answers.errors.values()),
    )


def render_page(cluster: str) -> str:
    """Draw the page without its contents; its script fills it."""
    texts = {
        "data_connected": tr("live"),
        "data_lost": tr("connection lost; connecting again"),
        "data_busy": tr("too many pages are open; trying again"),
        "data_working": tr("querying the nodes"),
        "data_gap": tr("some lines are left out here"),
        "data_count": tr("{shown} of {all} lines", shown="{shown}", all="{all}"),
    }
    body = [
        element("a", tr("to the contents"), href="#main", class_="skip"),
        element(
            "header",
            element("h1", "clusterctl ", element("span", cluster, class_="faint")),
            element("p", tr("connecting to `clusterctl ui`"), id="connection", role="status", class_="faint"),
        ),
        element("noscript", element("p", tr("This page needs JavaScript."), class_="warn")),
        element(
            "main",
            element("div", id="problem", role="status"),
            element(
                "section",
                element("h2", tr("Runs"), id="list-title"),
                element("div", id="runs"),
                id="list",
                aria_labelledby="list-title",
            ),
            _run_section(),
            _stop_dialog(),
            id="main",
            tabindex="-1",
            **texts,
        ),
    ]
    return live_document(f"{cluster} - clusterctl", "zh" if language() == "zh" else "en", join(body))


def _run_section() -> Html:
    filters = [
        ("rank", tr("rank"), "0-3,7"),
        ("node", tr("node"), "gpu01"),
        ("text", tr("text"), ""),
    ]
    fields = [
        element(
            "label",
            f"{label} ",
            element("input", id=f"filter-{name}", type="text", placeholder=example or None),
        )
        for name, label, example in filters
    ]
    return element(
        "section",
        element("nav", element("a", tr("All runs"), href="#")),
        element("div", id="summary"),
        element(
            "p",
            element("button", tr("Diagnose"), id="diagnose", type="button", disabled=""),
            " ",
            element("button", tr("Stop..."), id="stop", type="button", disabled=""),
            class_="actions",
        ),
        element("div", id="answer", role="status"),
        element("div", id="nodes"),
        element("h3", tr("Log"), id="log-title"),
        element("div", *fields, element("span", id="count", class_="faint"), class_="filters", role="search"),
        element("div", id="lines", role="log", tabindex="0", aria_labelledby="log-title", class_="mono"),
        element("div", id="notices", role="status", class_="faint"),
        element("div", id="plots"),
        id="run",
        hidden="",
    )


def _stop_dialog() -> Html:
    return element(
        "dialog",
        element("div", id="question"),
        element("button", tr("Cancel"), id="keep", type="button", autofocus=""),
        " ",
        element("button", tr("Stop the run"), id="confirm", type="button", class_="danger"),
        id="ask",
        aria_labelledby="question",
    )
