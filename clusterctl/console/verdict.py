"""The end of a run on the screen: the cause first, its last words, the consequences folded, what to type next."""

from __future__ import annotations

import sys

from clusterctl.console.choice import wants_color
from clusterctl.console.sanitize import sanitize
from clusterctl.plans.cause import Cause, Failure, render_ending, strip_rank
from clusterctl.plans.state import LOST, SUCCEEDED
from clusterctl.plans.verdict import Verdict
from clusterctl.specs.nodeset import fold_names

_RED, _GREEN, _PLAIN = "\x1b[1;31m", "\x1b[1;32m", "\x1b[0m"


def show_verdict(verdict: Verdict, seconds: float, command: str = "clusterctl") -> None:
    """Write the verdict to stderr; `command` is how the hints begin."""
    shade = _GREEN if verdict.state == SUCCEEDED else _RED
    state = f"{shade}{verdict.state}{_PLAIN}" if wants_color(sys.stderr) else verdict.state
    lines = [] if verdict.cause is None else render_cause(verdict.cause, f"{command} logs {verdict.run}")
    lines += [*_render_reasons(verdict), *_render_left(verdict, f"{command} stop {verdict.run}")]
    last = f"{verdict.run}: {state} after {seconds:.1f} s"
    print("\n".join([*map(sanitize, lines), last]), file=sys.stderr, flush=True)


def render_cause(cause: Cause, logs: str) -> list[str]:
    """Give the lines that name the root cause; `logs` is the command that shows more."""
    failure = cause.failure
    said = strip_rank(failure.exception)
    ending = "stopped while it cleaned up" if cause.stopped else render_ending(failure)
    lines = ["", f"root cause: {_place(failure)}, {ending}" + (f": {said}" if said else "")]
    if failure.tail:
        lines.append(f"  its last lines of stderr ({len(failure.tail)}):")
        lines += [f"  | {line}" for line in failure.tail]
    if cause.consequences:
        lines.append(f"  consequences: {render_consequences(cause.consequences)}")
    more = f"--rank {failure.rank}" if failure.rank is not None else f"--node {failure.node}"
    return lines if failure.lost else [*lines, f"  all of it: {logs} {more}"]


def _place(failure: Failure) -> str:
    if failure.rank is not None:
        return f"rank {failure.rank} on {failure.node}"
    return failure.node if failure.reason else f"torchrun on {failure.node}"


def render_consequences(failures: tuple[Failure, ...]) -> str:
    """Fold what followed: `exit code 1 on gpu02, killed by SIGTERM on gpu[03-04]`."""
    groups: dict[str, list[str]] = {}
    for failure in failures:
        groups.setdefault(render_ending(failure), []).append(failure.node)
    return "; ".join(f"{ending} on {fold_names(sorted(set(nodes)))}" for ending, nodes in groups.items())


def _render_reasons(verdict: Verdict) -> list[str]:
    """Say why each part ended as it did, where no cause has said so."""
    if verdict.state == SUCCEEDED or verdict.cause is not None:
        return []
    groups: dict[str, list[str]] = {}
    for name, reason in verdict.reasons.items():
        groups.setdefault(reason, []).append(name)
    return [f"{fold_names(names)}: {reason}" for reason, names in groups.items()]


def _render_left(verdict: Verdict, stop: str) -> list[str]:
    left = [
        f"could not be ended on {name}: {entry}"
        for name, entries in verdict.left.items()
        for entry in entries
    ]
    lost = [name for name, state in verdict.parts.items() if state == LOST]
    return left + ([f"not stopped there: {fold_names(lost)}; when it is back: {stop}"] if lost else [])
