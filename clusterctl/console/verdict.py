"""The end of a run: cause first, then files that it left outside its output directory."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence

from clusterctl.codes.lookup import find_entry
from clusterctl.console.progress import render_size
from clusterctl.console.terminal import stderr, uses_color
from clusterctl.console.text import sanitize
from clusterctl.plans.known_errors import advised_command
from clusterctl.plans.launch.world_size import render_unplanned
from clusterctl.plans.runs.gang_record import GIVEN_UP, Attempt
from clusterctl.plans.runs.verdict import Verdict
from clusterctl.plans.sync.results import OutsideFiles
from clusterctl.protocol.root_cause import Cause, Failure, find_symptom, render_ending
from clusterctl.protocol.states import CANCELLED, SUCCEEDED
from clusterctl.protocol.tracebacks import clip, strip_rank
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import command_line, plural

MOST_NAMES = 3  # names


def render_outside(outside: Mapping[str, OutsideFiles]) -> str:
    """Put it into a line: `2 files outside ${output_dir}: 0.ckpt, 1.ckpt (13.2 MB) on gpu01`."""
    files = sum(node_outside.files for node_outside in outside.values())
    at_least = "at least " if any(node_outside.more for node_outside in outside.values()) else ""
    names = list(
        dict.fromkeys(
            name.replace("\n", "\\n") for node_outside in outside.values() for name in node_outside.names
        )
    )
    named_count = sum(len(node_outside.names) for node_outside in outside.values())
    ellipsis = ", ..." if names[MOST_NAMES:] or files > named_count else ""
    names_text = f": {', '.join(names[:MOST_NAMES])}{ellipsis}" if names else ""
    size = render_size(sum(node_outside.bytes for node_outside in outside.values()))
    return f"{at_least}{plural(files, 'file')} outside ${{output_dir}}{names_text} ({size}) on {fold_names(outside)}"


def render_outside_note(outside: Mapping[str, OutsideFiles], run_id: str, command: str) -> list[str]:
    """Say so of a run that has ended, with the command that brings them; `command` is how hints begin."""
    return (
        [f"note: {render_outside(outside)}", f"  bring them: {command} pull {run_id} --all"]
        if outside
        else []
    )


_RED, _GREEN, _RESET = "\x1b[1;31m", "\x1b[1;32m", "\x1b[0m"
WIDTH = 110  # columns of an explanation, where the terminal is not narrower
NARROWEST = 30
MOST_GROUPS = 6
MOST_RANKS = 8
LONGEST_SUMMARY = 90
LONGEST_LINE = 400  # characters that are shown of what a rank or a node has written
_NUMBER = re.compile(r"\d+")


def show_verdict(verdict: Verdict, seconds: float, command: str = "clusterctl") -> None:
    """Write the verdict to stderr; `command` is how the hints begin."""
    color = _GREEN if verdict.state == SUCCEEDED else _RED
    run_id, state = sanitize(verdict.run_id), sanitize(verdict.state)
    colored_state = f"{color}{state}{_RESET}" if uses_color(sys.stderr) else state
    width = stderr().width
    lines = [] if verdict.cause is None else render_cause(verdict.cause, verdict.run_id, command, width)
    lines += [
        *_render_reasons(verdict),
        *_render_left(verdict, command_line("stop", verdict.run_id, command=command)),
    ]
    lines += [*render_attempts(verdict.attempts), *_render_given_up(verdict), *_render_after(verdict)]
    lines += [f"warning: {line}" for line in render_unplanned(verdict.world_sizes)]
    lines += render_outside_note(verdict.outside_files, verdict.run_id, command)
    attempts_note = f", {plural(verdict.attempt, 'attempt')}" if verdict.attempts else ""
    last_line = f"{run_id}: {colored_state} after {seconds:.1f} s{attempts_note}"
    print("\n".join([*map(sanitize, lines), last_line]), file=sys.stderr, flush=True)


def render_cause(cause: Cause, run_id: str, command: str, width: int = WIDTH) -> list[str]:
    """Give the lines that name the root cause and what is known about it; `command` is how hints begin.

    Explanations are wrapped to `width`; what is to be copied, or was written by a rank, is not.
    """
    failure, logs_command = cause.failure, command_line("logs", run_id, command=command)
    lines = ["", *_render_headline(cause), *_render_known(cause, run_id, command, width)]
    if failure.tail:
        lines.append(f"  its last lines of stderr ({len(failure.tail)}):")
        lines += [f"  | {clip(line, LONGEST_LINE)}" for line in failure.tail]
    lines += _render_consequences(cause)
    selector = ("--node", failure.node) if failure.rank is None else ("--rank", str(failure.rank))
    lines += [] if failure.lost else [f"  all of it: {command_line(*selector, command=logs_command)}"]
    return lines + ([f"  the others: {logs_command} --stream stderr --tail 5"] if cause.consequences else [])


def render_attempts(attempts: Sequence[Attempt]) -> list[str]:
    """Say why each attempt before the last one ended: `attempt 1: gpu02 is lost (node_lost)`."""
    return [
        f"attempt {attempt.number}: {clip(attempt.text, LONGEST_LINE)} ({attempt.reason})"
        for attempt in attempts
    ]


def _render_given_up(verdict: Verdict) -> list[str]:
    """Say why the nodes did not start the run again, where the job wanted that."""
    return (
        [GIVEN_UP[verdict.gave_up_reason]]
        if verdict.gave_up_reason in GIVEN_UP and verdict.state != CANCELLED
        else []
    )


def _render_headline(cause: Cause) -> list[str]:
    failure = cause.failure
    process, exception = _describe_process(failure), clip(strip_rank(failure.exception), LONGEST_LINE)
    if cause.waited_for:
        return [f"root cause: {process}, for which the others waited in vain ({_describe_end(cause)})"]
    lines = [
        f"root cause: {process}, {clip(_describe_end(cause), LONGEST_LINE)}"
        + (f": {exception}" if exception else "")
    ]
    if cause.silent:
        explanation = (
            "it waited in vain for one of these, which did not complain"
            if cause.symptom_match is not None and cause.symptom_match.symptom.grade == "waited"
            else "one of these closed the connection, and none of them reported an error"
        )
        lines.append(f"  {explanation}: {_fold_ranks(cause.silent)}")
    return lines


def _describe_end(cause: Cause) -> str:
    if cause.left:
        return "stopped after it had closed its connections"
    if not cause.stopped:
        return render_ending(cause.failure)
    if cause.failure.frozen:
        return "somebody had stopped it with SIGSTOP"
    return "ended with the run" if cause.waited_for else "stopped while it cleaned up"


def _render_known(cause: Cause, run_id: str, command: str, width: int) -> list[str]:
    if cause.symptom_match is None:
        return []
    code = cause.symptom_match.symptom.code
    entry = find_entry(code)
    text = f"{code}: {entry.title.here}. {entry.do.here}"
    columns = max(NARROWEST, min(WIDTH, width))
    lines = textwrap.wrap(
        text,
        columns,
        initial_indent="  ",
        subsequent_indent="    ",
        break_on_hyphens=False,
        break_long_words=False,
    )
    advised = advised_command(cause, run_id)
    return [*lines, f"    {command}{advised.removeprefix('clusterctl')}"] if advised else lines


def _describe_process(failure: Failure) -> str:
    if failure.rank is not None:
        return f"rank {failure.rank} on {failure.node}"
    return failure.node if failure.reason else f"torchrun on {failure.node}"


def _fold_ranks(failures: Sequence[Failure]) -> str:
    ranks = [str(failure.rank) for failure in failures if failure.rank is not None]
    ranks_text = f"rank {', '.join(ranks)}" if len(ranks) <= MOST_RANKS else f"{len(ranks)} ranks"
    return f"{ranks_text} on {_fold_nodes(failures)}"


def _fold_nodes(failures: Iterable[Failure]) -> str:
    return fold_names(sorted({failure.node for failure in failures}))


def _render_consequences(cause: Cause) -> list[str]:
    """Fold what followed by what it said, numbers aside: `gpu[01-03]: 6 ranks: connection closed by peer`."""
    groups: dict[str, list[tuple[Failure, str]]] = {}
    ended = {(failure.node, failure.rank) for failure in cause.ended}
    for failure in cause.consequences:
        ended_with_run = (failure.node, failure.rank) in ended
        summary = "stopped with the run" if ended_with_run else _describe_consequence(failure)
        groups.setdefault(_NUMBER.sub("0", summary), []).append((failure, summary))
    ordered = sorted(groups.values(), key=len, reverse=True)
    lines = [_render_group([failure for failure, _ in group], group[0][1]) for group in ordered[:MOST_GROUPS]]
    other_failures = [failure for group in ordered[MOST_GROUPS:] for failure, _ in group]
    lines += [_render_group(other_failures, "other words")] if other_failures else []
    if len(lines) == 1:
        return [f"  consequences: {lines[0]}"]
    return ["  consequences:", *(f"    {line}" for line in lines)] if lines else []


def _render_group(failures: Sequence[Failure], summary: str) -> str:
    return f"{_fold_nodes(failures)}: {_count_ranks(failures)}: {summary}"


def _describe_consequence(failure: Failure) -> str:
    symptom_match = find_symptom(failure)
    if symptom_match is not None and symptom_match.text:
        return _lower_first(" ".join(symptom_match.text.split()))[:LONGEST_SUMMARY]
    exception = strip_rank(failure.exception)
    if exception:
        return exception[:LONGEST_SUMMARY] + ("..." if len(exception) > LONGEST_SUMMARY else "")
    return render_ending(failure) + (
        " after the stop" if failure.after_stop and failure.rank is not None else ""
    )


def _lower_first(text: str) -> str:
    """Begin with a small letter, unless the first word is a name: ModuleNotFoundError, NCCL, `Exception:`."""
    first_word = text.partition(" ")[0]
    is_name = first_word != first_word.capitalize() or first_word.endswith(":")
    return text if is_name else f"{text[:1].lower()}{text[1:]}"


def _count_ranks(failures: Sequence[Failure]) -> str:
    ranks = [failure.rank for failure in failures if failure.rank is not None]
    torchrun_count = len(failures) - len(ranks)
    ranks_text = f"rank {ranks[0]}" if len(ranks) == 1 else f"{len(ranks)} ranks" if ranks else ""
    torchrun_text = (
        ""
        if not torchrun_count
        else "torchrun"
        if torchrun_count == 1
        else f"{torchrun_count} times torchrun"
    )
    return " and ".join(filter(None, (ranks_text, torchrun_text)))


def _render_reasons(verdict: Verdict) -> list[str]:
    """Say why each part ended as it did, where no cause has said so."""
    if verdict.state == SUCCEEDED or verdict.cause is not None:
        return []
    groups: dict[str, list[str]] = {}
    for name, reason in verdict.reasons.items():
        groups.setdefault(reason, []).append(name)
    return [f"{fold_names(names)}: {clip(reason, LONGEST_LINE)}" for reason, names in groups.items()]


def _render_after(verdict: Verdict) -> list[str]:
    """Say where the commands of `after` went wrong; the run's end is not theirs to change."""
    groups: dict[str, list[str]] = {}
    for name, problem in verdict.after_errors.items():
        groups.setdefault(problem, []).append(name)
    return [f"note: {fold_names(names)}: {clip(problem, LONGEST_LINE)}" for problem, names in groups.items()]


def _render_left(verdict: Verdict, stop_command: str) -> list[str]:
    left = [
        f"{'still running' if name in verdict.unwatched else 'could not be ended'} on {name}: {entry}"
        for name, entries in verdict.left_processes.items()
        for entry in entries
    ]
    left += [
        f"still in use on {name}: {entry}"
        for name, entries in verdict.gpu_memory.items()
        for entry in entries
    ]
    away = verdict.away
    when_back = "when it is back" if len(away) == 1 else "when they are back"
    left += [f"not stopped there: {fold_names(away)}; {when_back}: {stop_command}"] if away else []
    return left + ([f"  end them: {stop_command}"] if verdict.unwatched else [])
