"""How an error looks: one line with its code, the evidence, and the way out."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from shutil import get_terminal_size

from clusterctl.console.terminal import BOLD, RED, paint
from clusterctl.console.text import COMMAND, display_width, sanitize, wrap_command, wrap_prose
from clusterctl.errors import ClusterctlError, Issue, Location, SpecError, UsageError
from clusterctl.translation import tr, trn

_SUBJECT = re.compile("(.*?(?:: |\uff1a|$))(.*)")  # up to the first colon, which may be a Chinese one
_SOURCE = re.compile(r"    [\d ]+ \| ")  # a line of a file
_LABEL = re.compile(r" +\w+(?:: |\uff1a)")  # of a fix


class ShownErrors:
    """What a command has shown of errors, for its JSON: all, the one that ended it, and whether stdout has a result."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Begin a command."""
        self.shown: list[ClusterctlError] = []
        self.ending: ClusterctlError | None = None
        self.has_result = self.has_document = False


ERRORS = ShownErrors()


def show_error(error: ClusterctlError) -> None:
    """Write an error to stderr; on a terminal no word is broken."""
    ERRORS.shown.append(error)
    texts = render_spec_error(error) if isinstance(error, SpecError) else render_error(error)
    first_text, *more_texts = [sanitize(line) for text in texts for line in text.split("\n")]
    first_line, *more_lines = _wrap(first_text)
    more_lines += [line for text in more_texts for line in _wrap(text)]
    print("\n".join([_colorize(first_line), *more_lines]), file=sys.stderr, flush=True)


def _wrap(text: str) -> list[str]:
    """Break a line at the terminal's width, what follows behind its label; a command stays whole."""
    label = _LABEL.match(text)
    indent = " " * (display_width(label[0]) if label else 4)
    if not sys.stderr.isatty() or _SOURCE.match(text):
        return [text]
    if COMMAND.match(text[label.end() if label else 0 :]):
        command, *comment = wrap_command(text, get_terminal_size().columns)
        return [command, *(f"{indent}{line}" for line in comment)]
    start = text[: len(text) - len(text.lstrip())]
    width = get_terminal_size().columns - len(start)
    return [f"{start}{line}" for line in wrap_prose(text.lstrip(), width, indent[len(start) :])] or [""]


def render_error(error: ClusterctlError) -> list[str]:
    """Return an error's lines, the first of them the message."""
    subject = tr("error {code}", code=error.code)
    subject = tr("{subject}: {text}", subject=subject, text=error.node) if error.node else subject
    lines = [tr("{subject}: {text}", subject=subject, text=error.message)]
    if error.evidence:
        lines += [f"  {line}" for line in error.evidence.rstrip().split("\n")]
    if error.fix:
        lines.append("  " + tr("fix: {fix}", fix=error.fix))
    return lines


def render_spec_error(error: SpecError) -> list[str]:
    """Return the lines for a wrong file: every issue with its place, and each fix once."""
    count = len(error.issues)
    files = {issue.location.file for issue in error.issues if issue.location}
    if files:
        names = tr(", ").join(sorted(files))
        lines = [trn("error: {n} problem in {files}", "error: {n} problems in {files}", count, files=names)]
    else:
        lines = [trn("error: {n} problem", "error: {n} problems", count)]
    shown_fixes: set[str] = set()
    for issue in error.issues:
        lines += _render_issue(issue, error.texts, with_fix=issue.fix not in shown_fixes)
        shown_fixes.add(issue.fix)
    return lines


def _render_issue(issue: Issue, texts: Mapping[str, str], *, with_fix: bool) -> list[str]:
    location = f"{issue.location}: " if issue.location else ""
    lines = [f"{location}{issue.code} {issue.message}"]
    if issue.location and issue.location.file in texts and issue.code not in OF_THE_WHOLE_FILE:
        lines += _render_source(issue.location, texts[issue.location.file])
    return [*lines, "    " + tr("fix: {fix}", fix=issue.fix)] if issue.fix and with_fix else lines


OF_THE_WHOLE_FILE = ("CC-SPEC-008", "CC-SPEC-011", "CC-SPEC-030")  # another kind of file, and what is missing
SOURCE_WIDTH = 70  # columns of a line of a file


def _render_source(location: Location, text: str) -> list[str]:
    """Show the line of the file with a mark under the place, as compilers do; of a long line the part around it."""
    lines = text.split("\n")
    line = (
        sanitize(lines[location.line - 1].rstrip("\r").replace("\t", " "))
        if location.line <= len(lines)
        else ""
    )
    column = location.column - 1
    if not line.strip() or column > len(line):
        return []
    start = (
        max(0, min(column - SOURCE_WIDTH // 2, len(line) - SOURCE_WIDTH)) if len(line) > SOURCE_WIDTH else 0
    )
    shown, number = line[start : start + SOURCE_WIDTH], str(location.line)
    mark = " " * display_width(shown[: column - start])
    return [f"    {number} | {shown}", f"    {' ' * len(number)} | {mark}^"]


def show_usage_error(problem: str, command: str, program: str = "", forwarded: str = "") -> None:
    """Write a mistake on the command line to stderr; `program` is what receives its own options after `--`.

    `forwarded` is the command with the unknown option there.
    """
    case = "forwarded" if program and forwarded else "program" if program else ""
    facts = {"problem": problem, "command": command, "program": program, "forwarded": forwarded}
    show_error(UsageError("CC-USE-001", case, **facts))


def _colorize(first_line: str) -> str:
    label, message = _SUBJECT.match(first_line).groups()  # type: ignore[union-attr]  # it matches any line
    return paint(label, f"{BOLD};{RED}", sys.stderr) + paint(message, BOLD, sys.stderr)
