"""The page: of one run, or of two side by side; the result and its cause come first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from clusterctl.plans.diagnose.hang import KeptDiagnosis, render_kept
from clusterctl.plans.report.charts import (
    choose_scalars,
    node_plots,
    overview_plots,
    render_timeline,
    scalar_plot,
    unusual_nodes,
)
from clusterctl.plans.report.markup import (
    STYLE,
    Child,
    Html,
    document,
    element,
    hide_secrets,
    join_lines,
    table,
)
from clusterctl.plans.report.plot import Scale, plots_in_rows, render_plot
from clusterctl.plans.report.reported_run import (
    ReportedRun,
    describe_span,
    find_marks,
    find_moments,
    make_scale,
)
from clusterctl.plans.report.sections import (
    Facts,
    list_facts,
    mark_commands,
    render_ranks,
    render_sentence,
    render_slowness,
)
from clusterctl.plans.runs.history import Launched, NodeRecord
from clusterctl.protocol.exit_status import signal_name
from clusterctl.protocol.run_paths import short_id
from clusterctl.protocol.states import LIVE, SUCCEEDED
from clusterctl.specs.nodeset import fold_names, group_values
from clusterctl.specs.text import command_line, render_seconds
from clusterctl.translation import language, tr, trn

MAX_NODES = 10  # with plots of their own; of more the most telling
MAX_RANKS = 48  # with their last lines
MAX_LINES = 12
MAX_ATTEMPTS = 5  # that have ended, in the result


def render_report(run: ReportedRun, other: ReportedRun | None, command: str, secrets: Iterable[str]) -> str:
    """Return the file; `command` is how commands on it begin."""
    title = tr("run {run}", run=short_id(run.run_id))
    if other is None:
        body = element("main", _header(run), render_result(run), *_sections(run, command))
    else:
        title = tr("runs {first} and {second}", first=short_id(run.run_id), second=short_id(other.run_id))
        body = _compare(run, other, command)
    page = document(f"clusterctl: {title}", "zh" if language() == "zh" else "en", STYLE, body)
    return hide_secrets(page, secrets)


def _header(run: ReportedRun) -> Html:
    latest = run.latest
    job = latest.job if latest else ""
    return element(
        "header",
        element("h1", tr("Run {run}", run=run.run_id), class_="mono"),
        element("p", job, class_="faint"),
    )


def render_result(run: ReportedRun) -> Html:
    """Return the state and the cause of its end; of a run that makes no progress first why."""
    kind = "good" if run.state == SUCCEEDED else "" if run.state in LIVE else "bad"
    headline = element("p", element("b", _headline(run), class_=kind or None))
    content: list[Child]
    if run.hang and run.state in LIVE:
        kind = "bad" if run.hang.judgement.hangs else ""
        content = [*_answer(run.hang), element("p", _headline(run))]
    elif run.hang and run.hang.judgement.hangs and not (run.verdict and run.verdict.cause):
        reasons = element("pre", join_lines(run.cause_lines)) if run.cause_lines else None
        content = [headline, *_answer(run.hang), reasons]
    else:
        content = [headline, *_cause(run)]
        content += [element("p", *mark_commands(line)) for line in render_kept(run.hang)] if run.hang else []
    ended = [element("p", mark.label) for mark in find_marks(run) if mark.sign.isdecimal()]
    return element("section", *content, *ended[-MAX_ATTEMPTS:], class_=f"result {kind}".strip())


def _answer(kept: KeptDiagnosis) -> list[Child]:
    """Return what `diagnose` would have shown, and when."""
    return [*render_sentence(kept.judgement), element("p", kept.summary)]


def _cause(run: ReportedRun) -> list[Child]:
    lines = [line.strip() if number == 0 else line for number, line in enumerate(run.cause_lines)]
    if not lines:
        return []
    return [
        element("p", element("b", lines[0])),
        element("pre", join_lines(lines[1:])) if lines[1:] else None,
    ]


def _headline(run: ReportedRun) -> str:
    """Return the state, how long the workers have run, and how often."""
    facts = {"state": run.state, "span": describe_span(run)}
    if not any(part.began for part in run.known):
        return run.state if run.state in LIVE else tr("{state}: {span}", **facts)
    attempt = run.latest.attempt if run.latest else 1
    if attempt > 1 and run.state in LIVE:
        return tr("{state} for {span}, attempt {n}", **facts, n=attempt)
    if attempt > 1:
        return tr("{state} after {span}, attempt {n}", **facts, n=attempt)
    return tr("{state} for {span}", **facts) if run.state in LIVE else tr("{state} after {span}", **facts)


def _sections(run: ReportedRun, command: str) -> list[Child]:
    scale = make_scale(run)
    return [
        _notes(run),
        _section(tr("Where the ranks were"), *render_ranks(run.hang.all_ranks, run.hang.judgement))
        if run.hang
        else None,
        _section(tr("About the run"), render_facts(list_facts(run))),
        _section(tr("Timeline"), render_timeline(run, scale), _moments(run, scale)),
        _scalars(run, scale),
        _machines(run, scale),
        _section(tr("Slow ranks"), *render_slowness(run.slow)) if run.slow else None,
        _section(tr("Findings"), element("pre", join_lines(run.remarks)) if run.remarks else None),
        _section(tr("Ranks"), _ranks(run)),
        _section(tr("Commands"), _commands(run, command)),
    ]


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
    moments = find_moments(run)
    if not moments:
        return None
    rows = [
        element(
            "tr",
            element("td", render_seconds(moment.time - scale.begin), class_="mono"),
            element("td", moment.node_names),
            element("td", moment.sentence, class_="bad" if moment.bad else None),
        )
        for moment in moments
    ]
    return table((tr("TIME"), tr("NODES"), tr("WHAT")), rows)


def _scalars(run: ReportedRun, scale: Scale) -> Html | None:
    chosen = choose_scalars(run.records)
    plots = [render_plot(scalar_plot(scalars), scale) for scalars in chosen]
    cut = any(record.scalars_cut for record in run.records.values())
    note = element("p", tr("Not all of the logs could be read in time."), class_="warn") if cut else None
    return _section(tr("Numbers of the run"), plots_in_rows(plots), note) if plots else None


def _machines(run: ReportedRun, scale: Scale) -> Html | None:
    records = {name: record for name, record in run.records.items() if record.history.times}
    if not records:
        return None
    shown = list(records) if len(records) <= MAX_NODES else _choose_nodes(run, records)
    content: list[Child] = []
    if len(records) > 1:
        plots = [render_plot(plot, scale) for plot in overview_plots(records, scale.begin, scale.end)]
        content += [element("h3", trn("{n} node", "all {n} nodes", len(records))), plots_in_rows(plots)]
    if len(shown) < len(records):
        text = tr("Shown alone: the node of the failure, and the nodes most unlike the others.")
        content.append(element("p", text, class_="faint"))
    for name in shown:
        plots = [render_plot(plot, scale) for plot in node_plots(records[name])]
        content.append(
            element("details", element("summary", element("b", name)), plots_in_rows(plots), open="")
        )
    return _section(tr("Machines"), *content)


def _choose_nodes(run: ReportedRun, records: Mapping[str, NodeRecord]) -> list[str]:
    cause = run.verdict.cause if run.verdict else None
    blamed = [cause.failure.node] if cause and cause.failure.node in records else []
    return list(dict.fromkeys([*blamed, *list(records)[:1], *unusual_nodes(records, MAX_NODES)]))[:MAX_NODES]


def _ranks(run: ReportedRun) -> Html | None:
    cause = run.verdict.cause if run.verdict else None
    entries = [(rank, part) for part in run.known for rank in part.ranks]
    blamed = cause.failure.rank if cause else None
    entries.sort(key=lambda entry: (entry[0].rank != blamed, not entry[0].failed, entry[0].rank))
    shown = sorted(entries[:MAX_RANKS], key=lambda entry: entry[0].rank)
    blocks: list[Child] = []
    for rank, part in shown:
        end = _describe_end(rank.exit, rank.signal, live=part.live)
        output = run.records[part.node].output.get(rank.rank, {}) if part.node in run.records else {}
        heading: list[Child] = [
            element("b", f"r{rank.rank}"),
            " ",
            part.node,
            " ",
            element("span", end, class_="bad" if rank.failed else "faint"),
        ]
        lines: list[Child] = [
            element(
                "pre",
                element("span", name, class_="faint"),
                element("br"),
                join_lines(output[name][-MAX_LINES:]),
            )
            for name in ("stderr", "stdout")
            if output.get(name)
        ]
        is_blamed = rank.rank == blamed or len(entries) <= 4
        blocks.append(
            element("details", element("summary", *heading), *lines, open="" if is_blamed and lines else None)
        )
    if len(entries) > len(shown):
        left = len(entries) - len(shown)
        blocks.append(element("p", trn("and {n} more rank", "and {n} more ranks", left), class_="faint"))
    return element("div", *blocks) if blocks else None


def _describe_end(code: int | None, number: int | None, *, live: bool) -> str:
    if number is not None:
        return signal_name(number)
    if code is not None:
        return "ok" if code == 0 else tr("exit {code}", code=code)
    return tr("running") if live else "?"


def _commands(run: ReportedRun, command: str) -> Html:
    name = short_id(run.run_id)
    lines = [
        command_line("status", name, command=command),
        command_line("logs", name, command=command),
        command_line("pull", name, command=command),
    ]
    blocks: list[Child] = [element("pre", join_lines(lines))]
    for names, words in _started(run.records):
        blocks += [
            element("p", tr("on {nodes}", nodes=fold_names(names)), class_="faint"),
            element("pre", words),
        ]
    variables = next((record.launched.env for record in run.records.values() if record.launched.env), {})
    if variables:
        rows = join_lines(f"{name}={value}" for name, value in sorted(variables.items()))
        summary = element("summary", tr("variables, as on the first node"))
        blocks.append(element("details", summary, element("pre", rows)))
    return element("div", *blocks)


def _started(records: Mapping[str, NodeRecord]) -> list[tuple[list[str], str]]:
    """Return what was started, once where it was the same."""
    groups = group_values((_started_on(record.launched), name) for name, record in records.items())
    return [(names, words) for words, names in groups.items() if words][:MAX_NODES]


def _started_on(launched: Launched) -> str:
    module = [launched.python, "-m", launched.module] if launched.module else []
    return command_line(*module, *launched.argv)


def _compare(first: ReportedRun, second: ReportedRun, command: str) -> Html:
    """Put two runs side by side: what differs is marked, and numbers of both are in the same plots."""
    facts = _with_cause(first), _with_cause(second)
    names = list(dict.fromkeys([*facts[0], *facts[1]]))
    rows = [_compare_row(name, facts[0].get(name, ""), facts[1].get(name, "")) for name in names]
    scale = make_scale(first)
    others = {scalars.name: scalars for scalars in choose_scalars(second.records)}
    shift = scale.begin - make_scale(second).begin
    longest = Scale(scale.begin, max(scale.end, scale.begin + make_scale(second).seconds))
    plots = [
        render_plot(
            scalar_plot(
                scalars, [(tr("second run"), others[scalars.name], shift)] if scalars.name in others else ()
            ),
            longest,
        )
        for scalars in choose_scalars(first.records)
    ]
    return element(
        "main",
        element("h1", tr("Two runs"), class_="mono"),
        element("p", tr("Rows that differ are marked."), class_="faint"),
        table(("", first.run_id, second.run_id), rows),
        _section(tr("Numbers of both runs, from the launch of each"), plots_in_rows(plots))
        if plots
        else None,
        *(
            element("article", element("hr"), _header(run), render_result(run), *_sections(run, command))
            for run in (first, second)
        ),
    )


def _with_cause(run: ReportedRun) -> Facts:
    """List what a run is, and after its result why."""
    hang = run.hang.judgement if run.hang and run.hang.judgement.hangs else None
    cause = run.cause_lines[0].strip() if run.cause_lines else hang.sentence if hang else ""
    facts = list_facts(run)
    head = dict(list(facts.items())[:1])
    return {**head, **({tr("cause"): cause} if cause else {}), **facts}


def _compare_row(name: str, first: str, second: str) -> Html:
    mark = "differs" if first != second else None
    return element(
        "tr", element("th", name, scope="row"), element("td", first), element("td", second), class_=mark
    )
