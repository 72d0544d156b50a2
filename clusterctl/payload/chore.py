"""A process beside torchrun that does something for an attempt: its reports, its end, and the time that it may take."""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from typing import Any, Callable, Dict, List, Mapping, Optional

from .launcher import restore_signals
from .loop import Loop
from .processes import die_with_parent
from .start import interpreter_options
from .verdict import describe_end, describe_limit, split_status

Report = Dict[str, Any]


class Chore:
    """One role of the payload as a child of the agent; `heard` takes its reports, the last is `done` or `failed`."""

    def __init__(self, loop: Loop, role: str, heard: Callable[[Report], None]) -> None:
        self._loop = loop
        self._role = role
        self._heard = heard
        self._reports = b""
        self._reader = -1
        self._over = False
        self._limit = 0.0
        self.pid: Optional[int] = None

    def start(self, words: List[str], log: str, env: Mapping[str, str], limit: float) -> None:
        """Fork it; the descriptor of its reports is its last word."""
        self._reader, writer = os.pipe()
        os.set_blocking(self._reader, False)
        agent = os.getpid()
        argv = [sys.executable, *interpreter_options(), sys.argv[0], self._role, *words, str(writer)]
        self.pid = os.fork()
        if self.pid == 0:
            become(agent, argv, log, writer, env)
        os.close(writer)
        self._loop.watch(self._reader, self._read)
        self._limit = limit
        self._count()

    def _count(self) -> None:
        """Give it its time, from now on."""
        told = "took longer than its %s" % describe_limit(self._limit)
        self._loop.after(self._limit, self._role, lambda: self._fail(told, overdue=True))

    def reaped(self, pid: int, status: int) -> None:
        """Take the end of a child: one that ended before its last report has failed."""
        if pid == self.pid:
            self._read()
            self.pid = None
            self._fail(describe_end(*split_status(status)))
            self._forget()

    def _read(self) -> None:
        while self._reader >= 0:
            try:
                piece = os.read(self._reader, 1 << 16)
            except BlockingIOError:
                break
            if not piece:
                self._forget()
                break
            self._reports += piece
        *lines, self._reports = self._reports.split(b"\n")
        for line in lines:
            with suppress(ValueError):
                self._take(json.loads(line.decode("utf-8")))

    def _take(self, report: Report) -> None:
        if report.get("begins") and not self._over:
            self._count()
        elif not self._over:
            if "doing" not in report:
                self._end()
            self._heard(report)

    def _fail(self, how: str, *, overdue: bool = False) -> None:
        self._take({"failed": {"reason": how, "text": "", "code": "", "again": "", "overdue": overdue}})

    def _end(self) -> None:
        self._over = True
        self._loop.drop(self._role)

    def _forget(self) -> None:
        if self._reader >= 0:
            self._loop.forget(self._reader)
            os.close(self._reader)
            self._reader = -1


def become(agent: int, argv: List[str], log: str, report: int, env: Mapping[str, str]) -> None:
    """Take the log as output and exec, in a session of its own."""
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDONLY)
        sink = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        os.dup2(null, 0)
        os.dup2(sink, 1)
        os.dup2(sink, 2)
        restore_signals()
        die_with_parent(signal.SIGTERM)
        os.set_inheritable(report, True)
        if os.getppid() == agent:  # else it died before its death could be announced
            os.execve(argv[0], argv, dict(env))
    except BaseException as error:  # noqa: BLE001, RUF100 - this is a forked child: nothing may return from here
        os.write(2, f"cannot start {argv[0]}: {error}\n".encode("utf-8", "replace"))
    finally:
        os._exit(127)


def tell(report: int, entry: Report) -> None:
    """Write one report; an agent that is gone ends us by other means."""
    with suppress(OSError):
        os.write(report, json.dumps(entry).encode("utf-8") + b"\n")
