"""The end of a run: cause first, then what followed, then files that it left outside its output directory."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from clusterctl.console.run.remarks import INDENT, render_outside_note, wrap_remarks
from clusterctl.console.terminal import BOLD, GREEN, RED, YELLOW, is_verbose, paint, stderr, symbol
from clusterctl.console.text import (
    UNBROKEN,
    cut_text,
    display_width,
    sanitize,
    wrap_prose,
    wrap_text,
)
from clusterctl.node_texts import translate_node_text
from clusterctl.plans.diagnose.kept import KeptDiagnosis, render_kept
from clusterctl.plans.runs.cause import (
    MAX_LINE,
    Explanation,
    describe_process,
    explain_alone,
    explain_cause,
    list_reasons,
)
from clusterctl.plans.runs.state import GIVEN_UP, Attempt
from clusterctl.plans.runs.verdict import (
    SUSPECTED_CODE,
    Verdict,
    describe_alone,
    render_smaller,
    render_unplanned,
)
from clusterctl.protocol.end_record import is_certain
from clusterctl.protocol.root_cause import Cause
from clusterctl.protocol.run_paths import short_id
from clusterctl.protocol.states import LIVE, STOPPED, SUCCEEDED
from clusterctl.protocol.tracebacks import clip
from clusterctl.specs.nodeset import fold_names, group_values
from clusterctl.specs.text import command_line, render_seconds
from clusterctl.translation import tr, trn

WIDTH = 110  # columns of an explanation, where the terminal is not narrower
NARROWEST = 30
LABEL_WIDTH = 6
CODE_WIDTH = 10
MAX_HANG = 1000  # characters of a sentence of `diagnose`


def show_verdict(verdict: Verdict, seconds: float, command: str = "clusterctl", hidden: int = 0) -> None:
    """Write the end of a run to stderr, the cause first.

    `seconds` since the command was given stand there where no worker was started. `command` is how the hints begin,
    `hidden` the number of lines that were not shown.
    """
    terminal = sys.stderr.isatty()
    width = stderr().width if terminal else UNBROKEN
    start = _render_end(verdict, seconds)
    if verdict.cause is None:
        alone = render_alone(verdict, command, width)
        lines = [f"{start}   {verdict.run_id}", *(alone or [INDENT + line for line in list_reasons(verdict)])]
    else:
        lines = render_cause(verdict.cause, verdict.run_id, command, width, f"{start}   ")
        lines += _render_hidden(hidden, command_line("logs", short_id(verdict.run_id), command=command))
    if verdict.hang is not None:
        lines += render_hang(verdict.hang, width, command)
    if verdict.speed is not None:
        lines += wrap_remarks([verdict.speed.sentence], width)
    lines += wrap_remarks(render_remarks(verdict, command), width)
    first_line, *more_lines = map(sanitize, lines)
    shown = sanitize(start)
    if first_line.startswith(shown):  # on a very narrow terminal it may be broken
        color = GREEN if verdict.state == SUCCEEDED else YELLOW if verdict.state == STOPPED else RED
        first_line = paint(shown, f"{BOLD};{color}", sys.stderr) + first_line.removeprefix(shown)
    print("\n".join([first_line, *more_lines]), file=sys.stderr, flush=True)


def render_remarks(verdict: Verdict, command: str) -> list[str]:
    """Return what else is to be known of an end: what could not be stopped, attempts, warnings, files left behind."""
    return [
        *render_suspicion(verdict),
        *render_assembled_note(verdict),
        *_render_left(verdict, command_line("stop", short_id(verdict.run_id), command=command)),
        *render_attempts(verdict.attempts),
        *(tr("note: {text}", text=line) for line in render_smaller(verdict.smaller)),
        *_render_given_up(verdict),
        *_render_after(verdict),
        *(tr("warning: {text}", text=line) for line in render_unplanned(verdict.world_sizes)),
        *render_outside_note(verdict.outside_files, verdict.run_id, command),
    ]


def render_assembled_note(verdict: Verdict) -> list[str]:
    """Return the line for an end that no node has recorded for the whole run."""
    if not verdict.is_assembled:
        return []
    return [
        tr("note: no node that answered has the record of the whole run's end: judged by what each reports")
    ]


def state_mark(state: str) -> str:
    """Choose the sign before the state of a run."""
    if state in LIVE:
        return symbol("live", sys.stderr)
    name = "ok" if state == SUCCEEDED else "stopped" if state == STOPPED else "failed"
    return symbol(name, sys.stderr)


def _render_end(verdict: Verdict, seconds: float) -> str:
    duration = render_seconds(seconds if verdict.seconds is None else verdict.seconds)
    state = f"{state_mark(verdict.state)} {verdict.state}"
    if not verdict.attempts:
        return tr("{state} after {duration}", state=state, duration=duration)
    return trn(
        "{state} after {duration}, {n} attempt",
        "{state} after {duration}, {n} attempts",
        verdict.attempt,
        state=state,
        duration=duration,
    )


def render_hang(kept: KeptDiagnosis, width: int, command: str) -> list[str]:
    """Return the lines that say where the ranks were before the end."""
    columns = max(NARROWEST, min(WIDTH, width)) - len(INDENT)
    return [
        f"{INDENT}{line}"
        for text in render_kept(kept, command)
        for line in wrap_prose(clip(text, MAX_HANG), columns)
    ]


def _render_hidden(hidden: int, logs: str) -> list[str]:
    """Return the line on what was not shown: torchrun's own report, tracebacks of the ranks that failed later."""
    if not hidden:
        return []
    note = trn(
        "({n} line of other ranks and of torchrun: {command})",
        "({n} lines of other ranks and of torchrun: {command})",
        hidden,
        command=logs,
    )
    return [f"{INDENT}{' ' * LABEL_WIDTH}{note}"]


