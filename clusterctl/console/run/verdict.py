"""The end of a run: cause first, then what followed, then files that it left outside its output directory."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence

from clusterctl.codes.lookup import find_entry
from clusterctl.console.progress import render_size
from clusterctl.console.terminal import BOLD, GREEN, RED, YELLOW, is_verbose, paint, stderr, symbol
from clusterctl.console.text import (
    UNBROKEN,
    as_in_project,
    cut_text,
    display_width,
    sanitize,
    wrap_prose,
    wrap_text,
)
from clusterctl.node_texts import translate_node_text
from clusterctl.plans.diagnose.hang import KeptDiagnosis, render_kept
from clusterctl.plans.runs.state import GIVEN_UP, Attempt
from clusterctl.plans.runs.verdict import (
    ALONE_CODE,
    SUSPECTED_CODE,
    Verdict,
    advised_command,
    describe_alone,
    render_unplanned,
)
from clusterctl.plans.sync.listed_files import OutsideFiles
from clusterctl.protocol.end_record import is_certain
from clusterctl.protocol.root_cause import Cause, Failure, find_symptom, render_ending
from clusterctl.protocol.run_paths import short_id
from clusterctl.protocol.states import LIVE, STOPPED, SUCCEEDED
from clusterctl.protocol.tracebacks import clip, strip_rank
from clusterctl.specs.nodeset import fold_names, group_values
from clusterctl.specs.text import command_line, render_seconds
from clusterctl.translation import tr, trn

MAX_NAMES = 3  # names
WIDTH = 110  # columns of an explanation, where the terminal is not narrower
NARROWEST = 30
LABEL_WIDTH = 6
CODE_WIDTH = 10
INDENT = "    "
MAX_GROUPS = 6
MAX_RANKS = 8
MAX_SUMMARY = 90  # characters
MAX_HANG = 1000  # characters of a sentence of `diagnose`
MAX_LINE = 400  # characters that are shown of what a rank or a node has written
_NUMBER = re.compile(r"\d+")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\[(])")
_OUT_OF_MEMORY = re.compile(
    r"(?:[\w.]+: )?(?P<what>\w+ out of memory)\. Tried to allocate (?P<size>[\d.]+ \w+)"
)


def render_outside(outside: Mapping[str, OutsideFiles]) -> str:
    """Put it into a line: `2 files outside ${output_dir}: 0.ckpt, 1.ckpt (13.2 MB) on gpu01`."""
    files = sum(node_outside.files for node_outside in outside.values())
    names = list(
        dict.fromkeys(
            name.replace("\n", "\\n") for node_outside in outside.values() for name in node_outside.names
        )
    )
    named_count = sum(len(node_outside.names) for node_outside in outside.values())
    ellipsis = ", ..." if names[MAX_NAMES:] or files > named_count else ""
    facts = {
        "names": ", ".join(names[:MAX_NAMES]) + ellipsis,
        "size": render_size(sum(node_outside.bytes for node_outside in outside.values())),
        "nodes": fold_names(outside),
    }
    if any(node_outside.more for node_outside in outside.values()):
        return tr(
            "at least {files} files outside ${output_dir}: {names} ({size}) on {nodes}", files=files, **facts
        )
    if not names:
        return trn(
            "{n} file outside ${output_dir} ({size}) on {nodes}",
            "{n} files outside ${output_dir} ({size}) on {nodes}",
            files,
            **facts,
        )
    return trn(
        "{n} file outside ${output_dir}: {names} ({size}) on {nodes}",
        "{n} files outside ${output_dir}: {names} ({size}) on {nodes}",
        files,
        **facts,
    )


def wrap_remarks(lines: Iterable[str], width: int) -> list[str]:
    """Break what is no command between words; a line keeps its indentation."""
    pieces: list[str] = []
    for line in lines:
        text = line.lstrip()
        start = line[: len(line) - len(text)]
        pieces += [line] if "clusterctl " in text else wrap_text(text, width, start, f"{start}  ")
    return pieces


def render_outside_note(
    outside: Mapping[str, OutsideFiles], run_id: str, command: str, width: int = UNBROKEN
) -> list[str]:
    """Return the hint for a run that has ended, with the command that downloads them; hints begin with `command`."""
    if not outside:
        return []
    pull = command_line("pull", short_id(run_id), "--all", command=command)
    return [
        *wrap_remarks([tr("note: {text}", text=render_outside(outside))], width),
        INDENT + tr("next: {command}", command=pull),
    ]


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
        lines = [f"{start}   {verdict.run_id}", *(alone or render_reasons(verdict))]
    else:
        lines = render_cause(verdict.cause, verdict.run_id, command, width, f"{start}   ")
        lines += _render_hidden(hidden, command_line("logs", short_id(verdict.run_id), command=command))
    if verdict.hang is not None:
        lines += render_hang(verdict.hang, width, command)
    if verdict.slow is not None:
        judgement = verdict.slow.judgement
        slow = tr("{sentence} ({code})", sentence=judgement.sentence, code=judgement.code)
        lines += wrap_remarks([tr("note: {text}", text=slow)], width)
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
    failure, columns = cause.failure, max(NARROWEST, min(WIDTH, width))
    summary, rest = _summarize(failure, _room(cause, width, start))
    lines = _render_headline(cause, summary, width, start)
    lines += wrap_text(rest, columns, INDENT, INDENT) if rest else []
    lines += _render_frame(failure, columns)
    lines += _render_silent(cause, columns)
    lines += _render_known(cause, columns)
    if failure.tail and (is_verbose() or not failure.exception):
        lines.append(INDENT + tr("last stderr lines:"))
        lines += [f"{INDENT}| {clip(line, MAX_LINE)}" for line in failure.tail]
    lines += _render_consequences(cause)
    return lines + _render_commands(cause, run_id, command)


def _render_commands(cause: Cause, run_id: str, command: str) -> list[str]:
    failure, run = cause.failure, short_id(run_id)  # the full id would not fit into 80 columns
    logs_command = command_line("logs", run, command=command)
    selector = ("--nodes", failure.node) if failure.rank is None else ("--rank", str(failure.rank))
    lines = []
    advised = advised_command(cause, run) if cause.symptom_match else ""
    if advised:
        lines.append(_labelled(tr("fix"), f"{command}{advised.removeprefix('clusterctl')}"))
    if not failure.lost:
        lines.append(_labelled(tr("next"), command_line(*selector, command=logs_command)))
    return lines


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


def describe_cause(cause: Cause) -> str:
    """Return in a few words what failed first: `r1 gpu02: CUDA out of memory (tried 20.00 GiB)`."""
    failure = cause.failure
    process = failure.node if failure.rank is None else f"r{failure.rank} {failure.node}"
    return tr(
        "{process}: {what}",
        process=process,
        what=_describe_what(cause, _summarize(failure, MAX_SUMMARY)[0]),
    )


def _render_headline(cause: Cause, summary: str, width: int, start: str) -> list[str]:
    text = tr(
        "{process}: {what}", process=_describe_process(cause.failure), what=_describe_what(cause, summary)
    )
    code = f"   {cause.symptom_match.symptom.code}" if cause.symptom_match else ""
    return wrap_text(f"{start}{text}{code}", max(NARROWEST, width), indent=INDENT)


def _room(cause: Cause, width: int, start: str) -> int:
    """Count the columns that the headline has for what the rank reported."""
    others = f"{start}{_describe_process(cause.failure)}:   {'-' * CODE_WIDTH}"
    return max(NARROWEST, width - display_width(others))


def _summarize(failure: Failure, room: int) -> tuple[str, str]:
    """Shorten an exception to a headline; the second text is the whole, if something is missing in the first."""
    whole = clip(strip_rank(failure.exception), MAX_LINE)
    memory = _OUT_OF_MEMORY.match(whole)
    if memory:
        tried = tr("{what} (tried {size})", what=memory["what"], size=memory["size"])
        return tried, whole
    if display_width(whole) <= room:
        return whole, ""
    first = _SENTENCE_END.split(whole, maxsplit=1)[0]
    if len(first) < len(whole) and display_width(first) <= max(room, MAX_SUMMARY):
        return first, whole
    return whole, ""


def _describe_what(cause: Cause, summary: str) -> str:
    end = clip(_describe_end(cause), MAX_LINE)
    if cause.waited_for:
        return tr("the other ranks waited for it until they timed out ({end})", end=end)
    if not summary:
        return end
    plain = not (cause.left or cause.stopped) and cause.failure.exit in (1, None) and not cause.failure.signal
    return summary if plain else tr("{exception} ({end})", exception=summary, end=end)


def _render_frame(failure: Failure, width: int) -> list[str]:
    """Show where the exception was raised in the user's own code, in one line."""
    if len(failure.own_frame) < 2 or not failure.exception:
        return []
    file, line, *source = failure.own_frame
    place = f"{INDENT}{as_in_project(file)}:{line}"
    room = width - display_width(place) - 3
    line = f"{place}   {cut_text(''.join(source), room)}" if source and room > NARROWEST else place
    return [line, *_render_ray_task(failure)]


