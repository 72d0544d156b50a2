"""Run a program of the user's own on this machine: no shell, input from us, words to stderr, bounded time."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress

STDERR = 2
ENDING = 2.0  # seconds between TERM and KILL


def run_command(command: Sequence[str], text: str, folder: str, limit: float) -> str:
    """Give it a text on stdin and wait; gives how it failed, or nothing. Its whole session ends at the limit."""
    try:
        child = subprocess.Popen(
            list(command),
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=STDERR,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return f"cannot be run: {error.strerror if isinstance(error, OSError) else error}"
    try:
        with suppress(BrokenPipeError):  # it need not read
            child.communicate(text.encode("utf-8", "replace"), timeout=limit)
        status = child.wait(limit)
    except subprocess.TimeoutExpired:
        _end(child)
        return f"was ended after {limit:g} s"
    except BaseException:
        _end(child)
        raise
    if status < 0:
        return f"was killed by signal {-status}"
    return f"ended with exit code {status}" if status else ""


def _end(child: subprocess.Popen[bytes]) -> None:
    """End its whole session: what it started and left behind is killed too."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        with suppress(subprocess.TimeoutExpired):
            child.wait(ENDING)
    if child.stdin is not None:
        with suppress(OSError):
            child.stdin.close()
