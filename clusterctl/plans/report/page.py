"""The page: of one run, or of two side by side; the result and its cause come first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from clusterctl.plans.report.axes import render_time
from clusterctl.plans.report.charts import render_fold, render_machines
from clusterctl.plans.report.comparison import render_comparison
from clusterctl.plans.report.markup import (
    STYLE,
    Child,
    Html,
    document,
    element,
    hide_secrets,
    join,
    join_lines,
    table,
)
from clusterctl.plans.report.numbers import render_scalars
from clusterctl.plans.report.plot import Scale
from clusterctl.plans.report.reported_run import ReportedRun, find_moments, make_scale
from clusterctl.plans.report.result import render_head, render_result
from clusterctl.plans.report.sections import Facts, list_facts, render_ranks, render_slowness, state_chip
from clusterctl.plans.report.timeline import render_timeline
from clusterctl.plans.runs.history import Launched, NodeRecord
from clusterctl.plans.runs.state import NodeState, RankState
from clusterctl.protocol.exit_status import signal_name
from clusterctl.protocol.run_paths import short_id
from clusterctl.protocol.states import FAILED, RUNNING, STOPPED, SUCCEEDED
from clusterctl.specs.nodeset import fold_names, group_values
from clusterctl.specs.text import as_in_project, command_line
from clusterctl.translation import language, tr, trn

MAX_STARTED = 10  # different commands of nodes
MAX_RANKS = 48  # with their last lines
MAX_LINES = 12
MAX_MOMENTS = 8  # that are not folded


def render_report(run: ReportedRun, other: ReportedRun | None, command: str, secrets: Iterable[str]) -> str:
    """Return the file; `command` is how commands on it begin."""
    title = tr("run {run}", run=short_id(run.run_id))
    if other is None:
        body = element("main", *render_run(run, command))
    else:
        title = tr("runs {first} and {second}", first=short_id(run.run_id), second=short_id(other.run_id))
        body = render_comparison(run, other, [render_run(one, command) for one in (run, other)])
    page = document(f"clusterctl: {title}", "zh" if language() == "zh" else "en", STYLE, body)
    return hide_secrets(page, secrets)


def render_run(run: ReportedRun, command: str) -> list[Child]:
    """Return all of a run: its head, why it ended, then what it did and where; what is long is folded."""
    scale = make_scale(run)
    machines, folds = render_machines(run, scale)
    return [
        render_head(run),
        render_result(run),
        _notes(run),
        _section(tr("Where the ranks were"), *render_ranks(run.hang.all_ranks, run.hang.judgement))
        if run.hang
        else None,
        _section(tr("Numbers of the run"), *render_scalars(run.records, scale, f"axis-{run.run_id}")),
        _section(tr("Timeline"), render_timeline(run, scale), _moments(run, scale)),
        _section(tr("Machines"), *machines, *map(render_fold, folds)),
        _section(tr("Slow ranks"), *render_slowness(run.slow, has_sentence=run.speed is None))
        if run.slow
        else None,
        _section(tr("Ranks"), _ranks(run)),
        _section(tr("Findings"), *_list_remarks(run.remarks)),
        _section(tr("About the run"), *_about(run, command)),
    ]


def _list_remarks(remarks: Sequence[str]) -> list[Child]:
    """Return what else a terminal shows of the end, a paragraph for each line."""
    return [element("p", remark) for remark in remarks]


def _section(title: str, *content: Child) -> Html | None:
    kept = [child for child in content if child is not None]
    return element("section", element("h2", title), *kept) if kept else None


def _notes(run: ReportedRun) -> Html | None:
    notes = []
    if not run.has_history:
        notes.append(
            tr(
                "No samples of the machines are on record: an older version launched the run, or it ended at once."
            )
        )
    silent = group_values((reason, name) for name, reason in run.silent.items())
    notes += [
        tr("{nodes}: no record: {reason}", nodes=fold_names(names), reason=why)
        for why, names in silent.items()
    ]
    return element("section", *(element("p", note, class_="warn") for note in notes)) if notes else None


def render_facts(facts: Facts) -> Html:
    """List facts by their names."""
    rows = [element("div", element("dt", name), element("dd", value)) for name, value in facts.items()]
    return element("dl", *rows, class_="facts")


def _moments(run: ReportedRun, scale: Scale) -> Html | None:
    """Return what happened: the first moments as a table, the rest folded."""
    moments = find_moments(run)
    if not moments:
        return None
    headings = (tr("TIME"), tr("NODES"), tr("WHAT"))
    rows = [
        element(
            "tr",
            element("td", render_time(moment.time - scale.begin), class_="mono"),
            element("td", moment.node_names),
            element("td", moment.sentence, class_="bad" if moment.bad else None),
        )
        for moment in moments
    ]
    more = len(rows) - MAX_MOMENTS
    if more <= 0:
        return table(headings, rows)
    summary = element("summary", trn("{n} more moment", "{n} more moments", more))
    rest = element("details", summary, table(headings, rows[MAX_MOMENTS:]), class_="on-paper")
    return join([table(headings, rows[:MAX_MOMENTS]), rest])


def _ranks(run: ReportedRun) -> Html | None:
    """Return how the ranks ended with their last lines: the one that failed open, all others folded."""
    entries = [(rank, part) for part in run.known for rank in part.ranks]
    entries.sort(key=lambda entry: (not run.is_cause(entry[0].rank), not entry[0].failed, entry[0].rank))
    shown = sorted(entries[:MAX_RANKS], key=lambda entry: (not run.is_cause(entry[0].rank), entry[0].rank))
    blocks = [_rank(run, rank, part) for rank, part in shown]
    more = len(entries) - len(shown)
    note = element("p", trn("and {n} more rank", "and {n} more ranks", more), class_="faint")
    return element("div", *blocks, note if more > 0 else None, class_="ranks") if blocks else None


def _rank(run: ReportedRun, rank: RankState, part: NodeState) -> Html:
    output = run.records[part.node].output.get(rank.rank, {}) if part.node in run.records else {}
    lines = [
        element(
            "pre",
            element("span", name, class_="faint"),
            element("br"),
            join_lines(map(as_in_project, output[name][-MAX_LINES:])),
        )
        for name in ("stderr", "stdout")
        if output.get(name)
    ]
    heading: list[Child] = [element("b", f"r{rank.rank}"), " ", part.node, " ", _rank_chip(run, rank, part)]
    if not lines:
        return element("p", *heading)
    is_open = "" if run.is_cause(rank.rank) else None
    return element("details", element("summary", *heading), *lines, open=is_open)


def _rank_chip(run: ReportedRun, rank: RankState, part: NodeState) -> Html:
    """Show how a rank ended; of those that failed only the cause is red."""
    if run.was_stopped(rank.rank):
        return state_chip(STOPPED, text=tr("was stopped"))
    state = FAILED if rank.failed else SUCCEEDED if rank.exit == 0 else RUNNING if part.live else STOPPED
    text = _describe_end(rank.exit, rank.signal, live=part.live)
    return state_chip(state, is_cause=run.is_cause(rank.rank), text=text)


def _describe_end(code: int | None, number: int | None, *, live: bool) -> str:
    if number is not None:
        return signal_name(number)
    if code is not None:
        return "ok" if code == 0 else tr("exit {code}", code=code)
    return tr("running") if live else "?"


def _about(run: ReportedRun, command: str) -> list[Child]:
    """Return folded what a run is, the commands that show more, and what was started on the nodes."""
    name = short_id(run.run_id)
    lines = [command_line(verb, name, command=command) for verb in ("status", "logs", "pull")]
    facts = element("summary", tr("launch, network and versions"))
    blocks: list[Child] = [
        element("details", facts, render_facts(list_facts(run)), class_="on-paper"),
        element("details", element("summary", tr("what shows more")), element("pre", join_lines(lines))),
    ]
    for names, words in _started(run.records):
        summary = element("summary", tr("started on {nodes}", nodes=fold_names(names)))
        blocks.append(element("details", summary, element("pre", words)))
    variables = next((record.launched.env for record in run.records.values() if record.launched.env), {})
    if variables:
        rows = join_lines(f"{name}={value}" for name, value in sorted(variables.items()))
        summary = element("summary", tr("variables, as on the first node"))
        blocks.append(element("details", summary, element("pre", rows)))
    return blocks


def _started(records: Mapping[str, NodeRecord]) -> list[tuple[list[str], str]]:
    """Return what was started, once where it was the same."""
    groups = group_values((_started_on(record.launched), name) for name, record in records.items())
    return [(names, words) for words, names in groups.items() if words][:MAX_STARTED]


def _started_on(launched: Launched) -> str:
    module = [launched.python, "-m", launched.module] if launched.module else []
    return command_line(*module, *launched.argv)
