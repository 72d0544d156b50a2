"""What open pages show, kept up to date by one thread per view as long as a page shows it.

A view is the list of runs, or one run. It has parts, which are HTML, and the last log lines. Parts are replaced as a
whole, so only the newest counts; of a table with many rows each is a part, `runs/ID`, and an empty one a row that is
gone. After all rows comes `runs/`: a page that connects again has no others. What is folded, `fold/NAME`, is sent from
when a page opens it. Lines have numbers, so that a page that was cut off goes on where it was.

    Source --publish, add_lines--> View --read--> one connection per open page
"""

from __future__ import annotations

import heapq
import secrets
import threading
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, repeat, takewhile
from typing import Protocol

from clusterctl.plans.report.markup import Html, element
from clusterctl.protocol.run_id import RunId

MAX_WATCHERS = 16  # open pages
MAX_VIEWS = 6  # runs that pages show at the same time, the list of runs included
TICK = 1.0  # seconds between two looks whether a pause is over
GRACE = 15.0  # seconds that a view waits for its page to connect again
MAX_LINES, MIN_LINES = 5000, 50  # kept of a run, and at least of each of its nodes
MAX_LINE = 1000  # characters
MAX_SENT = 500  # lines at a time
FOLD = "fold"  # the table of what is sent only once it is open
ALL_SENT = element("i")


@dataclass(frozen=True)
class Line:
    """A line of a log; `label` is that of its stream, if it is not stdout, `time` is by our clock."""

    number: int
    node: str
    rank: int | None
    label: str
    text: str
    time: float | None = None


class TooManyError(Exception):
    """There are as many pages or runs open as can be."""


class UnknownRunError(Exception):
    """No run, or more than one, is meant by a text; the message is for the page."""


@dataclass(frozen=True)
class WholeLog:
    """All lines of a run as text, piece by piece, and the nodes that had not answered before."""

    pieces: Generator[str, None, None]
    silent: tuple[str, ...] = ()


