"""Phases of a command, live or as lines."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from clusterctl.console.terminal import BOLD, can_redraw, info, is_quiet, is_verbose, paint, stderr, symbol
from clusterctl.console.text import display_width, fill_lines, sanitize
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import render_duration, render_seconds, render_size
from clusterctl.translation import tr, trn

if TYPE_CHECKING:
    from clusterctl.client.rpc.cluster import Outcome, Steps

T = TypeVar("T")


MAX_NODES = 3  # the nodes that are waited for longest
WIDEST_NAME = 24
SENT, RECEIVED, HASHED = "sent", "received", "hashed"


@dataclass(frozen=True)
class PendingNode:
    """A node that is not through: what it is at, for how many seconds, and the bytes to or from it so far."""

    name: str
    activity: str
    seconds: float
    transferred: int = 0


@dataclass(frozen=True)
class PhaseProgress:
    """Phases side by side, each with the number of nodes that are through; `pending` has the slowest first.

    `transferred` and `expected` are bytes, `rate` is bytes per second, and `direction` is what happens to them;
    `activity` names what all do together once everybody is through, or what this machine does where no node takes part.
    """

    completed: Sequence[tuple[str, int]]
    total: int
    seconds: float
    pending: Sequence[PendingNode] = ()
    queued: int = 0
    failed: int = 0
    transferred: int = 0
    expected: int = 0
    rate: float = 0.0
    direction: str = SENT
    activity: str = ""

    @property
    def takes_long(self) -> bool:
        """Whether what is left of a transfer takes longer than until the next plain line."""
        return self.transferred > 0 and self.expected - self.transferred > PLAIN_EVERY * self.rate


def render_lines(progress: PhaseProgress) -> list[str]:
    """Write the overall line, then the slowest nodes with what they are at."""
    shown = progress.pending[:MAX_NODES]
    width = min(WIDEST_NAME, max((len(node.name) for node in shown), default=0))
    seconds = render_seconds(progress.seconds)
    lines = [f"{_render_counts(progress)}  {seconds}{_render_transfer(progress)}"]
    lines += [
        f"  {node.name:<{width}}  {_render_wait(node)}  {_render_activity(node, progress.direction)}"
        for node in shown
    ]
    if remaining := _render_remaining(progress):
        lines.append(f"  {remaining}")
    elif progress.activity and not shown and progress.total:
        lines.append(f"  {progress.activity}")
    return lines


def _render_wait(node: PendingNode) -> str:
    return tr("{seconds:5.1f} s", seconds=node.seconds)


def render_plain(progress: PhaseProgress) -> str:
    """Return in one plain line which nodes are not through."""
    shown = [
        tr(
            "{node} ({activity}, {span})",
            node=node.name,
            activity=_render_activity(node, progress.direction),
            span=render_duration(node.seconds),
        )
        for node in progress.pending[:MAX_NODES]
    ]
    pending = tr(", ").join(filter(None, [*shown, _render_remaining(progress)]))
    facts = {
        "counts": _render_counts(progress),
        "span": render_duration(progress.seconds),
        "transfer": _render_transfer(progress),
    }
    if pending:
        return tr("{counts} after {span}{transfer}; waiting for {nodes}", nodes=pending, **facts)
    if progress.activity and progress.total:
        return tr("{counts} after {span}{transfer}; {activity}", activity=progress.activity, **facts)
    return tr("{counts} after {span}{transfer}", **facts)


def _render_counts(progress: PhaseProgress) -> str:
    if not progress.total:
        return progress.activity
    counts = "  ".join(f"{phase} {count}/{progress.total}" for phase, count in progress.completed)
    if progress.failed:
        return trn(
            "{counts} node, {failed} failed",
            "{counts} nodes, {failed} failed",
            progress.total,
            counts=counts,
            failed=progress.failed,
        )
    return trn("{counts} node", "{counts} nodes", progress.total, counts=counts)


def _render_transfer(progress: PhaseProgress) -> str:
    if not progress.transferred or 0 < progress.expected <= progress.transferred:  # now the nodes install
        return ""
    facts = {
        "size": render_size(progress.transferred),
        "total": render_size(progress.expected),
        "rate": f"{render_size(int(progress.rate))}/s",
    }
    if not progress.expected:
        return tr("  {size} sent, {rate}", **facts)
    remaining = progress.expected - progress.transferred
    facts["percent"] = f"{int(progress.transferred / progress.expected * 100)} %"
    if progress.rate < 1:
        return tr("  {percent} of {total}", **facts)
    facts["left"] = render_duration(remaining / progress.rate)
    return tr("  {percent} of {total}, {rate}, {left} left", **facts)


def _render_activity(node: PendingNode, direction: str) -> str:
    if not node.transferred:
        return node.activity
    size = render_size(node.transferred)
    if direction == RECEIVED:
        return tr("{activity}, {size} received", activity=node.activity, size=size)
    return tr("{activity}, {size} sent", activity=node.activity, size=size)


def _render_remaining(progress: PhaseProgress) -> str:
    hidden = len(progress.pending) - len(progress.pending[:MAX_NODES])
    texts = [
        tr("{n} more", n=hidden) if hidden else "",
        tr("{n} not started", n=progress.queued) if progress.queued else "",
    ]
    return tr(", ").join(filter(None, texts))


SHOW_AFTER = 0.3  # seconds in which a phase may end without anything having moved
REFRESH_EVERY = 0.2
STEADY = 1.0  # seconds within which nodes keep their order, so that their lines do not jump
PLAIN_EVERY = 10.0
FIRST_PLAIN = 0.5
CLOSE_LIMIT = 2.0  # seconds that the lines may take to go


class ProgressDisplay:
    """Shows what `snapshot` gives until it is closed, from a thread of its own; `heading` stands above it."""

    def __init__(self, snapshot: Callable[[], PhaseProgress], heading: Callable[[], Sequence[str]]) -> None:
        self._snapshot, self._heading = snapshot, heading
        self._closed = threading.Event()
        show = self._show_live if can_redraw(sys.stderr) else self._show_plain
        self._thread = threading.Thread(target=show, name="progress", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Take the lines off the screen."""
        self._closed.set()
        self._thread.join(CLOSE_LIMIT)

    def _show_live(self) -> None:
        if self._closed.wait(0.0 if self._heading() else SHOW_AFTER):
            return
        from rich.console import Group
        from rich.live import Live
        from rich.text import Text

        def render_group() -> Group:
            first_line, *node_lines = render_lines(self._snapshot())
            styled = [
                *(Text(line) for line in self._heading()),
                Text(first_line, style="bold"),
                *(Text(node_line, style="dim") for node_line in node_lines),
            ]
            for line in styled:
                line.no_wrap, line.overflow = True, "ellipsis"
            return Group(*styled)

        # What is printed to stdout is a result, and goes where stdout goes.
        live = Live(
            render_group(), console=stderr(), auto_refresh=False, transient=True, redirect_stdout=False
        )
        with live:
            live.console.show_cursor(True)  # whatever ends us, the terminal is left whole
            while not self._closed.wait(REFRESH_EVERY):
                live.update(render_group(), refresh=True)

    def _show_plain(self) -> None:
        """Write a line now and then; the first one soon where it is clear that the transfer takes long."""
        if not self._closed.wait(FIRST_PLAIN) and self._snapshot().takes_long:
            info(f"  {render_plain(self._snapshot())}")
        while not self._closed.wait(PLAIN_EVERY):
            info(f"  {render_plain(self._snapshot())}")


