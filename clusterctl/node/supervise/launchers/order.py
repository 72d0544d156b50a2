"""What the programs of a node under `launcher: ray` and `launcher: mpirun` have in common: how they begin and end."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress


def read_stdin() -> bytes:
    """Read the order, which the gate has sent, to its end; what this process starts has an empty stdin."""
    with open(0, "rb", closefd=False) as source:
        content = source.read()
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    return content


def report(text: str, prefix: str = "clusterctl: ") -> None:
    """Write to stderr, which is the rank's."""
    print(prefix + text, file=sys.stderr, flush=True)


def exit_as(code: int) -> int:
    """Return the exit code, or end by the signal that ended the program."""
    if code < 0:
        with suppress(OSError, ValueError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code
