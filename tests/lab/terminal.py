"""Talk to a command on a terminal of its own: wait for each question, then type the answer."""

from __future__ import annotations

import os
import pty
import select
import time
from collections.abc import Mapping, Sequence
from contextlib import closing


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
    until = time.monotonic() + 30
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
