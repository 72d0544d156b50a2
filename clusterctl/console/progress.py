"""Phases of a command, live or as lines."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from clusterctl.console.terminal import err, is_quiet, is_verbose, say
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import counted

if TYPE_CHECKING:
    from clusterctl.client.rpc.fanout import Steps


SHOWN = 3  # the nodes that are waited for longest
WIDEST_NAME = 24


@dataclass(frozen=True)
class Awaited:
    """A node that is not through: what it is at, for how many seconds, and the bytes it was sent so far."""

    name: str
    what: str
    seconds: float
    sent: int = 0


@dataclass(frozen=True)
class Progress:
    """Phases side by side, each with the number of nodes that are through; `awaited` has the slowest first.

    `rate` is in bytes per second; `turned` names what all do together once everybody is through.
    """

    through: Sequence[tuple[str, int]]
    total: int
    seconds: float
    awaited: Sequence[Awaited] = ()
    queued: int = 0
    failed: int = 0
    sent: int = 0
    rate: float = 0.0
    turned: str = ""


def render_lines(progress: Progress) -> list[str]:
    """Write the overall line, then the slowest nodes with what they are at."""
    shown = progress.awaited[:SHOWN]
    width = min(WIDEST_NAME, max((len(one.name) for one in shown), default=0))
    lines = [f"{_overall(progress)}  {progress.seconds:.1f} s{_freight(progress)}"]
    lines += [f"  {one.name:<{width}}  {one.seconds:5.1f} s  {_doing(one)}" for one in shown]
    if rest := _rest(progress):
        lines.append(f"  {rest}")
    elif progress.turned and not shown:
        lines.append(f"  {progress.turned}")
    return lines


def render_sentence(progress: Progress) -> str:
    """Say in one plain line what is still awaited."""
    shown = [f"{one.name} ({_doing(one)}, {one.seconds:.0f} s)" for one in progress.awaited[:SHOWN]]
    waiting = ", ".join(filter(None, [*shown, _rest(progress)]))
    text = f"{_overall(progress)} after {progress.seconds:.0f} s{_freight(progress)}"
    return "; ".join(filter(None, [text, f"waiting for {waiting}" if waiting else progress.turned]))


def _overall(progress: Progress) -> str:
    counts = "  ".join(f"{phase} {count}/{progress.total}" for phase, count in progress.through)
    failed = f", {progress.failed} failed" if progress.failed else ""
    return f"{counts} {counted(progress.total, 'node').partition(' ')[2]}{failed}"


def _freight(progress: Progress) -> str:
    if not progress.sent:
        return ""
    return f"  {render_size(progress.sent)} sent, {render_size(int(progress.rate))}/s"


def _doing(one: Awaited) -> str:
    return f"{one.what}, {render_size(one.sent)} sent" if one.sent else one.what


def _rest(progress: Progress) -> str:
    more = len(progress.awaited) - len(progress.awaited[:SHOWN])
    told = [f"{more} more" if more else "", f"{progress.queued} not begun" if progress.queued else ""]
    return ", ".join(filter(None, told))


def render_size(size: int) -> str:
    """Write a number of bytes for people."""
    from rich.filesize import decimal

    return decimal(size)


CALM = 0.3  # seconds in which a phase may end without anything having moved
TICK = 0.2
SENTENCE_EVERY = 10.0
LEAVE_LIMIT = 2.0  # seconds that the lines may take to go


def can_move(stream: TextIO) -> bool:
    """Tell whether lines can be taken back; NO_COLOR speaks of colours only."""
    return stream.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


class Display:
    """Shows what `look` gives until it is closed, from a thread of its own."""

    def __init__(self, look: Callable[[], Progress]) -> None:
        self._look = look
        self._over = threading.Event()
        show = self._move if can_move(sys.stderr) else self._speak
        self._thread = threading.Thread(target=show, name="progress", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Take the lines off the screen."""
        self._over.set()
        self._thread.join(LEAVE_LIMIT)

    def _move(self) -> None:
        if self._over.wait(CALM):
            return
        from rich.console import Group
        from rich.live import Live
        from rich.text import Text

        def lines() -> Group:
            head, *nodes = render_lines(self._look())
            styled = [Text(head, style="bold"), *(Text(node, style="dim") for node in nodes)]
            for line in styled:
                line.no_wrap, line.overflow = True, "ellipsis"
            return Group(*styled)

        # What is printed to stdout is a result, and goes where stdout goes.
        live = Live(lines(), console=err(), auto_refresh=False, transient=True, redirect_stdout=False)
        with live:
            live.console.show_cursor(True)  # whatever ends us, the terminal is left whole
            while not self._over.wait(TICK):
                live.update(lines(), refresh=True)

    def _speak(self) -> None:
        while not self._over.wait(SENTENCE_EVERY):
            say(f"  {render_sentence(self._look())}")


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
