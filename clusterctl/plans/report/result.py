"""The head of a page about a run: what run it is, its state, and why it ended; the same in the report and in `ui`."""

from __future__ import annotations

from collections.abc import Sequence

from clusterctl.plans.diagnose.kept import describe_kept, render_advice
from clusterctl.plans.report.markup import Child, Html, element, join, join_lines
from clusterctl.plans.report.numbers import choose_scalars
from clusterctl.plans.report.reported_run import ReportedRun, describe_span, find_marks
from clusterctl.plans.report.sections import (
    FAILED_CLASS,
    describe_nodes,
    mark_commands,
    render_sentence,
    show_command,
    state_chip,
    state_class,
)
from clusterctl.plans.runs.cause import Explanation
from clusterctl.plans.runs.speed import SpeedVerdict
from clusterctl.protocol.run_paths import short_id
from clusterctl.protocol.states import LIVE, SUCCEEDED
from clusterctl.translation import tr

MAX_ATTEMPTS = 5  # that have ended, in the result


def render_head(run: ReportedRun, heading: str = "h1", since: float | None = None, step: str = "") -> Html:
    """Return the job as the title, its state, and in one line what run it is; `heading` is the title's element.

    `since`: when the workers of a live run began, from where a page with a script counts; `step`: a newer one.
    """
    latest = run.latest
    title = (latest.job if latest else "") or short_id(run.run_id)
    facts = [
        element("li", element("span", name, class_="faint"), " ", value)
        for name, value in _facts(run, since, step)
    ]
    return element(
        "div",
        element(heading, title, " ", state_chip(run.state)),
        element("ul", *facts, class_="head-facts"),
        element("p", run.run_id, class_="mono full-id"),
        class_="head",
    )


def _facts(run: ReportedRun, since: float | None, newest: str) -> list[tuple[str, Child]]:
    """Name what distinguishes a run at a glance; what is not known is left out."""
    latest = run.latest
    facts: list[tuple[str, Child]] = [
        (tr("ran for"), describe_span(run) if since is None else element("time", data_since=round(since))),
        (tr("attempt"), _describe_attempt(run)),
        (tr("epoch"), describe_epoch(run)),
        (tr("step"), newest or describe_step(run)),
        (tr("nodes"), describe_nodes(run)),
        (tr("by"), latest.launched_by if latest else ""),
        (tr("id"), element("code", short_id(run.run_id))),
    ]
    return [(name, value) for name, value in facts if value]


def _describe_attempt(run: ReportedRun) -> str:
    """Number the attempt, of a run that was started again; with its nodes where they are fewer than the job's."""
    latest = run.latest
    if latest is None or latest.attempt == 1:
        return ""
    if latest.nnodes >= latest.planned_nodes:
        return str(latest.attempt)
    facts = {"n": latest.attempt, "nodes": latest.nnodes, "of": latest.planned_nodes}
    return tr("{n} with {nodes} of {of} nodes", **facts)


def describe_step(run: ReportedRun) -> str:
    """Return the last step that a log names, of how many if it names that too; empty where none does."""
    known = [record.progress for record in run.records.values() if record.progress]
    furthest = max(known, key=lambda progress: progress.step or 0, default=None)
    if furthest is not None and furthest.step is not None:
        step, total = furthest.step, furthest.total
        return tr("{n} of {total}", n=step, total=total) if total else str(step)
    points = [point for scalars in choose_scalars(run.records) for point in scalars.points[-1:]]
    return str(max((point.step for point in points if point.step is not None), default=""))


def describe_epoch(run: ReportedRun) -> str:
    """Return the last epoch that a log names, of how many if it names that too; empty where none does."""
    known = [record.progress for record in run.records.values() if record.progress]
    furthest = max(known, key=lambda progress: progress.epoch or 0.0, default=None)
    if furthest is None or furthest.epoch is None:
        return ""
    epoch, total = f"{furthest.epoch:.4g}", furthest.epochs
    return tr("{n} of {total}", n=epoch, total=total) if total else epoch


def render_result(run: ReportedRun, *, copies: bool = False) -> Html | None:
    """Return why a run ended, or makes no progress, and how fast it is; None where the state is all there is.

    With `copies` each command has a button that copies it, for a page with a script.
    """
    hangs = run.hang is not None and run.hang.judgement.hangs
    content: list[Child] = []
    if run.hang is not None and (run.state in LIVE or (hangs and not run.explanation.headline)):
        content += [*render_sentence(run.hang.judgement, run.command, heading="h2", copies=copies)]
        content += [element("p", run.hang.summary), *(element("p", text) for text in run.explanation.reasons)]
    else:
        kept = describe_kept(run.hang) if run.hang else []
        advice = render_advice(run.hang.judgement, run.command) if run.hang and kept else []
        content += render_explanation(run.explanation, kept, advice, copies=copies)
    ended = [element("p", mark.label) for mark in find_marks(run) if mark.sign.isdecimal()]
    content += ended[-MAX_ATTEMPTS:]
    content += [_render_speed(run.speed)] if run.speed else []
    content = [child for child in content if child is not None]
    if not content:
        return None
    return element("section", *content, class_=f"result {_result_kind(run, hangs=hangs)}".strip())


def _render_speed(speed: SpeedVerdict) -> Html:
    """Return how fast the run is, in one sentence; amber where the others wait for a rank."""
    title = element("span", tr("Speed"), class_="warn" if speed.names_rank else "faint")
    return element("p", title, " ", speed.text, class_="speed")


def _result_kind(run: ReportedRun, *, hangs: bool) -> str:
    if run.state in LIVE:
        return "warn" if hangs else ""
    if run.state == SUCCEEDED:
        return "good"
    return "bad" if state_class(run.state) == FAILED_CLASS else ""


def render_explanation(
    shown: Explanation, kept: Sequence[str] = (), advice: Sequence[str] = (), *, copies: bool = False
) -> list[Child]:
    """Return the cause as text: what failed, where, what it means, what followed, and the commands that help.

    `kept` is where the ranks were, `advice` what to do about that; only what is ours has commands to copy.
    """
    source: list[Child] = [" ", element("code", shown.source)] if shown.source else []
    place = element("p", element("code", shown.location), *source, class_="place") if shown.location else None
    code: list[Child] = [" ", element("span", shown.code, class_="code")] if shown.code else []
    tail = element("pre", join_lines(shown.tail)) if shown.tail and not shown.location else None
    lines = list(filter(None, [shown.headline, *shown.reasons]))
    written = filter(None, [shown.message, shown.task, shown.silent, *lines[1:]])  # by ranks: nothing to copy
    ours = filter(None, [shown.meaning, shown.advice])
    return [
        element("h2", lines[0], *code) if lines else None,
        place,
        *(element("p", text) for text in written),
        *(element("p", *mark_commands(text, copies=copies)) for text in ours),
        *(element("p", text) for text in kept),
        *(element("p", *mark_commands(text, copies=copies)) for text in advice),
        *([element("p", tr("last stderr lines:"), class_="faint"), tail] if tail else []),
        _list_facts(shown, copies=copies),
    ]


def _list_facts(shown: Explanation, *, copies: bool) -> Html | None:
    """List what followed and the commands, each by its name."""
    commands = ((tr("fix"), shown.fix), (tr("next"), shown.next))
    rows = [_row(tr("also"), [element("div", text) for text in shown.also])] if shown.also else []
    rows += [_row(name, [show_command(command, copies=copies)]) for name, command in commands if command]
    return element("dl", *rows, class_="cause") if rows else None


def _row(name: str, content: Sequence[Child]) -> Html:
    return element("div", element("dt", name), element("dd", join(content)))
