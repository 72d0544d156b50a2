"""Two runs on one page: what differs comes first, then what is equal, folded, and the numbers of both in one plot."""

from __future__ import annotations

from collections.abc import Sequence

from clusterctl.plans.report.charts import choose_scalars, render_scalar_plots, scalar_plot
from clusterctl.plans.report.markup import Child, Html, element, table
from clusterctl.plans.report.plot import Scale
from clusterctl.plans.report.reported_run import ReportedRun, describe_span, make_scale
from clusterctl.plans.report.result import latest_step
from clusterctl.plans.report.sections import Facts, describe_nodes, list_facts, state_chip
from clusterctl.protocol.run_paths import short_id
from clusterctl.translation import tr, trn


def render_comparison(first: ReportedRun, second: ReportedRun, contents: Sequence[Sequence[Child]]) -> Html:
    """Put two runs side by side; `contents` are their own reports, which follow, folded."""
    runs = (first, second)
    facts = [_list_compared(run) for run in runs]
    names = list(dict.fromkeys([*facts[0], *facts[1]]))
    pairs = [(name, facts[0].get(name, ""), facts[1].get(name, "")) for name in names]
    differing = [pair for pair in pairs if pair[1] != pair[2]]
    equal = [pair for pair in pairs if pair[1] == pair[2]]
    labels = name_runs(first, second)
    return element(
        "main",
        element("h1", tr("{first} and {second}", first=labels[0], second=labels[1])),
        element("section", element("h2", tr("What differs")), _heads(runs, labels, differing)),
        _plots(first, second, labels),
        _equal(equal),
        *(
            _full_report(label, run, content)
            for label, run, content in zip(labels, runs, contents, strict=True)
        ),
    )


def name_runs(first: ReportedRun, second: ReportedRun) -> tuple[str, str]:
    """Name two runs by their short ids, and by their jobs where these differ."""
    jobs = [run.latest.job if run.latest else "" for run in (first, second)]
    ids = [short_id(run.run_id) for run in (first, second)]
    if jobs[0] == jobs[1]:
        return ids[0], ids[1]
    return f"{jobs[0]} {ids[0]}".strip(), f"{jobs[1]} {ids[1]}".strip()


def _list_compared(run: ReportedRun) -> Facts:
    """List what is compared; when a run was launched, and its ids, are no differences."""
    latest, step = run.latest, latest_step(run)
    facts: Facts = {
        tr("cause"): run.explanation.headline,
        tr("ran for"): describe_span(run),
        tr("step"): "" if step is None else str(step),
        tr("job"): latest.job if latest else "",
        tr("nodes"): describe_nodes(run),
        **list_facts(run),
    }
    for name in (tr("launched"), tr("ended at")):
        facts.pop(name, None)
    return {name: value for name, value in facts.items() if value}


def _heads(
    runs: Sequence[ReportedRun], labels: Sequence[str], differing: Sequence[tuple[str, str, str]]
) -> Html:
    states = [state_chip(run.state) for run in runs]
    rows = [_row(tr("result"), states[0], states[1]), *(_row(*pair) for pair in differing)]
    return table(("", *labels), rows)


def _row(name: str, first: Child, second: Child) -> Html:
    return element("tr", element("th", name, scope="row"), element("td", first), element("td", second))


def _equal(equal: Sequence[tuple[str, str, str]]) -> Html | None:
    if not equal:
        return None
    rows = [element("div", element("dt", name), element("dd", value)) for name, value, _ in equal]
    summary = element("summary", trn("{n} equal fact", "{n} equal facts", len(equal)))
    return element("details", summary, element("dl", *rows, class_="facts"))


def _plots(first: ReportedRun, second: ReportedRun, labels: Sequence[str]) -> Html | None:
    scale = make_scale(first)
    others = {scalars.name: scalars for scalars in choose_scalars(second.records)}
    shift = scale.begin - make_scale(second).begin
    longest = Scale(scale.begin, max(scale.end, scale.begin + make_scale(second).seconds))
    plots = [
        scalar_plot(
            scalars,
            [(labels[1], others[scalars.name], shift)] if scalars.name in others else (),
            name=labels[0],
        )
        for scalars in choose_scalars(first.records)
    ]
    if not plots:
        return None
    return element("section", element("h2", tr("Numbers of both runs")), render_scalar_plots(plots, longest))


def _full_report(label: str, run: ReportedRun, content: Sequence[Child]) -> Html:
    summary = element("summary", tr("report of {run}", run=label), " ", state_chip(run.state))
    return element("details", summary, element("article", *content))
