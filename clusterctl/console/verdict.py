"""The end of a run: cause first, then files that it left outside its output directory."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence

from clusterctl.console.progress import render_size
from clusterctl.console.terminal import wants_color
from clusterctl.console.text import sanitize
from clusterctl.plans.known_errors import advised_command, guidance_of
from clusterctl.plans.launch.world_size import render_unplanned
from clusterctl.plans.runs.gang_record import GIVEN_UP, Attempt
from clusterctl.plans.runs.state import CANCELLED, LOST, SUCCEEDED
from clusterctl.plans.runs.verdict import Verdict
from clusterctl.plans.sync.results import Outside
from clusterctl.protocol.root_cause import Cause, Failure, find_symptom, render_ending
from clusterctl.protocol.tracebacks import clip, strip_rank
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import command_line, counted

SHOWN = 3  # names


def render_outside(parts: Mapping[str, Outside]) -> str:
    """Put it into a line: `2 files outside ${output_dir}: 0.ckpt, 1.ckpt (13.2 MB) on gpu01`."""
    files = sum(one.files for one in parts.values())
    least = "at least " if any(one.more for one in parts.values()) else ""
    names = list(dict.fromkeys(name.replace("\n", "\\n") for one in parts.values() for name in one.names))
    told = sum(len(one.names) for one in parts.values())
    more = ", ..." if names[SHOWN:] or files > told else ""
    named = f": {', '.join(names[:SHOWN])}{more}" if names else ""
    size = render_size(sum(one.bytes for one in parts.values()))
    return f"{least}{counted(files, 'file')} outside ${{output_dir}}{named} ({size}) on {fold_names(parts)}"


def render_stranded(parts: Mapping[str, Outside], run: str, command: str) -> list[str]:
    """Say so of a run that has ended, with the command that brings them; `command` is how hints begin."""
    return [f"note: {render_outside(parts)}", f"  bring them: {command} pull {run} --all"] if parts else []


_RED, _GREEN, _PLAIN = "\x1b[1;31m", "\x1b[1;32m", "\x1b[0m"
WIDTH = 110
MOST_GROUPS = 6
MOST_RANKS = 8
LONGEST_WORDS = 90
LONGEST_LINE = 400  # characters that are shown of what a rank or a node has written
_NUMBER = re.compile(r"\d+")


def show_verdict(verdict: Verdict, seconds: float, command: str = "clusterctl") -> None:
    """Write the verdict to stderr; `command` is how the hints begin."""
    shade = _GREEN if verdict.state == SUCCEEDED else _RED
    run, word = sanitize(verdict.run), sanitize(verdict.state)
    state = f"{shade}{word}{_PLAIN}" if wants_color(sys.stderr) else word
    lines = [] if verdict.cause is None else render_cause(verdict.cause, verdict.run, command)
    lines += [
        *_render_reasons(verdict),
        *_render_left(verdict, command_line("stop", verdict.run, command=command)),
    ]
    lines += [*render_attempts(verdict.attempts), *_render_giving_up(verdict), *_render_after(verdict)]
    lines += [f"warning: {line}" for line in render_unplanned(verdict.worlds)]
    lines += render_stranded(verdict.outside, verdict.run, command)
    tries = f", {counted(verdict.attempt, 'attempt')}" if verdict.attempts else ""
    last = f"{run}: {state} after {seconds:.1f} s{tries}"
    print("\n".join([*map(sanitize, lines), last]), file=sys.stderr, flush=True)


def render_cause(cause: Cause, run: str, command: str) -> list[str]:
    """Give the lines that name the root cause and what is known about it; `command` is how hints begin."""
    failure, logs = cause.failure, command_line("logs", run, command=command)
    lines = ["", *_headline(cause), *_render_known(cause, run, command)]
    if failure.tail:
        lines.append(f"  its last lines of stderr ({len(failure.tail)}):")
        lines += [f"  | {clip(line, LONGEST_LINE)}" for line in failure.tail]
    lines += _render_consequences(cause)
    more = ("--node", failure.node) if failure.rank is None else ("--rank", str(failure.rank))
    lines += [] if failure.lost else [f"  all of it: {command_line(*more, command=logs)}"]
    return lines + ([f"  the others: {logs} --stream stderr --tail 5"] if cause.consequences else [])


def render_attempts(attempts: Sequence[Attempt]) -> list[str]:
    """Say why each attempt before the last one ended: `attempt 1: gpu02 is lost (node_lost)`."""
    return [f"attempt {one.number}: {clip(one.text, LONGEST_LINE)} ({one.reason})" for one in attempts]


def _render_giving_up(verdict: Verdict) -> list[str]:
    """Say why the nodes did not start the run again, where the job wanted that."""
    return [GIVEN_UP[verdict.gave_up]] if verdict.gave_up in GIVEN_UP and verdict.state != CANCELLED else []


def _headline(cause: Cause) -> list[str]:
    failure = cause.failure
    place, said = _place(failure), clip(strip_rank(failure.exception), LONGEST_LINE)
    if cause.awaited:
        return [f"root cause: {place}, for which the others waited in vain ({_how(cause)})"]
    lines = [f"root cause: {place}, {clip(_how(cause), LONGEST_LINE)}" + (f": {said}" if said else "")]
    if cause.silent:
        what = (
            "it waited in vain for one of these, which did not complain"
            if cause.known is not None and cause.known.symptom.grade == "waited"
            else "one of these closed the connection, and none of them reported an error"
        )
        lines.append(f"  {what}: {_fold_places(cause.silent)}")
    return lines


def _how(cause: Cause) -> str:
    if cause.left:
        return "stopped after it had closed its connections"
    if not cause.stopped:
        return render_ending(cause.failure)
    if cause.failure.frozen:
        return "somebody had stopped it with SIGSTOP"
    return "ended with the run" if cause.awaited else "stopped while it cleaned up"


def _render_known(cause: Cause, run: str, command: str) -> list[str]:
    if cause.known is None:
        return []
    code = cause.known.symptom.code
    guidance = guidance_of(code)
    text = f"{code}: {guidance.meaning}. {guidance.advice}"
    lines = textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)
    advised = advised_command(cause, run)
    return [*lines, f"    {command}{advised.removeprefix('clusterctl')}"] if advised else lines


def _place(failure: Failure) -> str:
    if failure.rank is not None:
        return f"rank {failure.rank} on {failure.node}"
    return failure.node if failure.reason else f"torchrun on {failure.node}"


def _fold_places(failures: Sequence[Failure]) -> str:
    ranks = [str(failure.rank) for failure in failures if failure.rank is not None]
    named = f"rank {', '.join(ranks)}" if len(ranks) <= MOST_RANKS else f"{len(ranks)} ranks"
    return f"{named} on {_fold_nodes(failures)}"


def _fold_nodes(failures: Iterable[Failure]) -> str:
    return fold_names(sorted({failure.node for failure in failures}))


def _render_consequences(cause: Cause) -> list[str]:
    """Fold what followed by what it said, numbers aside: `gpu[01-03]: 6 ranks: connection closed by peer`."""
    groups: dict[str, list[tuple[Failure, str]]] = {}
    ended = {(failure.node, failure.rank) for failure in cause.ended}
    for failure in cause.consequences:
        ours = (failure.node, failure.rank) in ended
        words = "stopped with the run" if ours else _what_followed(failure)
        groups.setdefault(_NUMBER.sub("0", words), []).append((failure, words))
    ordered = sorted(groups.values(), key=len, reverse=True)
    lines = [_render_group([failure for failure, _ in group], group[0][1]) for group in ordered[:MOST_GROUPS]]
    rest = [failure for group in ordered[MOST_GROUPS:] for failure, _ in group]
    lines += [_render_group(rest, "other words")] if rest else []
    if len(lines) == 1:
        return [f"  consequences: {lines[0]}"]
    return ["  consequences:", *(f"    {line}" for line in lines)] if lines else []


def _render_group(failures: Sequence[Failure], words: str) -> str:
    return f"{_fold_nodes(failures)}: {_count(failures)}: {words}"


def _what_followed(failure: Failure) -> str:
    known = find_symptom(failure)
    if known is not None and known.text:
        return _begin_small(" ".join(known.text.split()))[:LONGEST_WORDS]
    said = strip_rank(failure.exception)
    if said:
        return said[:LONGEST_WORDS] + ("..." if len(said) > LONGEST_WORDS else "")
    return render_ending(failure) + (
        " after the stop" if failure.after_stop and failure.rank is not None else ""
    )


def _begin_small(words: str) -> str:
    """Begin with a small letter, unless the first word is a name: ModuleNotFoundError, NCCL, `Exception:`."""
    first = words.partition(" ")[0]
    is_name = first != first.capitalize() or first.endswith(":")
    return words if is_name else f"{words[:1].lower()}{words[1:]}"


def _count(failures: Sequence[Failure]) -> str:
    ranks = [failure.rank for failure in failures if failure.rank is not None]
    others = len(failures) - len(ranks)
    named = f"rank {ranks[0]}" if len(ranks) == 1 else f"{len(ranks)} ranks" if ranks else ""
    rest = "" if not others else "torchrun" if others == 1 else f"{others} times torchrun"
    return " and ".join(filter(None, (named, rest)))


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
    for name, what in verdict.after.items():
        groups.setdefault(what, []).append(name)
    return [f"note: {fold_names(names)}: {clip(what, LONGEST_LINE)}" for what, names in groups.items()]


def _render_left(verdict: Verdict, stop: str) -> list[str]:
    left = [
        f"could not be ended on {name}: {entry}"
        for name, entries in verdict.left.items()
        for entry in entries
    ]
    left += [
        f"still in use on {name}: {entry}"
        for name, entries in verdict.gpu_memory.items()
        for entry in entries
    ]
    lost = [name for name, state in verdict.parts.items() if state == LOST and name not in verdict.unwatched]
    back = "when it is back" if len(lost) == 1 else "when they are back"
    left += [f"not stopped there: {fold_names(lost)}; {back}: {stop}"] if lost else []
    return left + ([f"may be left on {fold_names(verdict.unwatched)}: {stop}"] if verdict.unwatched else [])
