"""The end of a run on the screen: the cause first, its last words, the consequences folded, what to type next."""

from __future__ import annotations

import sys

from clusterctl.console.choice import wants_color
from clusterctl.console.sanitize import sanitize
from clusterctl.plans.cause import TAIL_LINES, Cause, Failure, render_ending
from clusterctl.plans.state import SUCCEEDED
from clusterctl.plans.verdict import Verdict
from clusterctl.specs.nodeset import fold_names

_RED, _GREEN, _PLAIN = "\x1b[1;31m", "\x1b[1;32m", "\x1b[0m"


def show_verdict(verdict: Verdict, seconds: float) -> None:
    """Write the verdict to stderr."""
    color = wants_color(sys.stderr)
    shade = _GREEN if verdict.state == SUCCEEDED else _RED
    state = f"{shade}{verdict.state}{_PLAIN}" if color else verdict.state
    lines = [] if verdict.cause is None else render_cause(verdict.cause, verdict.run)
    lines += _render_reasons(verdict)
    lines += [
        f"could not be ended on {name}: {entry}" for name, left in verdict.left.items() for entry in left
    ]
    print(
        "\n".join([*map(sanitize, lines), f"{verdict.run}: {state} after {seconds:.1f} s"]), file=sys.stderr
    )
    sys.stderr.flush()


def render_cause(cause: Cause, run: str) -> list[str]:
    """Give the lines that name the root cause."""
    failure = cause.failure
    who = (
        f"rank {failure.rank} on " if failure.rank is not None else "torchrun on " if not failure.lost else ""
    )
    ending = "stopped while it cleaned up" if cause.stopped else render_ending(failure)
    head = f"root cause: {who}{failure.node}, {ending}" + (f": {cause.exception}" if cause.exception else "")
    lines = ["", head]
    if failure.tail:
        lines.append(f"  its last lines of stderr ({min(len(failure.tail), TAIL_LINES)}):")
        lines += [f"  | {line}" for line in failure.tail[-TAIL_LINES:]]
    if cause.consequences:
        lines.append(f"  consequences: {render_consequences(cause.consequences)}")
    rank = f" --rank {failure.rank}" if failure.rank is not None else f" --node {failure.node}"
    return [*lines, f"  all of it: clusterctl logs {run}{rank}"]


def render_consequences(failures: tuple[Failure, ...]) -> str:
    """Fold what followed: `rank 1 exit code 1 on gpu02, killed by SIGTERM on gpu[03-04]`."""
    groups: dict[str, list[str]] = {}
    for failure in failures:
        groups.setdefault(render_ending(failure), []).append(failure.node)
    return "; ".join(f"{ending} on {fold_names(sorted(set(nodes)))}" for ending, nodes in groups.items())


def _render_reasons(verdict: Verdict) -> list[str]:
    if verdict.state == SUCCEEDED or verdict.cause is not None:
        return []
    return [f"{name}: {reason}" for name, reason in verdict.reasons.items()]