def _render_ray_task(failure: Failure) -> list[str]:
    if len(failure.ray_task) < 2:
        return []
    task, node = failure.ray_task
    return [INDENT + tr("in {task} on {node}", task=task, node=node)]


def _render_silent(cause: Cause, width: int) -> list[str]:
    if not cause.silent:
        return []
    ranks = _fold_ranks(cause.silent)
    if cause.symptom_match is not None and cause.symptom_match.symptom.grade == "waited":
        text = tr("it timed out waiting for one of these, which reported nothing: {ranks}", ranks=ranks)
    else:
        text = tr(
            "one of these closed the connection, and none of them reported an error: {ranks}", ranks=ranks
        )
    return wrap_text(text, width, INDENT, INDENT)


def describe_ending(failure: Failure) -> str:
    """Describe how a process ended in the user's language; a lost node has no process that did."""
    if failure.lost and failure.signal is None and failure.exit is None:
        return tr("the node is lost: {why}", why=translate_node_text(failure.reason.removeprefix("lost: ")))
    return translate_node_text(render_ending(failure))


def _describe_end(cause: Cause) -> str:
    if cause.left:
        return tr("stopped after it had closed its connections")
    if not cause.stopped:
        return describe_ending(cause.failure)
    if cause.failure.suspended:
        return tr("it was suspended by SIGSTOP")
    return tr("ended with the run") if cause.waited_for else tr("stopped while it cleaned up")


