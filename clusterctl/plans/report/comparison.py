"""Two runs on one page: what differs comes first, then what is equal, folded, and the numbers of both in one plot.

When a run was launched and what it is called are no differences; the id of a run within a value neither.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

from clusterctl.plans.report.axes import format_number
from clusterctl.plans.report.markup import Child, Html, element, hide_named
from clusterctl.plans.report.numbers import choose_scalars, plot_both, render_both_axes
from clusterctl.plans.report.plot import Scale
from clusterctl.plans.report.reported_run import ReportedRun, describe_span, make_scale
from clusterctl.plans.report.result import describe_epoch, describe_step
from clusterctl.plans.report.sections import Facts, describe_nodes, list_facts, state_chip
from clusterctl.plans.runs.history import Launched, pick
from clusterctl.protocol.run_paths import short_id
from clusterctl.protocol.untrusted import MalformedError, parse_object
from clusterctl.specs.text import command_line
from clusterctl.translation import tr, trn

MAX_FILES = 40  # that are named of those that differ
MAX_NUMBERS = 6  # whose last values are compared
_NUMBER = re.compile(r"-?\.?\d")
_WHOLE = re.compile(r"-?\d+\.0")


class Pair(NamedTuple):
    """A fact of both runs; empty where one lacks it."""

    name: str
    first: str
    second: str


class Group(NamedTuple):
    """Facts of one kind; names of arguments and variables are code."""

    title: str
    pairs: list[Pair]
    is_code: bool = False


def render_comparison(first: ReportedRun, second: ReportedRun, contents: Sequence[Sequence[Child]]) -> Html:
    """Put two runs side by side; `contents` are their own reports, which follow, folded."""
    runs, labels = (first, second), name_runs(first, second)
    groups = list_groups(first, second)
    differing = _select(groups, lambda pair: pair.first != pair.second)
    equal = _select(groups, lambda pair: pair.first == pair.second)
    bodies = [_render_result(runs), *map(_render_group, differing), _render_files(first, second)]
    return element(
        "main",
        _render_head(runs, labels),
        element("section", element("h2", tr("What differs")), _table(labels, bodies)),
        _plots(first, second, labels),
        _render_equal(equal),
        element(
            "section",
            element("h2", tr("Both reports")),
            *(_fold_report(*row) for row in zip(labels, runs, contents, strict=True)),
        ),
    )


def _render_head(runs: Sequence[ReportedRun], labels: Sequence[str]) -> Html:
    """Return the title, and what each of the runs is; its whole id and its launch are no differences."""
    title = tr("{first} and {second}", first=labels[0], second=labels[1])
    jobs = {run.latest.job for run in runs if run.latest}
    job = next(iter(jobs)) if len(jobs) == 1 else ""
    lines = [tr("{run}, launched {date}", run=run.run_id, date=run.date(run.began)) for run in runs]
    heading = tr("{subject}: {text}", subject=job, text=title) if job else title
    return element(
        "div",
        element("h1", heading),
        *(element("p", line, class_="mono full-id") for line in lines),
        class_="head",
    )


def name_runs(first: ReportedRun, second: ReportedRun) -> tuple[str, str]:
    """Name two runs by their short ids, and by their jobs where these differ."""
    jobs = [run.latest.job if run.latest else "" for run in (first, second)]
    ids = [short_id(run.run_id) for run in (first, second)]
    if jobs[0] == jobs[1]:
        return ids[0], ids[1]
    return f"{jobs[0]} {ids[0]}".strip(), f"{jobs[1]} {ids[1]}".strip()


def list_groups(first: ReportedRun, second: ReportedRun) -> list[Group]:
    """List all that is compared, what a person has chosen before what follows from it."""
    launched = [_launched(first), _launched(second)]
    known = [dict(list_facts(run)) for run in (first, second)]
    for facts in known:
        for name in (tr("launched"), tr("ended at")):
            facts.pop(name, None)
    variables, keys = ([launch.env for launch in launched], [_list_keys(launch) for launch in launched])
    arguments = [_list_arguments(launch) for launch in launched]
    return [
        Group("", _pair(_list_outcome(first), _list_outcome(second))),
        Group(tr("arguments"), _pair(*_without_ids(arguments, (first, second))), is_code=True),
        Group(tr("variables"), _pair(*_without_ids(variables, (first, second))), is_code=True),
        Group(tr("job"), _pair(*_without_ids(keys, (first, second))), is_code=True),
        Group(tr("machines and versions"), _pair(known[0], known[1])),
    ]


def _launched(run: ReportedRun) -> Launched:
    """Return what was started on the first node that has it on record."""
    return next((record.launched for record in run.records.values() if record.launched.argv), Launched())


def _list_outcome(run: ReportedRun) -> Facts:
    facts: Facts = {
        tr("cause"): _name_cause(run),
        tr("ran for"): describe_span(run),
        tr("epoch"): describe_epoch(run),
        tr("step"): describe_step(run),
        tr("job"): run.latest.job if run.latest else "",
        tr("nodes"): describe_nodes(run),
        tr("speed"): run.speed.text if run.speed else "",
    }
    for scalars in choose_scalars(run.records)[:MAX_NUMBERS]:
        known = [point.value for point in scalars.points if point.value is not None]
        facts[scalars.name] = tr("{value} at the end", value=format_number(known[-1])) if known else ""
    return facts


def _name_cause(run: ReportedRun) -> str:
    """Return why a run ended or makes no progress, in a line."""
    hang = run.hang.judgement if run.hang and run.hang.judgement.hangs else None
    return run.explanation.headline or (hang.sentence if hang else "".join(run.explanation.reasons[:1]))


def _list_keys(launched: Launched) -> dict[str, str]:
    """Return the keys of the job; what is a mapping has a line for each of its keys."""
    found: dict[str, str] = {}
    for name, text in launched.job.items():
        try:
            inner = parse_object(text.encode("utf-8")) if text.startswith("{") else None
        except MalformedError:
            inner = None
        values = {name: text} if inner is None else inner.as_object()
        for key, value in values.items():
            shown = value if isinstance(value, str) else json.dumps(value)
            is_whole = _WHOLE.fullmatch(shown) is not None
            found[name if inner is None else f"{name}.{key}"] = shown[:-2] if is_whole else shown
    return found


def _list_arguments(launched: Launched) -> dict[str, str]:
    """Return the program with its options and their values: `--lr` and `0.1`; of several alike all values.

    The options of torchrun, which stand before a `--`, are ours.
    """
    found: dict[str, list[str]] = {}
    words = list(launched.argv)
    if launched.module and "--" in words:
        words = words[words.index("--") + 1 :]
    program = list(takewhile(lambda word: not _is_option(word), words))
    rest = words[len(program) :]
    name = ""
    for word in rest:
        if _is_option(word):
            name, has_value, value = word.partition("=")
            found.setdefault(name, []).extend([value] if has_value else [])
        else:
            found[name].append(word)
    start = {tr("program"): command_line(*program)} if program else {}
    return {**start, **{name: command_line(*values) or tr("set") for name, values in found.items()}}


def _is_option(word: str) -> bool:
    return len(word) > 1 and word.startswith("-") and not _NUMBER.match(word)


def _without_ids(values: Sequence[Mapping[str, str]], runs: Sequence[ReportedRun]) -> list[dict[str, str]]:
    """Write `<run>` for the id of a run in its own values."""
    return [
        {name: value.replace(run.run_id, "<run>") for name, value in own.items()}
        for own, run in zip(values, runs, strict=True)
    ]


def _pair(first: Mapping[str, str], second: Mapping[str, str]) -> list[Pair]:
    names = dict.fromkeys([*first, *second])
    pairs = [Pair(name, first.get(name, ""), second.get(name, "")) for name in names]
    return [pair for pair in pairs if pair.first or pair.second]


def _select(groups: Sequence[Group], matches: Callable[[Pair], bool]) -> list[Group]:
    kept = [group._replace(pairs=[pair for pair in group.pairs if matches(pair)]) for group in groups]
    return [group for group in kept if group.pairs]


def _table(labels: Sequence[str], bodies: Sequence[Html | None]) -> Html:
    cells = [element("th", label, scope="col") for label in labels]
    head = element("thead", element("tr", element("td"), *cells))
    return element("div", element("table", head, *bodies, class_="compared"), class_="scroll", tabindex=0)


def _render_result(runs: Sequence[ReportedRun]) -> Html:
    cells = [element("td", state_chip(run.state)) for run in runs]
    return element("tbody", element("tr", element("th", tr("result"), scope="row"), *cells))


def _render_group(group: Group) -> Html:
    """Return the facts of a kind below its name, if it has one."""
    title = element("tr", element("th", group.title, scope="rowgroup", colspan=3, class_="group"))
    rows = []
    for pair in group.pairs:
        name: Child = element("code", pair.name) if group.is_code else pair.name
        values = [_show(group, pair, value) or "-" for value in (pair.first, pair.second)]
        cells = [element("td", element("code", value) if group.is_code else value) for value in values]
        rows.append(element("tr", element("th", name, scope="row"), *cells))
    return element("tbody", title if group.title else None, *rows)


def _show(group: Group, pair: Pair, value: str) -> str:
    """Return a value as it is shown: whether secrets differ is known, but not what they are."""
    return hide_named(pair.name, value) if group.is_code else value


def compare_code(first: Mapping[str, str], second: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the files that differ, each with what became of it from the first run to the second."""
    changes = []
    for path in sorted({*first, *second}):
        if path not in first:
            changes.append((path, tr("added")))
        elif path not in second:
            changes.append((path, tr("removed")))
        elif first[path] != second[path]:
            changes.append((path, tr("changed")))
    return changes