class HashProgress:
    """Counts the bytes of files that this machine hashes, and shows them while the block lasts."""

    def __init__(self, activity: str) -> None:
        self._activity, self._began = activity, time.monotonic()
        self._expected = self._hashed = 0

    def add_expected(self, count: int) -> None:
        """Add to the bytes that are to come."""
        self._expected += count

    def add_bytes(self, count: int) -> None:
        """Note that bytes are hashed; from many threads, of which one may get lost on the screen."""
        self._hashed += count

    @contextmanager
    def shown(self) -> Iterator[HashProgress]:
        """Show them for the length of a block."""
        display = None if is_quiet() else ProgressDisplay(self._snapshot, list)
        try:
            yield self
        finally:
            if display is not None:
                display.close()

    def _snapshot(self) -> PhaseProgress:
        seconds = time.monotonic() - self._began
        return PhaseProgress(
            completed=(),
            total=0,
            seconds=seconds,
            transferred=self._hashed,
            expected=self._expected,
            rate=self._hashed / max(0.1, seconds),
            direction=HASHED,
            activity=self._activity,
        )


Detail = Callable[[], tuple[str, str]]  # for the phase's line, and its name where phases share a line

TRANSFERS = {
    "code": SENT,
    "copy": SENT,
    "setup": SENT,
    "stage": SENT,
    "pull": RECEIVED,
}  # phases in which bytes are counted, and their direction
_WIDTH = 7