def _render_known(cause: Cause, width: int) -> list[str]:
    if cause.symptom_match is None:
        return []
    entry = find_entry(cause.symptom_match.symptom.code)
    title = tr(entry.title)
    text = tr("{meaning}. {advice}", meaning=title[:1].upper() + title[1:], advice=tr(entry.do))
    return wrap_text(text, width, INDENT, INDENT)


def _describe_process(failure: Failure) -> str:
    if failure.rank is not None:
        return tr("rank {rank} on {node}", rank=failure.rank, node=failure.node)
    return failure.node if failure.reason else tr("torchrun on {node}", node=failure.node)


def _fold_ranks(failures: Sequence[Failure]) -> str:
    """Name some ranks and their nodes: `r0, r2 on gpu[01,03]`, `100 ranks on gpu[01-13]`."""
    nodes = fold_names(sorted({failure.node for failure in failures}))
    ranks = sorted(failure.rank for failure in failures if failure.rank is not None)
    torchruns = len(failures) - len(ranks)
    names = ", ".join(f"r{rank}" for rank in ranks)
    if ranks and torchruns:
        return trn(
            "{n} rank and {torchruns} x torchrun on {nodes}",
            "{n} ranks and {torchruns} x torchrun on {nodes}",
            len(ranks),
            torchruns=torchruns,
            nodes=nodes,
        )
    if torchruns:
        return trn("torchrun on {nodes}", "{n} x torchrun on {nodes}", torchruns, nodes=nodes)
    if len(ranks) <= MAX_RANKS:
        return tr("{ranks} on {nodes}", ranks=names, nodes=nodes)
    return trn("{n} rank on {nodes}", "{n} ranks on {nodes}", len(ranks), nodes=nodes)


