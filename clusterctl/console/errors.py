"""How an error looks: one line with its code, the evidence, and the way out."""

from __future__ import annotations

import sys

from clusterctl.console.terminal import uses_color
from clusterctl.console.text import sanitize
from clusterctl.errors import ClusterctlError, Issue, SpecError, UsageError

_RED, _BOLD, _RESET = "\x1b[31m", "\x1b[1m", "\x1b[0m"


def show_error(error: ClusterctlError) -> None:
    """Write an error to stderr."""
    lines = render_spec_error(error) if isinstance(error, SpecError) else render_error(error)
    first_line, *more_lines = [sanitize(line) for text in lines for line in text.split("\n")]
    print("\n".join([_colorize(first_line), *more_lines]), file=sys.stderr, flush=True)


def render_error(error: ClusterctlError) -> list[str]:
    """Give an error's lines, the first of them the message."""
    node_prefix = f"{error.node}: " if error.node else ""
    lines = [f"error {error.code}: {node_prefix}{error.message}"]
    if error.evidence:
        lines += [f"  {line}" for line in error.evidence.rstrip().split("\n")]
    if error.fix:
        lines.append(f"  fix: {error.fix}")
    return lines


def render_spec_error(error: SpecError) -> list[str]:
    """Give the lines for a wrong file: every issue with its place, and each fix once."""
    issue_count = len(error.issues)
    files = {issue.location.file for issue in error.issues if issue.location}
    in_files = f" in {', '.join(sorted(files))}" if files else ""
    lines = [f"error: {issue_count} problem{'s' if issue_count > 1 else ''}{in_files}"]
    shown_fixes: set[str] = set()
    for issue in error.issues:
        lines += _render_issue(issue, with_fix=issue.fix not in shown_fixes)
        shown_fixes.add(issue.fix)
    return lines


def _render_issue(issue: Issue, *, with_fix: bool) -> list[str]:
    location = f"{issue.location}: " if issue.location else ""
    lines = [f"{location}{issue.code} {issue.message}"]
    return [*lines, f"    fix: {issue.fix}"] if issue.fix and with_fix else lines


def show_usage_error(problem: str, command: str, program: str = "") -> None:
    """Write a mistake on the command line to stderr; `program` is what receives its own options after `--`."""
    case = "forwarded" if program else ""
    show_error(UsageError("CC-USE-001", case, problem=problem, command=command, program=program))


def _colorize(first_line: str) -> str:
    if not uses_color(sys.stderr):
        return first_line
    label, colon, message = first_line.partition(": ")
    return f"{_BOLD}{_RED}{label}{colon}{_RESET}{_BOLD}{message}{_RESET}"