class Phases:
    """Counts nodes through phases that may overlap; what moves is the display's.

    Nodes arrive from many threads. `in_one_line`: on a terminal the phases that are over share a line, which `conclude`
    writes; elsewhere each has a line of its own.
    """

    def __init__(self, names: Sequence[str], *, in_one_line: bool = False) -> None:
        self._names = list(names)
        self._lock = threading.RLock()
        self._steps: Steps | None = None
        self._display: ProgressDisplay | None = None
        self._started = self._first_transfer = 0.0
        self._pending: dict[str, dict[str, None]] = {}  # by phase, in the order of the nodes
        self._failed: set[str] = set()
        self._details: Mapping[str, Detail] = {}
        chatty = not is_quiet() and not is_verbose()
        self._over: list[str] | None = [] if in_one_line and chatty and can_redraw(sys.stderr) else None
        self._title = ""
        self._ok, self._failed_mark = (symbol(name, sys.stderr) for name in ("ok", "failed"))
        self._expected = 0
        self._transferred: dict[str, int] = {}
        self._taken: dict[str, int] = {}
        self._last_transfer: dict[str, float] = {}
        self._activity = ""

    def set_steps(self, steps: Steps) -> None:
        """Show of a node that is awaited what these steps say."""
        self._steps = steps

    def start(self, *phases: str, details: Mapping[str, Detail] | None = None) -> None:
        """Enter phases that run side by side; `details` are asked for when a phase ends by itself."""
        self.stop()
        self._started, self._first_transfer, self._activity = time.monotonic(), 0.0, ""
        self._expected = 0
        self._transferred, self._taken, self._last_transfer, self._failed = {}, {}, {}, set()
        self._pending = {phase: dict.fromkeys(self._names) for phase in phases}
        self._details = details or {}
        if not is_quiet():
            self._display = ProgressDisplay(self.snapshot, self._heading)

    def mark_done(self, phase: str, name: str) -> None:
        """Note that a node is through a phase; a phase with a detail ends when the last node is."""
        with self._lock:
            if is_verbose():
                info(
                    tr("    {node} {phase} {seconds:.2f} s", node=name, phase=phase, seconds=self._elapsed())
                )
            pending = self._pending.get(phase, {})
            pending.pop(name, None)
            if not pending and phase in self._details and phase in self._pending:
                self._finish_phase(phase, *self._details[phase]())

    def follow(self, phase: str, outcomes: Iterable[Outcome[T]]) -> Iterator[Outcome[T]]:
        """Pass on what becomes of the nodes in a phase, and show it."""
        for outcome in outcomes:
            if outcome.error is None:
                self.mark_done(phase, outcome.node.name)
            else:
                self.mark_failed(outcome.node.name)
            yield outcome

    def mark_failed(self, name: str) -> None:
        """Mark a node as failed: it is not waited for."""
        with self._lock:
            self._failed.add(name)

    def set_step(self, name: str, step: str) -> None:
        """Note what a node is at."""
        if self._steps is not None:
            self._steps.set(name, step)

    def set_activity(self, activity: str) -> None:
        """Note what all do together now."""
        self._activity = activity

    def add_expected(self, count: int) -> None:
        """Add to the bytes that are to come."""
        with self._lock:
            self._expected += count

    def add_taken(self, name: str, count: int) -> None:
        """Note that a node got bytes from another node."""
        self._add(self._taken, name, count)

    def add_bytes(self, name: str, count: int) -> None:
        """Note that bytes have left for a node, or have come from it."""
        self._add(self._transferred, name, count)

    def _add(self, counts: dict[str, int], name: str, count: int) -> None:
        with self._lock:
            now = self._last_transfer[name] = time.monotonic()
            self._first_transfer = self._first_transfer or now
            counts[name] = counts.get(name, 0) + count

    @property
    def transferred(self) -> int:
        """Return the bytes that left or came since the phases began."""
        with self._lock:
            return sum(self._transferred.values())

    @contextmanager
    def display_phase(self, phase: str, steps: Steps) -> Iterator[None]:
        """Show a phase for the length of a block; no line of it remains."""
        self.set_steps(steps)
        self.start(phase)
        try:
            yield
        finally:
            self.stop()

    def finish(self, phase: str, detail: str = "", label: str = "") -> None:
        """Leave the last of the phases; `label` is its name where phases share a line."""
        self.stop()
        self._finish_phase(phase, detail, label)

    def finish_apart(self, phase: str, detail: str) -> None:
        """Leave a phase that has a line of its own in any case: more about it follows."""
        self.stop()
        self._write_phase(phase, detail)

    def announce(self, title: str) -> None:
        """Print what the phases are for."""
        self._title = title
        if self._over is None:
            info(title)

    def conclude(self, total: str, result: str) -> None:
        """Write the shared line of all phases and their result, below the title with what all of them took."""
        if self._over:
            self._over[-1] = f"{self._ok} {result}"
            room = stderr().width - display_width(self._title) - display_width(total)
            gap = " " * room if room >= 2 else "\n  "
            title = f"{sanitize(self._title)}{gap}{total}"
            info(paint(title, BOLD, sys.stderr), is_safe=True)
            info("\n".join(fill_lines(self._over, stderr().width)))
            self._over = []

    def break_off(self) -> None:
        """Stop, and write the shared line of what came before: more about the failure follows."""
        self.stop()
        if self._over:
            unfinished = [f"{self._failed_mark} {phase}" for phase in self._pending]
            info("\n".join(fill_lines([*self._over, *unfinished], stderr().width)))
            self._over = []

    def _heading(self) -> list[str]:
        return [*filter(None, [self._title]), *fill_lines(self._over, stderr().width)] if self._over else []

    def stop(self) -> None:
        """Take what moves off the screen, whatever happened."""
        display, self._display = self._display, None
        if display is not None:
            display.close()

    def snapshot(self) -> PhaseProgress:
        """Return how far the nodes are."""
        with self._lock:
            now, phase = time.monotonic(), next((phase for phase in TRANSFERS if phase in self._pending), "")
            in_transfer = self._pending.get(phase, {}).keys() - self._failed
            transferred = self.transferred + sum(self._taken.values()) if in_transfer else 0
            last_pending = next((names for names in reversed(self._pending.values())), {})
            unfinished = [name for name in last_pending if name not in self._failed]
            started = [name for name in unfinished if self._steps is None or self._steps.find(name)]
            pending = [self._pending_node(name, now, in_transfer=name in in_transfer) for name in started]
            return PhaseProgress(
                completed=[(phase, self._count_completed(phase)) for phase in self._pending],
                total=len(self._names),
                seconds=now - self._started,
                pending=sorted(pending, key=lambda node: -(node.seconds // STEADY)),
                queued=len(unfinished) - len(started),
                failed=len(self._failed),
                transferred=transferred,
                expected=self._expected,
                rate=transferred / max(0.1, now - self._first_transfer),
                direction=TRANSFERS.get(phase, ""),
                activity=self._activity,
            )

    def _pending_node(self, name: str, now: float, *, in_transfer: bool) -> PendingNode:
        step = self._steps.find(name) if self._steps is not None else None
        since = max(self._started, step.since if step else 0.0, self._last_transfer.get(name, 0.0))
        transferred = self._transferred.get(name, 0) + self._taken.get(name, 0) if in_transfer else 0
        return PendingNode(name, step.description if step else tr("working"), now - since, transferred)

    def _count_completed(self, phase: str) -> int:
        """Count the nodes that are through a phase."""
        return len(self._names) - len(self._pending.get(phase, {}).keys() | self._failed)

    def _finish_phase(self, phase: str, detail: str, label: str) -> None:
        if self._over is None:
            self._write_phase(phase, detail)
        else:
            self._over.append(f"{self._ok} {label or phase} {render_seconds(self._elapsed())}")
            self._pending.pop(phase, None)

    def _write_phase(self, phase: str, detail: str) -> None:
        counts = trn(
            "{count}/{n} node",
            "{count}/{n} nodes",
            len(self._names),
            count=self._count_completed(phase),
        )
        seconds = render_seconds(self._elapsed())
        info(f"  {phase:<{_WIDTH}} {counts}  {seconds}  {detail}".rstrip())
        self._pending.pop(phase, None)

    def _elapsed(self) -> float:
        return time.monotonic() - self._started


def render_setup(is_new_by_node: Mapping[str, bool], sent: int) -> str:
    """Return on which nodes a setup had to be carried out."""
    new_on = sorted(name for name, is_new in is_new_by_node.items() if is_new)
    if not new_on:
        return tr("already there")
    return tr("built on {nodes}; {size} sent", nodes=fold_names(new_on), size=render_size(sent))


def describe_age(seconds: float) -> str:
    """Return that not all was tested this time, and how long ago it was."""
    return tr("network and GPU health tested {seconds:.0f} s ago; --recheck repeats it", seconds=seconds)


def render_upload(files: int, size: int, sent: int) -> str:
    """Return how much code there is and how much of it had to travel."""
    return trn(
        "{n} file, {size}; {sent} sent",
        "{n} files, {size}; {sent} sent",
        files,
        size=render_size(size),
        sent=render_size(sent),
    )