def _render_consequences(cause: Cause) -> list[str]:
    """Fold what followed by what it reported, numbers aside: `6 ranks on gpu[01-03]: connection closed by peer`."""
    groups: dict[str, list[tuple[Failure, str]]] = {}
    ended = {(failure.node, failure.rank) for failure in cause.ended}
    for failure in cause.consequences:
        ended_with_run = (failure.node, failure.rank) in ended
        summary = tr("stopped by clusterctl") if ended_with_run else _describe_consequence(failure)
        groups.setdefault(_NUMBER.sub("0", summary), []).append((failure, summary))
    ordered = sorted(groups.values(), key=len, reverse=True)
    lines = [_render_group([failure for failure, _ in group], group[0][1]) for group in ordered[:MAX_GROUPS]]
    other_failures = [failure for group in ordered[MAX_GROUPS:] for failure, _ in group]
    lines += [_render_group(other_failures, tr("other messages"))] if other_failures else []
    labels = [tr("also"), *[""] * len(lines)]
    return [_labelled(label, line) for label, line in zip(labels, lines, strict=False)]


def _render_group(failures: Sequence[Failure], summary: str) -> str:
    return tr("{process}: {what}", process=_fold_ranks(failures), what=summary)


def _describe_consequence(failure: Failure) -> str:
    symptom_match = find_symptom(failure)
    if symptom_match is not None and symptom_match.text:
        return _lower_first(" ".join(symptom_match.text.split()))[:MAX_SUMMARY]
    exception = strip_rank(failure.exception)
    if exception:
        return exception[:MAX_SUMMARY] + ("..." if len(exception) > MAX_SUMMARY else "")
    if failure.after_stop and failure.rank is not None:
        return tr("{end} after the stop", end=describe_ending(failure))
    return describe_ending(failure)


def _lower_first(text: str) -> str:
    """Begin with a small letter, unless the first word is a name: ModuleNotFoundError, NCCL, `Exception:`."""
    first_word = text.partition(" ")[0]
    is_name = first_word != first_word.capitalize() or first_word.endswith(":")
    return text if is_name else f"{text[:1].lower()}{text[1:]}"


def render_alone(verdict: Verdict, command: str, width: int = WIDTH) -> list[str]:
    """Return the lines on ranks that certainly ran alone, and what helps; nothing of any other run."""
    if verdict.alone is None or not is_certain(verdict.alone):
        return []
    columns, (message, fix) = max(NARROWEST, min(WIDTH, width)), describe_alone(verdict.alone)
    sentence = tr("{sentence} ({code})", sentence=message, code=ALONE_CODE)
    logs = command_line("logs", short_id(verdict.run_id), command=command)
    return [
        *wrap_text(sentence, columns, INDENT, INDENT),
        *wrap_text(tr("fix: {fix}", fix=fix), columns, INDENT, INDENT),
        _labelled(tr("next"), f"{logs} --rank 0"),
    ]


def render_suspicion(verdict: Verdict) -> list[str]:
    """Return the warning about a run that succeeded, and whose ranks may have run alone; nothing of any other."""
    if verdict.alone is None or is_certain(verdict.alone):
        return []
    message, fix = describe_alone(verdict.alone)
    sentence = tr("{sentence} ({code})", sentence=message, code=SUSPECTED_CODE)
    return [tr("warning: {text}", text=sentence), "  " + tr("fix: {fix}", fix=fix)]


def render_reasons(verdict: Verdict) -> list[str]:
    """Return why each part ended as it did, where no cause was found."""
    if verdict.state == SUCCEEDED:
        return []
    groups = group_values((reason, name) for name, reason in verdict.reasons.items())
    return [
        INDENT
        + tr(
            "{process}: {what}",
            process=fold_names(names),
            what=clip(translate_node_text(reason), MAX_LINE),
        )
        for reason, names in groups.items()
    ]


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
