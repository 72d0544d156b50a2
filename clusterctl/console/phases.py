"""The phases of a launch on the screen: one line each, and while they are under way, who is awaited."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from clusterctl.console.choice import is_quiet, is_verbose, say, wants_color
from clusterctl.specs.counted import counted
from clusterctl.specs.nodeset import fold_names

if TYPE_CHECKING:
    from rich.status import Status

Detail = Callable[[], str]

_WIDTH = 7


class Phases:
    """Counts nodes through phases that may overlap; a moving line on a terminal, plain lines elsewhere.

    Nodes arrive from many threads.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)
        self._lock = threading.RLock()
        self._live: Status | None = None
        self._began = 0.0
        self._pending: dict[str, list[str]] = {}
        self._details: Mapping[str, Detail] = {}
        self._sent = 0

    def begin(self, *phases: str, details: Mapping[str, Detail] | None = None) -> None:
        """Enter phases that run side by side; `details` are asked for when a phase ends by itself."""
        self._began, self._sent = time.monotonic(), 0
        self._pending = {phase: list(self._names) for phase in phases}
        self._details = details or {}
        if not is_quiet() and sys.stderr.isatty() and wants_color(sys.stderr):
            from clusterctl.console.choice import err

            self._live = err().status(self._awaiting())
            self._live.start()

    def arrive(self, phase: str, name: str) -> None:
        """Note that a node is through a phase; a phase with a detail ends when the last node is."""
        with self._lock:
            if is_verbose():
                say(f"    {name} {phase} {self._seconds():.2f} s")
            waiting = self._pending.get(phase, [])
            if name in waiting:
                waiting.remove(name)
            if not waiting and phase in self._details:
                self._write(phase, self._details[phase]())
            self._refresh()

    def move(self, count: int) -> None:
        """Note that bytes of code have left for some node."""
        with self._lock:
            self._sent += count
            self._refresh()

    @property
    def sent(self) -> int:
        """Give the bytes that left since the phases began."""
        return self._sent

    def end(self, phase: str, detail: str = "") -> None:
        """Leave the last of the phases and write its line."""
        self.stop()
        self._write(phase, detail)

    def stop(self) -> None:
        """Take the moving line off the screen, whatever happened."""
        with self._lock:
            if self._live is not None:
                self._live.stop()
                self._live = None

    def _write(self, phase: str, detail: str) -> None:
        done = len(self._names) - len(self._pending.pop(phase, ()))
        line = f"  {phase:<{_WIDTH}} {done}/{counted(len(self._names), 'node')}  {self._seconds():.1f} s"
        say(f"{line}  {detail}".rstrip())

    def _seconds(self) -> float:
        return time.monotonic() - self._began

    def _refresh(self) -> None:
        if self._live is not None and self._pending:
            self._live.update(self._awaiting())

    def _awaiting(self) -> str:
        phase, waiting = next(((p, names) for p, names in self._pending.items() if names), ("", []))
        if not phase:
            return ""
        sent = f", {render_size(self._sent)} of code sent" if self._sent else ""
        count = len(self._names) - len(waiting)
        return f"{phase}: {count}/{counted(len(self._names), 'node')}, waiting for {fold_names(waiting[:64])}{sent}"


def render_freight(files: int, size: int, sent: int) -> str:
    """Say how much code there is and how much of it had to travel."""
    return f"{files} files, {render_size(size)}; {render_size(sent)} sent"


def render_size(size: int) -> str:
    """Write a number of bytes for people."""
    from rich.filesize import decimal

    return decimal(size)