def render_cause(cause: Cause, run_id: str, command: str, width: int = WIDTH, start: str = "") -> list[str]:
    """Return the lines that name the root cause and what is known about it; `command` is how hints begin.

    `start` is what the first line begins with. Explanations are wrapped to `width`; what is to be copied, or was
    written by a rank, is not.
    """
    columns = max(NARROWEST, min(WIDTH, width))
    shown = explain_cause(cause, run_id, command, _room(cause, width, start), display_width)
    lines = _render_headline(shown, width, start)
    lines += wrap_text(shown.message, columns, INDENT, INDENT) if shown.message else []
    lines += _render_location(shown, columns)
    for text in filter(None, (shown.silent, shown.meaning)):
        lines += wrap_text(text, columns, INDENT, INDENT)
    if shown.tail and (is_verbose() or not cause.failure.exception):
        lines.append(INDENT + tr("last stderr lines:"))
        lines += [f"{INDENT}| {line}" for line in shown.tail]
    labels = [tr("also"), *[""] * len(shown.also)]
    lines += [_labelled(label, text) for label, text in zip(labels, shown.also, strict=False)]
    commands = ((tr("fix"), shown.fix), (tr("next"), shown.next))
    return lines + [_labelled(label, text) for label, text in commands if text]


def _labelled(label: str, text: str) -> str:
    return f"{INDENT}{label}{' ' * max(1, LABEL_WIDTH - display_width(label))}{text}"


def render_attempts(attempts: Sequence[Attempt]) -> list[str]:
    """Return why each attempt before the last one ended: `attempt 1: gpu02 is lost (node_lost)`."""
    return [
        tr(
            "attempt {number}: {text} ({reason})",
            number=attempt.number,
            text=clip(translate_node_text(attempt.text), MAX_LINE),
            reason=attempt.reason,
        )
        for attempt in attempts
    ]


def _render_given_up(verdict: Verdict) -> list[str]:
    """Return why the nodes did not start the run again, where the job wanted that."""
    return (
        [tr(GIVEN_UP[verdict.gave_up_reason])]
        if verdict.gave_up_reason in GIVEN_UP and verdict.state != STOPPED
        else []
    )


def _render_headline(shown: Explanation, width: int, start: str) -> list[str]:
    code = f"   {shown.code}" if shown.code else ""
    return wrap_text(f"{start}{shown.headline}{code}", max(NARROWEST, width), indent=INDENT)


def _render_location(shown: Explanation, width: int) -> list[str]:
    """Show where the exception was raised in the user's own code, in one line."""
    if not shown.location:
        return []
    location = f"{INDENT}{shown.location}"
    room = width - display_width(location) - 3
    line = f"{location}   {cut_text(shown.source, room)}" if shown.source and room > NARROWEST else location
    return [line, *([INDENT + shown.task] if shown.task else [])]


def _room(cause: Cause, width: int, start: str) -> int:
    """Count the columns that the headline has for what the rank reported."""
    others = f"{start}{describe_process(cause.failure)}:   {'-' * CODE_WIDTH}"
    return max(NARROWEST, width - display_width(others))


def render_alone(verdict: Verdict, command: str, width: int = WIDTH) -> list[str]:
    """Return the lines on ranks that certainly ran alone, and what helps; nothing of any other run."""
    shown = explain_alone(verdict, command)
    if shown is None:
        return []
    columns = max(NARROWEST, min(WIDTH, width))
    sentence = tr("{sentence} ({code})", sentence=shown.headline, code=shown.code)
    return [
        *wrap_text(sentence, columns, INDENT, INDENT),
        *wrap_text(tr("fix: {fix}", fix=shown.advice), columns, INDENT, INDENT),
        _labelled(tr("next"), shown.next),
    ]


def render_suspicion(verdict: Verdict) -> list[str]:
    """Return the warning about a run that succeeded, and whose ranks may have run alone; nothing of any other."""
    if verdict.alone is None or is_certain(verdict.alone):
        return []
    message, fix = describe_alone(verdict.alone)
    sentence = tr("{sentence} ({code})", sentence=message, code=SUSPECTED_CODE)
    return [tr("warning: {text}", text=sentence), "  " + tr("fix: {fix}", fix=fix)]


def _render_after(verdict: Verdict) -> list[str]:
    """Return where the commands of `after` went wrong; they do not change how the run ended."""
    groups = group_values((problem, name) for name, problem in verdict.after_errors.items())
    return [
        tr(
            "note: {nodes}: {problem}",
            nodes=fold_names(names),
            problem=clip(translate_node_text(problem), MAX_LINE),
        )
        for problem, names in groups.items()
    ]


def _render_left(verdict: Verdict, stop_command: str) -> list[str]:
    left = [
        tr("still running on {node}: {process}", node=name, process=entry)
        if name in verdict.unwatched
        else tr("could not be stopped on {node}: {process}", node=name, process=entry)
        for name, entries in verdict.left_processes.items()
        for entry in entries
    ]
    left += [
        tr("GPU memory still in use on {node}: {process}", node=name, process=entry)
        for name, entries in verdict.gpu_memory.items()
        for entry in entries
    ]
    if verdict.away:
        left.append(
            trn(
                "not stopped: {nodes}; when it is back: {command}",
                "not stopped: {nodes}; when they are back: {command}",
                len(verdict.away),
                nodes=fold_names(verdict.away),
                command=stop_command,
            )
        )
    return left + ([tr("  stop them: {command}", command=stop_command)] if verdict.unwatched else [])