def _render_files(first: ReportedRun, second: ReportedRun) -> Html | None:
    """Name the files of the code that differ, where both trees are on record; without them the hashes do."""
    trees = [_find_code(run) for run in (first, second)]
    if trees[0] is None or trees[1] is None:
        return None
    changes = compare_code(trees[0], trees[1])
    if not changes:
        return None
    title = trn("{n} file of the code", "{n} files of the code", len(changes))
    rows = [
        element("tr", element("th", element("code", path), scope="row"), element("td", what, colspan=2))
        for path, what in changes[:MAX_FILES]
    ]
    more = len(changes) - MAX_FILES
    rest = element("tr", element("td", trn("and {n} more file", "and {n} more files", more), colspan=3))
    heading = element("tr", element("th", title, scope="rowgroup", colspan=3, class_="group"))
    return element("tbody", heading, *rows, rest if more > 0 else None)


def _find_code(run: ReportedRun) -> Mapping[str, str] | None:
    known = (record.code for record in run.records.values())
    return next((code for code in known if code is not None), None)


def _render_equal(groups: Sequence[Group]) -> Html | None:
    count = sum(len(group.pairs) for group in groups)
    if not count:
        return None
    blocks: list[Child] = []
    for group in groups:
        rows = [
            element("div", element("dt", pair.name), element("dd", _show(group, pair, pair.first)))
            for pair in group.pairs
        ]
        blocks += [element("h3", group.title) if group.title else None, element("dl", *rows, class_="facts")]
    summary = element("summary", trn("{n} value is equal", "{n} values are equal", count))
    return element("section", element("h2", tr("What is equal")), element("details", summary, *blocks))


def _plots(first: ReportedRun, second: ReportedRun, labels: Sequence[str]) -> Html | None:
    """Draw the numbers of both runs, from the launch of each."""
    scale = make_scale(first)
    other_scale = make_scale(second)
    shift = scale.begin - other_scale.begin
    others = {scalars.name: scalars for scalars in choose_scalars(second.records)}
    begun = [scale.trains_from, other_scale.trains_from and other_scale.trains_from + shift]
    trains_from = min(pick(begun), default=None)
    end = max(scale.end, scale.begin + other_scale.seconds)
    longest = Scale(scale.begin, end, trains_from=trains_from)
    chosen = [
        (scalars, [(labels[1], other, shift)] if (other := others.get(scalars.name)) else [])
        for scalars in choose_scalars(first.records)
    ]
    if not chosen:
        return None
    drawn = render_both_axes(*plot_both(chosen, labels[0]), longest, "axis-both")
    return element("section", element("h2", tr("Numbers of both runs")), drawn)


def _fold_report(label: str, run: ReportedRun, content: Sequence[Child]) -> Html:
    summary = element("summary", tr("report of {run}", run=label), " ", state_chip(run.state))
    return element("details", summary, element("article", *content))
