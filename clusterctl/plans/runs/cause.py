"""Why a run ended, in words: one value that a terminal, the report and the page of `ui` draw, each in its own way.

What the cause is, `protocol/root_cause.py` decides; how the lines of a terminal are broken, `console/run/verdict.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from clusterctl.node_texts import translate_node_text
from clusterctl.plans.runs.verdict import (
    ALONE_CODE,
    Verdict,
    advised_command,
    describe_alone,
    describe_symptom,
)
from clusterctl.protocol.end_record import is_certain
from clusterctl.protocol.root_cause import Cause, Failure, find_symptom, render_ending
from clusterctl.protocol.run_paths import short_id
from clusterctl.protocol.states import SUCCEEDED
from clusterctl.protocol.tracebacks import clip, strip_rank
from clusterctl.specs.nodeset import fold_names, group_values
from clusterctl.specs.text import as_in_project, command_line
from clusterctl.translation import tr, trn

MAX_GROUPS = 6  # of what followed
MAX_RANKS = 8  # that are named
MAX_SUMMARY = 90  # characters
MAX_LINE = 400  # characters that are shown of what a rank or a node has written
HEADLINE = 140  # characters of a message that a headline has room for, where no terminal limits it
_NUMBER = re.compile(r"\d+")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\[(])")
_OUT_OF_MEMORY = re.compile(
    r"(?:[\w.]+: )?(?P<what>\w+ out of memory)\. Tried to allocate (?P<size>[\d.]+ \w+)"
)


@dataclass(frozen=True)
class Explanation:
    """Why a run ended, in the user's language; what is not known is empty.

    `code` is that of `meaning`; `message` is the whole text of the rank where the headline has a part of it; `location`
    is the file and line of the user's own code, `source` that line; `task` is the Ray task that raised it. `silent`
    names ranks that reported nothing, `tail` is the end of stderr, `also` is what followed. `reasons` are the nodes'
    own where no cause was found. `advice` is a sentence, `fix` and `next` are commands.
    """

    headline: str = ""
    code: str = ""
    message: str = ""
    location: str = ""
    source: str = ""
    task: str = ""
    silent: str = ""
    meaning: str = ""
    tail: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    advice: str = ""
    fix: str = ""
    next: str = ""


def explain_end(verdict: Verdict, command: str) -> Explanation:
    """Explain an end by its cause, by ranks that ran alone, or by what nodes report; hints begin with `command`."""
    if verdict.cause is not None:
        return explain_cause(verdict.cause, verdict.run_id, command)
    return explain_alone(verdict, command) or Explanation(reasons=tuple(list_reasons(verdict)))


def explain_cause(
    cause: Cause, run_id: str, command: str, room: int = HEADLINE, measure: Callable[[str], int] = len
) -> Explanation:
    """Explain a cause; `room` is what the headline has for the rank's message, `measure` the width of a text."""
    failure = cause.failure
    summary, message = _summarize(failure, room, measure)
    location, source = _find_location(failure)
    fix, more = _list_commands(cause, run_id, command)
    what = _describe_what(cause, summary)
    return Explanation(
        headline=tr("{process}: {what}", process=describe_process(failure), what=what),
        code=(cause.symptom_match.symptom.code or "") if cause.symptom_match else "",
        message=message,
        location=location,
        source=source,
        task=_describe_ray_task(failure) if location else "",
        silent=_describe_silent(cause),
        meaning=_describe_meaning(cause, run_id),
        tail=tuple(clip(line, MAX_LINE) for line in failure.tail),
        also=tuple(_list_consequences(cause)),
        fix=fix,
        next=more,
    )


def explain_alone(verdict: Verdict, command: str) -> Explanation | None:
    """Explain that ranks certainly ran alone, and what helps; None for any other end."""
    if verdict.alone is None or not is_certain(verdict.alone):
        return None
    message, advice = describe_alone(verdict.alone)
    logs = command_line("logs", short_id(verdict.run_id), command=command)
    return Explanation(headline=message, code=ALONE_CODE, advice=advice, next=f"{logs} --rank 0")


def list_reasons(verdict: Verdict) -> list[str]:
    """Return why each part ended as it did, where no cause was found."""
    if verdict.state == SUCCEEDED:
        return []
    groups = group_values((reason, name) for name, reason in verdict.reasons.items())
    return [
        tr("{process}: {what}", process=fold_names(names), what=clip(translate_node_text(reason), MAX_LINE))
        for reason, names in groups.items()
    ]


def describe_cause(cause: Cause) -> str:
    """Return in a few words what failed first: `r1 gpu02: CUDA out of memory (tried 20.00 GiB)`."""
    failure = cause.failure
    process = failure.node if failure.rank is None else f"r{failure.rank} {failure.node}"
    what = _describe_what(cause, _summarize(failure, MAX_SUMMARY, len)[0])
    return tr("{process}: {what}", process=process, what=what)


def describe_process(failure: Failure) -> str:
    """Name the process that failed: a rank, a node, or its torchrun."""
    if failure.rank is not None:
        return tr("rank {rank} on {node}", rank=failure.rank, node=failure.node)
    return failure.node if failure.reason else tr("torchrun on {node}", node=failure.node)


