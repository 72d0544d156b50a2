"""The processes that the sessions of a node without namespaces have started."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from subprocess import Popen


class Child:
    """A process that a session started; `status` is its exit code, 128 and the signal's number, or None."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.status: int | None = None
        self.ended = threading.Event()


class Children:
    """The processes that sessions have started; one thread reaps for all, because orphans come here as well."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[int, Child] = {}

    def start(
        self, argv: Sequence[str], cwd: str, env: dict[str, str], streams: tuple[int, int, int]
    ) -> Child:
        """Start a process in a session of its own; OSError if it cannot be."""
        stdin, stdout, stderr = streams
        with self._lock:  # reaped only after it is known
            process = Popen(
                argv, cwd=cwd, env=env, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True
            )
            process.returncode = 0  # it is reaped here, not by Popen
            child = self._known[process.pid] = Child(process.pid)
        return child

    def signal(self, child: Child, number: int) -> None:
        """Signal what is left of a child's process group, unless it has been reaped."""
        with self._lock, suppress(ProcessLookupError, PermissionError):
            if not child.ended.is_set():
                os.killpg(child.pid, number)

    def reap(self) -> None:
        """Collect all that has ended."""
        with self._lock, suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0] != 0:
                child = self._known.pop(found[0], None)
                if child is not None:
                    code = os.waitstatus_to_exitcode(found[1])
                    child.status = code if code >= 0 else 128 - code
                    child.ended.set()
