"""The first page as HTML: the machines and who uses them, and the runs, a row for each; every text is escaped."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clusterctl.console.run.listing import RunSummary
from clusterctl.console.text import cut_text, sanitize
from clusterctl.console.top import (
    describe_problem,
    is_hot,
    max_temperature,
    render_gpu_memory,
    render_memory,
    render_range,
    summarize_usage,
)
from clusterctl.plans.facts.utilization import NodeUsage, group_alike, is_silent
from clusterctl.plans.report.markup import NOTHING, Child, Html, element, join, table_row
from clusterctl.plans.report.plot import render_sparkline
from clusterctl.plans.report.sections import FAILED_CLASS, show_command, state_chip
from clusterctl.protocol.run_paths import short_id
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import command_line, render_seconds
from clusterctl.translation import tr, trn

MAX_RUNS = 500
MAX_MACHINE_ROWS = 24  # of more nodes those that are alike share a row
MAX_CAUSE = 90  # columns
OWN_FIRST = 10**12  # more than any time: one's own runs stand before those of others


def find_links(runs: Sequence[RunSummary]) -> dict[str, str]:
    """Return what leads to each run: its short id where that means no other run, else the whole id."""
    counts = Counter(short_id(run.run_id) for run in runs)
    return {
        run.run_id: short_id(run.run_id) if counts[short_id(run.run_id)] == 1 else run.run_id for run in runs
    }


def render_run_rows(runs: Sequence[RunSummary]) -> dict[str, Html]:
    """Draw the runs by their ids; nothing in a row changes merely because time goes on."""
    links = find_links(runs)
    return {run.run_id: _run_row(run, links[run.run_id]) for run in runs[:MAX_RUNS]}


def _run_row(run: RunSummary, link: str) -> Html:
    about = element("small", short_id(run.run_id), " · ", element("time", data_ago=round(run.submitted)))
    progress = run.progress
    cells: list[Child] = [
        join([element("a", run.job or run.run_id, href=f"#{link}"), " ", about]),
        join([state_chip(run.state), _render_attempt(run.attempt)]),
        element("time", data_since=round(run.began)) if run.began is not None else _render_span(run.seconds),
        progress.step_text if progress else None,
        join([progress.loss_text, " ", render_sparkline(progress.losses)]) if progress and progress.losses else None,
        run.nodes,
        run.launched_by,
        cut_text(run.cause, MAX_CAUSE) if run.quiet_since is None else _render_quiet(run.quiet_since),
    ]  # fmt: skip
    order = round(run.submitted) + (OWN_FIRST if run.is_own else 0)
    return element("tr", *(element("td", cell) for cell in cells), data_order=order)


def _render_quiet(since: float) -> Html:
    """Return for how long no rank has made progress, which the page counts."""
    return element("time", data_since=round(since), data_text=tr("no progress for {span}", span="{span}"))


def _render_span(seconds: float | None) -> str:
    return "-" if seconds is None else render_seconds(seconds)


def _render_attempt(attempt: int) -> Html | None:
    return element("small", " ", tr("attempt {n}", n=attempt)) if attempt > 1 else None


def render_runs_note(count: int, command: str) -> Html:
    """Return what stands below the list: how many runs are left out, or what to do where there is none."""
    if count > MAX_RUNS:
        more = count - MAX_RUNS
        return element("p", trn("and {n} more run", "and {n} more runs", more), class_="faint")
    if count:
        return NOTHING
    words = command_line("launch", "job.yaml", command=command)
    return element(
        "div",
        element("p", tr("No run on these nodes yet. In the directory of your job:")),
        element("p", show_command(words, copies=True)),
        class_="empty",
    )


@dataclass(frozen=True)
class Usage:
    """The run on a node: the link to it, its job, and the person."""

    link: str
    job: str
    launched_by: str

    def render(self) -> Html:
        """Return it as a link to the run."""
        return join([element("a", self.job or self.link, href=f"#{self.link}"), f" {self.launched_by}"])


def render_machine_rows(
    nodes: Sequence[NodeUsage], used: Mapping[str, Usage] | None, down: Mapping[str, float], limit: float
) -> dict[str, Html]:
    """Draw the machines; `down` is since when a node sends nothing (Unix s), `limit` after how many seconds it is.

    `used` is None while the runs are not known.
    """
    now = time.monotonic()
    groups = group_alike(nodes, now, limit, MAX_MACHINE_ROWS)
    if len(nodes) > MAX_MACHINE_ROWS:
        groups = [part for group in groups for part in _split_by_use(group, used or {})]
    rows: dict[str, Html] = {}
    for group in groups[: 2 * MAX_MACHINE_ROWS]:
        name = fold_names([one.node.name for one in group])
        rows[name] = _machine_row(name, group, used, down, limit)
    return rows


def _split_by_use(group: Sequence[NodeUsage], used: Mapping[str, Usage]) -> list[tuple[NodeUsage, ...]]:
    """Split nodes that are alike into those that are free and those that are not."""
    halves = (
        [one for one in group if one.node.name in used],
        [one for one in group if one.node.name not in used],
    )
    return [tuple(half) for half in halves if half]


def _machine_row(
    name: str,
    group: Sequence[NodeUsage],
    used: Mapping[str, Usage] | None,
    down: Mapping[str, float],
    limit: float,
) -> Html:
    first, now = group[0], time.monotonic()
    users = list(dict.fromkeys(used[one.node.name] for one in group if one.node.name in used)) if used else []
    is_down = first.sample is None or is_silent(first, now, limit)
    heading = element("b", sanitize(name))
    if is_down:
        return table_row(heading, _describe_down(group, down), None, None, None, class_="down")
    who: Child = element("span", tr("free"), class_="good") if used is not None else None
    if users:
        who = users[0].render() if len(users) == 1 else trn("{n} run", "{n} runs", len(users))
    problem = sanitize(describe_problem(first, now, limit))
    has_gpus = bool(first.sample and first.sample.gpus)
    temperature = render_range(group, max_temperature)
    hot = "bad" if is_hot(group) else None
    return table_row(
        heading,
        join([who, element("small", " ", problem, class_="warn") if problem else None]),
        _render_use(group, has_gpus=has_gpus),
        render_gpu_memory(group) if has_gpus else render_memory(group),
        element("span", f"{temperature} °C", class_=hot) if temperature else None,
    )


def _describe_down(group: Sequence[NodeUsage], down: Mapping[str, float]) -> Html:
    """Return since when these nodes send nothing, and why."""
    since = [down[one.node.name] for one in group if one.node.name in down]
    if not since:
        return element("span", tr("no answer yet"), class_="faint")
    moment = time.strftime("%H:%M", time.localtime(min(since)))
    why = element("small", " ", cut_text(sanitize(group[0].error), MAX_CAUSE))
    return join([element("b", tr("down since {time}", time=moment), class_="bad"), why])


def _render_use(group: Sequence[NodeUsage], *, has_gpus: bool) -> Html | None:
    """Draw how busy GPUs are, or the processors where there is no GPU: a bar, the share, and of how many."""
    shares = [share for one in group if (share := _share(one, has_gpus=has_gpus)) is not None]
    if not shares:
        return None
    low, mean, high = round(min(shares)), round(sum(shares) / len(shares)), round(max(shares))
    text = f"{high} %" if low == high else f"{low}-{high} %"
    gpus = len(group[0].sample.gpus) if group[0].sample else 0
    what = trn("{n} GPU", "{n} GPUs", gpus) if has_gpus else "CPU"
    bar = element(
        "svg", element("rect", width=mean, height=8), viewBox="0 0 100 8", class_="use", aria_hidden="true"
    )
    return join([bar, f"{text} ", element("small", what)])


def _share(one: NodeUsage, *, has_gpus: bool) -> float | None:
    if one.sample is None:
        return None
    if has_gpus:
        return one.sample.gpu_busy
    return None if one.sample.cpu is None else one.sample.cpu * 100


def render_strip(
    nodes: Sequence[NodeUsage], used: Mapping[str, Usage] | None, down: Mapping[str, float], limit: float
) -> Html:
    """Count the machines that are in use, free and down, with how busy their GPUs are, in a line."""
    summary, _ = summarize_usage(nodes, time.monotonic(), limit)
    known = [] if used is None else [one.node.name for one in nodes if one.sample is not None]
    up = [name for name in known if name not in down]
    busy = sum(name in (used or {}) for name in up)
    counts = (
        (busy, tr("{n} in use", n=busy), "state-running"),
        (len(up) - busy, tr("{n} free", n=len(up) - busy), "state-succeeded"),
        (len(down), tr("{n} down", n=len(down)), FAILED_CLASS),
    )
    chips = [element("span", text, class_=f"chip {kind}") for count, text, kind in counts if count]
    return join([element("span", summary), *chips])


def render_slurm_note() -> Html:
    """Return why the nodes of a Slurm cluster are not shown."""
    return element(
        "p", tr("The nodes of a Slurm cluster can be reached only while a job of yours runs there.")
    )


def render_shared_note() -> Html:
    """Return what the numbers of the nodes of a lab are."""
    note = tr("the nodes of a lab share this machine: CPU and memory are those of all of them")
    return element("p", note)
