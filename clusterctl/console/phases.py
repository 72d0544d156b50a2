"""The phases of a verb on the screen: one line each, and while they are under way, who is awaited."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from clusterctl.console.choice import is_quiet, is_verbose, say
from clusterctl.console.display import Display
from clusterctl.console.progress import Awaited, Progress, render_size
from clusterctl.specs.counted import counted
from clusterctl.specs.nodeset import fold_names

if TYPE_CHECKING:
    from clusterctl.runs.steps import Steps

Detail = Callable[[], str]

CODE = "code"  # the phase in which bytes leave
_WIDTH = 7


class Phases:
    """Counts nodes through phases that may overlap; what moves is the display's.

    Nodes arrive from many threads.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)
        self._lock = threading.RLock()
        self._steps: Steps | None = None
        self._display: Display | None = None
        self._began = self._first_sent = 0.0
        self._pending: dict[str, dict[str, None]] = {}  # by phase, in the order of the nodes
        self._failed: set[str] = set()
        self._details: Mapping[str, Detail] = {}
        self._sent: dict[str, int] = {}
        self._moved: dict[str, float] = {}
        self._turned = ""

    def look_at(self, steps: Steps) -> None:
        """Show of a node that is awaited what these steps say."""
        self._steps = steps

    def begin(self, *phases: str, details: Mapping[str, Detail] | None = None) -> None:
        """Enter phases that run side by side; `details` are asked for when a phase ends by itself."""
        self.stop()
        self._began, self._first_sent, self._turned = time.monotonic(), 0.0, ""
        self._sent, self._moved, self._failed = {}, {}, set()
        self._pending = {phase: dict.fromkeys(self._names) for phase in phases}
        self._details = details or {}
        if not is_quiet():
            self._display = Display(self.look)

    def arrive(self, phase: str, name: str) -> None:
        """Note that a node is through a phase; a phase with a detail ends when the last node is."""
        with self._lock:
            if is_verbose():
                say(f"    {name} {phase} {self._seconds():.2f} s")
            waiting = self._pending.get(phase, {})
            waiting.pop(name, None)
            if not waiting and phase in self._details and phase in self._pending:
                self._write(phase, self._details[phase]())

    def fail(self, name: str) -> None:
        """Note that a node will not arrive: nobody waits for it."""
        with self._lock:
            self._failed.add(name)

    def note(self, name: str, what: str) -> None:
        """Note what a node is at."""
        if self._steps is not None:
            self._steps.note(name, what)

    def turn(self, what: str) -> None:
        """Note what all do together now."""
        self._turned = what

    def move(self, name: str, count: int) -> None:
        """Note that bytes of code have left for a node."""
        with self._lock:
            self._moved[name] = time.monotonic()
            self._first_sent = self._first_sent or self._moved[name]
            self._sent[name] = self._sent.get(name, 0) + count

    @property
    def sent(self) -> int:
        """Give the bytes that left since the phases began."""
        with self._lock:
            return sum(self._sent.values())

    @contextmanager
    def shown(self, phase: str, steps: Steps) -> Iterator[None]:
        """Show a phase for the length of a block; no line of it remains."""
        self.look_at(steps)
        self.begin(phase)
        try:
            yield
        finally:
            self.stop()

    def end(self, phase: str, detail: str = "") -> None:
        """Leave the last of the phases and write its line."""
        self.stop()
        self._write(phase, detail)

    def stop(self) -> None:
        """Take what moves off the screen, whatever happened."""
        display, self._display = self._display, None
        if display is not None:
            display.close()

    def look(self) -> Progress:
        """Say how far the nodes are."""
        with self._lock:
            now, taking = time.monotonic(), self._pending.get(CODE, {})
            sent = self.sent if taking.keys() - self._failed else 0  # bytes belong to the phase of the code
            through = [(phase, self._count(phase)) for phase in self._pending]
            last = next((waiting for waiting in reversed(self._pending.values())), {})
            left = [name for name in last if name not in self._failed]
            begun = [name for name in left if self._steps is None or self._steps.find(name)]
            awaited = sorted((self._await(name, now) for name in begun), key=lambda one: -one.seconds)
            seconds, failed = now - self._began, len(self._failed)
            rate = sent / max(0.1, now - self._first_sent)
            total, queued = len(self._names), len(left) - len(begun)
            return Progress(through, total, seconds, awaited, queued, failed, sent, rate, self._turned)

    def _await(self, name: str, now: float) -> Awaited:
        step = self._steps.find(name) if self._steps is not None else None
        since = max(self._began, step.since if step else 0.0, self._moved.get(name, 0.0))
        sent = self._sent.get(name, 0) if name in self._pending.get(CODE, ()) else 0
        return Awaited(name, step.what if step else "at work", now - since, sent)

    def _count(self, phase: str) -> int:
        """Count the nodes that are through a phase."""
        return len(self._names) - len(self._pending.get(phase, {}).keys() | self._failed)

    def _write(self, phase: str, detail: str) -> None:
        line = f"  {phase:<{_WIDTH}} {self._count(phase)}/{counted(len(self._names), 'node')}"
        say(f"{line}  {self._seconds():.1f} s  {detail}".rstrip())
        self._pending.pop(phase, None)

    def _seconds(self) -> float:
        return time.monotonic() - self._began


def render_supply(made: Mapping[str, bool], sent: int) -> str:
    """Say on which nodes a setup had to be carried out."""
    where = sorted(name for name, is_new in made.items() if is_new)
    return f"made on {fold_names(where)}; {render_size(sent)} sent" if where else "was there"


def render_freight(files: int, size: int, sent: int) -> str:
    """Say how much code there is and how much of it had to travel."""
    return f"{files} files, {render_size(size)}; {render_size(sent)} sent"
