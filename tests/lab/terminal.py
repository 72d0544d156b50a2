"""Talk to a command on a terminal of its own: wait for each question, then type the answer."""

from __future__ import annotations

import os
import pty
import re
import select
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing

from waiting import HANG


def converse(
    words: Sequence[str], environment: Mapping[str, str], answers: Sequence[tuple[str, str]]
) -> tuple[int, str]:
    """Run a command to its end; gives its exit code and all that was on the screen."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(words[0], list(words), dict(environment))
    seen = ""
    with closing(os.fdopen(terminal, "rb", buffering=0)) as screen:
        for question, answer in answers:
            seen = read_on(screen.fileno(), seen, question)
            os.write(screen.fileno(), f"{answer}\n".encode())
            seen += "\n"
        seen = read_on(screen.fileno(), seen, None)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), seen


def read_on(terminal: int, seen: str, question: str | None) -> str:
    """Read until a question stands in the last line, or to the end."""
    until = time.monotonic() + HANG
    while question is None or question not in seen.rpartition("\n")[2]:
        assert time.monotonic() < until, f"{question!r} was not asked; seen: {seen}"
        if not select.select([terminal], [], [], 1.0)[0]:
            continue
        try:
            more = os.read(terminal, 4096)
        except OSError:  # the other end is gone
            more = b""
        if not more:
            assert question is None, f"{question!r} was not asked; seen: {seen}"
            return seen
        seen += more.decode()
    return seen


def act_on(
    words: Sequence[str],
    environment: Mapping[str, str],
    deeds: Sequence[tuple[str, Callable[[int], object]]],
) -> tuple[int, str]:
    """Run a command; when a text has come since the last deed, the next is done, given the terminal.

    Gives its exit code and all that it wrote.
    """
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(words[0], list(words), dict(environment))
    seen = ""
    with closing(os.fdopen(terminal, "rb", buffering=0)) as screen:
        for text, deed in deeds:
            seen += read_to(screen.fileno(), text)
            deed(screen.fileno())
        seen = read_on(screen.fileno(), seen, None)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), seen


def read_to(terminal: int, text: str) -> str:
    """Read until a text has come."""
    until, seen = time.monotonic() + HANG, ""
    while text not in seen:
        assert time.monotonic() < until, f"{text!r} did not come; seen: {seen}"
        if select.select([terminal], [], [], 1.0)[0]:
            seen += os.read(terminal, 4096).decode()
    return seen


_PIECE = re.compile(r"\x1b\[(\??[0-9;]*)([A-Za-z])|(\r)|(\n)|([^\x1b\r\n]+)")


def what_remains(written: str) -> list[str]:
    """Give the lines that stand on a terminal in the end; it knows what a live display needs, and no more."""
    lines, row = [""], 0
    for match in _PIECE.finditer(written):
        number, kind, back, newline, text = match.groups()
        if kind == "A":
            row = max(0, row - int(number or 1))
        elif kind == "K" or back:
            lines[row] = "" if kind else lines[row]
        elif newline:
            row += 1
            lines += [""] * (row - len(lines) + 1)
        elif text:
            lines[row] += text
    return lines