def _summarize(failure: Failure, room: int, measure: Callable[[str], int]) -> tuple[str, str]:
    """Shorten an exception to a headline; the second text is the whole, if something is missing in the first."""
    whole = clip(strip_rank(failure.exception), MAX_LINE)
    memory = _OUT_OF_MEMORY.match(whole)
    if memory:
        tried = tr("{what} (tried {size})", what=memory["what"], size=memory["size"])
        return tried, whole
    if measure(whole) <= room:
        return whole, ""
    first = _SENTENCE_END.split(whole, maxsplit=1)[0]
    if len(first) < len(whole) and measure(first) <= max(room, MAX_SUMMARY):
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


def _describe_end(cause: Cause) -> str:
    if cause.left:
        return tr("stopped after it had closed its connections")
    if not cause.stopped:
        return _describe_ending(cause.failure)
    if cause.failure.suspended:
        return tr("it was suspended by SIGSTOP")
    return tr("ended with the run") if cause.waited_for else tr("stopped while it cleaned up")


def _describe_ending(failure: Failure) -> str:
    """Describe how a process ended in the user's language; a lost node has no process that did."""
    if failure.lost and failure.signal is None and failure.exit is None:
        return tr("the node is lost: {why}", why=translate_node_text(failure.reason.removeprefix("lost: ")))
    return translate_node_text(render_ending(failure))


def _find_location(failure: Failure) -> tuple[str, str]:
    """Return where the exception was raised in the user's own code: `train.py:19`, and that line."""
    if len(failure.own_frame) < 2 or not failure.exception:
        return "", ""
    file, line, *source = failure.own_frame
    return f"{as_in_project(file)}:{line}", "".join(source)


def _describe_ray_task(failure: Failure) -> str:
    if len(failure.ray_task) < 2:
        return ""
    task, node = failure.ray_task
    return tr("in {task} on {node}", task=task, node=node)


def _describe_silent(cause: Cause) -> str:
    if not cause.silent:
        return ""
    ranks = _fold_ranks(cause.silent)
    if cause.symptom_match is not None and cause.symptom_match.symptom.grade == "waited":
        return tr("it timed out waiting for one of these, which reported nothing: {ranks}", ranks=ranks)
    return tr("one of these closed the connection, and none of them reported an error: {ranks}", ranks=ranks)


def _describe_meaning(cause: Cause, run_id: str) -> str:
    if cause.symptom_match is None:
        return ""
    title, advice = describe_symptom(cause, run_id)
    return tr("{meaning}. {advice}", meaning=title[:1].upper() + title[1:], advice=advice)


def _list_commands(cause: Cause, run_id: str, command: str) -> tuple[str, str]:
    """Return the command that the meaning advises, and the one that shows more; without one an empty text."""
    failure, run = cause.failure, short_id(run_id)  # the full id would not fit into 80 columns
    selector = ("--nodes", failure.node) if failure.rank is None else ("--rank", str(failure.rank))
    advised = advised_command(cause, run_id, run)
    logs = command_line("logs", run, *selector, command=command)
    return f"{command}{advised.removeprefix('clusterctl')}" if advised else "", "" if failure.lost else logs


def _list_consequences(cause: Cause) -> list[str]:
    """Fold what followed by what it reported, numbers aside: `6 ranks on gpu[01-03]: connection closed by peer`."""
    groups: dict[str, list[tuple[Failure, str]]] = {}
    ended = {(failure.node, failure.rank) for failure in cause.ended}
    for failure in cause.consequences:
        ended_with_run = (failure.node, failure.rank) in ended
        summary = tr("stopped by clusterctl") if ended_with_run else _describe_consequence(failure)
        groups.setdefault(_NUMBER.sub("0", summary), []).append((failure, summary))
    ordered = sorted(groups.values(), key=len, reverse=True)
    lines = [_render_group([failure for failure, _ in group], group[0][1]) for group in ordered[:MAX_GROUPS]]
    others = [failure for group in ordered[MAX_GROUPS:] for failure, _ in group]
    return lines + ([_render_group(others, tr("other messages"))] if others else [])


def _render_group(failures: Sequence[Failure], summary: str) -> str:
    return tr("{process}: {what}", process=_fold_ranks(failures), what=summary)


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


def _describe_consequence(failure: Failure) -> str:
    symptom_match = find_symptom(failure)
    if symptom_match is not None and symptom_match.text:
        return _lower_first(" ".join(symptom_match.text.split()))[:MAX_SUMMARY]
    exception = strip_rank(failure.exception)
    if exception:
        return exception[:MAX_SUMMARY] + ("..." if len(exception) > MAX_SUMMARY else "")
    if failure.after_stop and failure.rank is not None:
        return tr("{end} after the stop", end=_describe_ending(failure))
    return _describe_ending(failure)


def _lower_first(text: str) -> str:
    """Begin with a small letter, unless the first word is a name: ModuleNotFoundError, NCCL, `Exception:`."""
    first_word = text.partition(" ")[0]
    is_name = first_word != first_word.capitalize() or first_word.endswith(":")
    return text if is_name else f"{text[:1].lower()}{text[1:]}"