class LineBuffer:
    """The last lines of a run: of each node so many that a talkative one does not push out the others."""

    def __init__(self, most: int = MAX_LINES) -> None:
        self._most, self._by_node = most, dict[str, deque[Line]]()
        self.last = 0  # the number of the newest line

    def add(
        self, node: str, rank: int | None, label: str, texts: Iterable[str], times: Iterable[float] = ()
    ) -> None:
        """Keep lines of a node, and when each was written, if that is known."""
        kept = self._by_node.setdefault(node, deque())
        for text, moment in zip(texts, chain(times, repeat(None))):  # noqa: B905 - the second has no end
            self.last += 1
            kept.append(Line(self.last, node, rank, label, text[:MAX_LINE], moment))
        room = max(MIN_LINES, self._most // len(self._by_node))
        for lines in self._by_node.values():
            while len(lines) > room:
                lines.popleft()

    def after(self, number: int, most: int = MAX_SENT) -> list[Line]:
        """Return the oldest of the lines that came after one."""
        newer = (
            line
            for lines in self._by_node.values()
            for line in takewhile(lambda one: one.number > number, reversed(lines))
        )
        return heapq.nsmallest(most, newer, key=lambda one: one.number)


@dataclass
class Cursor:
    """How far one page is: the versions of the parts it has, and its last line."""

    line: int = 0
    versions: dict[str, int] = field(default_factory=dict)


class View:
    """What pages show of one run, or the list of runs; all methods may be called from any thread."""

    def __init__(self, run_id: str) -> None:
        self.run_id, self.epoch = run_id, secrets.token_hex(4)
        self._changed = threading.Condition()
        self._parts: dict[str, tuple[int, str]] = {}
        self._opened: set[str] = set()
        self._lines = LineBuffer()
        self._version, self._wakeups = 0, 0
        self._watchers, self._left_at = 0, time.monotonic()
        self._closed = False

    def publish(self, name: str, html: Html) -> None:
        """Show something in a place of the page; nothing is sent if it is the same as before."""
        with self._changed:
            if self._parts.get(name, (0, ""))[1] != html.markup:
                self._version += 1
                self._parts[name] = self._version, html.markup
                self._changed.notify_all()

    def publish_rows(self, table: str, rows: Mapping[str, Html]) -> None:
        """Show rows of a table by their keys; those that it had and that are missing now go away."""
        with self._changed:
            names = {f"{table}/", *(f"{table}/{key}" for key in rows)}
            for name in [name for name in self._parts if name.startswith(f"{table}/") and name not in names]:
                del self._parts[name]  # the cursor of each page that has it shows that
                self._changed.notify_all()
            for key, html in rows.items():
                self.publish(f"{table}/{key}", html)
            self.publish(f"{table}/", ALL_SENT)
            self._parts[f"{table}/"] = self._parts.pop(f"{table}/")  # what is sent last

    def open(self, name: str) -> None:
        """Send from now on what is folded under a name, too."""
        with self._changed:
            if f"{FOLD}/{name}" in self._parts:
                self._opened.add(f"{FOLD}/{name}")
                self._changed.notify_all()

    def add_lines(
        self, node: str, rank: int | None, label: str, texts: Iterable[str], times: Iterable[float] = ()
    ) -> None:
        """Show lines of a log."""
        with self._changed:
            self._lines.add(node, rank, label, texts, times)
            self._changed.notify_all()

    def read(self, cursor: Cursor, limit: float) -> tuple[dict[str, str], list[Line]] | None:
        """Wait for new parts and lines and move the cursor past them; empty after `limit` s, None once closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._has_news(cursor), limit)
            if self._closed:
                return None
            parts = self._list_changed(cursor)
            cursor.versions.update({name: self._parts[name][0] for name in parts})
            for name in cursor.versions.keys() - self._parts.keys():
                del cursor.versions[name]
                parts[name] = ""
            lines = self._lines.after(cursor.line)
            cursor.line = lines[-1].number if lines else cursor.line
            return parts, lines

    def _list_changed(self, cursor: Cursor) -> dict[str, str]:
        """Return the parts that a page has not, or not as they are now."""
        return {
            name: html
            for name, (version, html) in self._parts.items()
            if version > cursor.versions.get(name, 0)
            and (html or name in cursor.versions)
            and (not name.startswith(f"{FOLD}/") or name in self._opened)
        }

    def _has_news(self, cursor: Cursor) -> bool:
        is_gone = not cursor.versions.keys() <= self._parts.keys()
        return is_gone or self._lines.last > cursor.line or bool(self._list_changed(cursor))

    def resume(self, event_id: str) -> Cursor:
        """Return where a page goes on that has seen this event; the beginning if it was one of another view."""
        epoch, _, number = event_id.partition(".")
        if epoch == self.epoch and number.isdecimal() and number.isascii() and len(number) < 16:
            return Cursor(min(int(number), self._lines.last))
        return Cursor()

    def pause(self, seconds: float, *, until_woken: bool = False) -> bool:
        """Wait, and longer while no page is open; False once this view is of no use any more.

        `until_woken`: `wake` ends the wait early.
        """
        with self._changed:
            wakeups, deadline = self._wakeups, time.monotonic() + seconds
            while not self.is_over:
                is_due = time.monotonic() >= deadline or (until_woken and self._wakeups != wakeups)
                if is_due and self.is_watched:
                    return True
                self._changed.wait(min(TICK, max(0.01, deadline - time.monotonic())))
            return False

    def wake(self) -> None:
        """End the pauses that may be ended."""
        with self._changed:
            self._wakeups += 1
            self._changed.notify_all()

    @property
    def is_watched(self) -> bool:
        """Return whether a page shows it."""
        return self._watchers > 0

    @property
    def is_over(self) -> bool:
        """Return whether it was closed, or no page has shown it for a while."""
        unwatched = self._watchers == 0 and time.monotonic() - self._left_at > GRACE
        return self._closed or unwatched

    def enter(self) -> None:
        """Count a page."""
        with self._changed:
            self._watchers += 1
            self._changed.notify_all()

    def leave(self) -> None:
        """Count a page that is gone."""
        with self._changed:
            self._watchers, self._left_at = self._watchers - 1, time.monotonic()

    def close(self) -> None:
        """End what keeps it up to date, and the connections of its pages."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class Source(Protocol):
    """Where the contents of pages come from, and what their buttons do."""

    def follow(self, view: View) -> None:
        """Keep a view up to date until its `pause` returns False."""

    def find(self, text: str) -> RunId:
        """Return the run that an id, its beginning or a short id means; raises UnknownRunError."""

    def read_log(self, run_id: RunId) -> WholeLog:
        """Return all lines of a run; raises UnknownRunError."""

    def diagnose(self, run_id: str) -> Html:
        """Find out where the ranks of a run are."""

    def stop(self, run_id: str) -> Html:
        """Stop a run."""


class Feed:
    """The views that are open; each has a thread while pages show it."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._views: dict[str, View] = {}
        self._watchers = 0
        self._lock = threading.Lock()
        self._closed = False

    @contextmanager
    def watch(self, run_id: str) -> Iterator[View]:
        """Count a page that shows a run, or with an empty id the list of runs; raises TooManyError."""
        view = self._enter(run_id)
        try:
            yield view
        finally:
            view.leave()
            with self._lock:
                self._watchers -= 1

    def _enter(self, run_id: str) -> View:
        with self._lock:
            self._views = {name: view for name, view in self._views.items() if not view.is_over}
            view = self._views.get(run_id)
            if self._closed or self._watchers >= MAX_WATCHERS:
                raise TooManyError
            if view is None:
                self._make_room()
                view = self._views[run_id] = View(run_id)
                view.enter()
                threading.Thread(target=self._follow, args=(view,), daemon=True).start()
            else:
                view.enter()
            self._watchers += 1
            return view

    def open(self, run_id: str, name: str) -> None:
        """Send to the pages of a run what is folded under a name, too."""
        with self._lock:
            view = self._views.get(run_id)
        if view is not None:
            view.open(name)

    def _make_room(self) -> None:
        """End a view that no page shows if there are as many as can be."""
        if len(self._views) < MAX_VIEWS:
            return
        idle = next((view for view in self._views.values() if not view.is_watched), None)
        if idle is None:
            raise TooManyError
        del self._views[idle.run_id]
        idle.close()

    def _follow(self, view: View) -> None:
        try:
            self.source.follow(view)
        except Exception as error:  # whatever it is: the page shows it, and the server continues
            view.publish("problem", element("p", f"{type(error).__name__}: {error}", class_="bad"))
            view.pause(GRACE)
        finally:
            with self._lock:
                if self._views.get(view.run_id) is view:
                    del self._views[view.run_id]
            view.close()

    def close(self) -> None:
        """End all views; their threads end by themselves."""
        with self._lock:
            self._closed = True
            for view in self._views.values():
                view.close()
