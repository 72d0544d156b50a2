"""The phases of a launch on the screen: one line each, and while one is under way, who is awaited."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from clusterctl.console.choice import is_quiet, is_verbose, say, wants_color
from clusterctl.specs.nodeset import fold_names

if TYPE_CHECKING:
    from rich.status import Status

_WIDTH = 7


class Phases:
    """Counts nodes through the phases; on a terminal the current phase moves, elsewhere it is one plain line."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)
        self._live: Status | None = None
        self._phase = ""
        self._pending: list[str] = []
        self._began = 0.0

    def begin(self, phase: str) -> None:
        """Enter a phase; all nodes are awaited."""
        self._phase, self._pending, self._began = phase, list(self._names), time.monotonic()
        if not is_quiet() and sys.stderr.isatty() and wants_color(sys.stderr):
            from clusterctl.console.choice import err

            self._live = err().status(self._awaiting())
            self._live.start()

    def arrive(self, phase: str, name: str) -> None:
        """Note that a node is through a phase."""
        if is_verbose():
            say(f"    {name} {phase} {time.monotonic() - self._began:.2f} s")
        if phase == self._phase and name in self._pending:
            self._pending.remove(name)
            if self._live is not None:
                self._live.update(self._awaiting())

    def end(self, detail: str = "") -> None:
        """Leave the phase and write its line."""
        self.stop()
        if not is_quiet():
            done = len(self._names) - len(self._pending)
            line = f"  {self._phase:<{_WIDTH}} {done}/{len(self._names)} nodes"
            seconds = time.monotonic() - self._began
            print(f"{line}  {seconds:.1f} s{'  ' + detail if detail else ''}", file=sys.stderr, flush=True)

    def stop(self) -> None:
        """Take the moving line off the screen, whatever happened."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _awaiting(self) -> str:
        waiting = fold_names(self._pending[:64]) if self._pending else ""
        count = len(self._names) - len(self._pending)
        return f"{self._phase}: {count}/{len(self._names)} nodes" + (
            f", waiting for {waiting}" if waiting else ""
        )


def render_freight(files: int, size: int, sent: int) -> str:
    """Say how much code there is and how much of it had to travel, both in bytes."""
    from rich.filesize import decimal

    return f"code {files} files, {decimal(size)}, {decimal(sent)} sent"
