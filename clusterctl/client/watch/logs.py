"""Logs: once, in time order, live."""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from clusterctl.client.rpc import tasks
from clusterctl.client.watch.follower import LogLines, NodeStreams, StateChange, Update
from clusterctl.client.watch.streams import StreamEnd, can_reconnect
from clusterctl.errors import ClusterctlError
from clusterctl.plans.runs.history import ReplacedLog

if TYPE_CHECKING:
    from clusterctl.protocol.messages.verbs import FollowChoice

MIN_TIME, MAX_TIME = float("-inf"), float("inf")
HOLD_SECONDS = 1.0  # seconds that a line which is followed waits for older ones of other nodes
MAX_HELD_BYTES = 16 << 20  # bytes of lines that wait, each with what it costs here beside its text
LINE_OVERHEAD = 200
MAX_FILES = 100_000


class _LineQueue:
    """Lines that wait for their turn; the order within an entry is kept if its times do not fall."""

    def __init__(self) -> None:
        self._waiting: list[
            tuple[float, int, int]
        ] = []  # time, entry, line; of -1 what stands before the lines
        self._entries: dict[int, tuple[LogLines, int]] = {}  # with the number of its lines that are waiting
        self._count = 0
        self.held_bytes = 0  # bytes

    def add(self, entry: LogLines, began: float, times: Sequence[float]) -> None:
        """Take an entry whose lines stand at these times in the order."""
        self._count += 1
        number = self._count
        if entry.gone:
            heapq.heappush(self._waiting, (began, number, -1))
        for line, moment in enumerate(times):
            heapq.heappush(self._waiting, (moment, number, line))
            self.held_bytes += LINE_OVERHEAD + entry.sizes[line]
        if times or entry.gone:
            self._entries[number] = replace(entry, line_offsets=entry.offsets), len(times) + bool(entry.gone)

    def pop_until(self, until: float, max_bytes: int | None = None) -> Iterator[LogLines]:
        """Yield the lines up to that time, and the oldest of the others while more than `max_bytes` bytes are held."""
        current: tuple[int, int, int] | None = None  # an entry, and its lines from here to there
        while self._waiting and (
            self._waiting[0][0] <= until or (max_bytes is not None and self.held_bytes > max_bytes)
        ):
            _, number, line = heapq.heappop(self._waiting)
            self.held_bytes -= LINE_OVERHEAD + self._entries[number][0].sizes[line] if line >= 0 else 0
            if current is not None and current[0] == number and current[2] == line and line >= 0:
                current = (number, current[1], line + 1)
            else:
                if current is not None:
                    yield self._cut(*current)
                current = (number, line, line + 1)
        if current is not None:
            yield self._cut(*current)

    def _cut(self, number: int, first: int, last: int) -> LogLines:
        entry, remaining = self._entries[number]
        if remaining > last - first:
            self._entries[number] = entry, remaining - (last - first)
        else:
            del self._entries[number]
        return entry.cut(slice(max(0, first), last), entry.gone if first < 0 else None)


class TimeMerger:
    """Holds lines back until no node can send an older one, where each sends what it has in about that order.

    Where more than `max_bytes` bytes wait, the oldest that are there go: a node's clock may be anything.
    """

    def __init__(self, nodes: Iterable[str], max_bytes: int = MAX_HELD_BYTES) -> None:
        self._max_bytes = max_bytes
        self._reached = dict.fromkeys(nodes, MIN_TIME)  # no node will send anything older than that
        self._lines = _LineQueue()

    def add(self, entry: LogLines) -> None:
        """Take lines of a node."""
        self._reached[entry.node] = max(self._reached[entry.node], entry.began)
        self._lines.add(entry, entry.began, entry.times)

    def finish(self, node: str) -> None:
        """Expect nothing more of a node."""
        self._reached[node] = MAX_TIME

    @property
    def next_node(self) -> str | None:
        """Name the node whose lines are needed next; None if all have sent everything."""
        node = min(self._reached, key=lambda name: self._reached[name], default=None)
        return node if node is not None and self._reached[node] < MAX_TIME else None

    def pop_ready(self) -> Iterator[LogLines]:
        """Return the lines whose turn has come."""
        return self._lines.pop_until(min(self._reached.values(), default=MAX_TIME), self._max_bytes)


class ReorderWindow:
    """Holds lines that are followed for a moment after they came, so that older ones of other nodes can go first.

    No node can hold up the others: what comes late, or has waited for `hold` seconds, goes; so does the oldest where
    more than `max_bytes` bytes wait. A time in the future counts as the time of arrival: a clock that is ahead delays
    no other node. `now` is seconds of any clock that does not go back.
    """

    def __init__(self, hold: float = HOLD_SECONDS, max_bytes: int = MAX_HELD_BYTES) -> None:
        self._hold, self._max_bytes = hold, max_bytes
        self._lines = _LineQueue()
        self._arrived: deque[tuple[float, float]] = deque()  # when an entry has waited enough, its last time
        self._latest: dict[tuple[str, str], float] = {}  # of each file
        self._until = MIN_TIME

    def add(self, entry: LogLines, now: float, wall_time: float) -> None:
        """Take lines of a node that came `now`; `wall_time` is the time of day."""
        file = (entry.node, entry.file)
        latest, times = self._latest.get(file, MIN_TIME), []
        for moment in entry.times or (wall_time,) * len(entry.lines):
            clamped = moment if moment <= wall_time else wall_time  # also what is no number
            latest = max(latest, clamped)
            times.append(latest)
        if len(self._latest) > MAX_FILES:  # no run has so many: a node invents names
            self._latest.clear()
        self._latest[file] = latest
        began = times[0] if times else latest
        self._lines.add(entry, began, times)
        self._arrived.append((now + self._hold, latest))

    def pop_ready(self, now: float) -> Iterator[LogLines]:
        """Return the lines whose turn has come."""
        while self._arrived and self._arrived[0][0] <= now:
            self._until = max(self._until, self._arrived.popleft()[1])
        return self._lines.pop_until(self._until, self._max_bytes)

    def pop_all(self) -> Iterator[LogLines]:
        """Return all that still waits."""
        return self._lines.pop_until(MAX_TIME)


TRIES = 3  # in a row, to open a stream that was cut; a pager that stays on one page cuts it as well
MAX_PAUSE = 1.0  # seconds between them


class LogReader:
    """The streams of a run's nodes, each read to its end once; nothing is doubled if one has to be opened again."""

    def __init__(
        self,
        run: tasks.RunHandle,
        request: FollowChoice,
        *,
        clocks: Mapping[str, float],
    ) -> None:
        self._remaining = [node.name for node in run.nodes]
        self._cut_streams: dict[str, ClusterctlError] = {}  # streams that ended while it was not their turn
        self._streams = NodeStreams(
            run, request, notice=_ignore_notice, longest_pause=MAX_PAUSE, clocks=clocks
        )

    @property
    def offsets(self) -> Mapping[str, Mapping[str, int]]:
        """How far each node's files have been read, in bytes."""
        return self._streams.offsets

    def read_by_node(self) -> Iterator[Update]:
        """Yield what the nodes send, of one after the other; a StreamEnd comes for each, at its end."""
        self._streams.open_all()
        try:
            while self._remaining:
                node = self._remaining[0]
                for update in self._read(node):
                    yield from self._retry_cut(update, node)
        finally:
            self._streams.close()

    def read_by_time(self) -> Iterator[list[LogLines] | ReplacedLog | StreamEnd]:
        """Yield the lines of all nodes, the oldest first, as many at a time as are known to be next."""
        merger = TimeMerger(self._remaining)
        self._streams.open_all()
        try:
            while (node := merger.next_node) is not None:
                for received in self._read(node):
                    for update in self._retry_cut(received, node):
                        if isinstance(update, LogLines):
                            merger.add(update)
                        elif isinstance(update, StreamEnd):
                            merger.finish(update.node)
                            yield update
                        elif isinstance(update, ReplacedLog):
                            yield update
                yield list(merger.pop_ready())
        finally:
            self._streams.close()

    def _read(self, node: str) -> Iterator[Update]:
        """Read from one node; a stream that was cut while others were read is opened again now that it is needed."""
        if node in self._cut_streams:
            self._streams.reopen(node, self._cut_streams.pop(node))
        return self._streams.updates(1.0, only=node)

    def _retry_cut(self, update: Update, node: str) -> Iterator[Update]:
        """Pass an update on, unless it is the end of a stream that is worth another try."""
        if not isinstance(update, StreamEnd):
            yield update
            return
        name, error, tries = update.node, update.error, self._streams.tries.get(update.node, 0)
        if error is not None and can_reconnect(error) and tries < TRIES:
            if name == node:
                self._streams.reopen(name, error)
            else:
                self._cut_streams[name] = error  # a node closes a stream that is not read for a minute
            return
        self._remaining = [other for other in self._remaining if other != name]
        yield update


def _ignore_notice(_: str) -> None:
    """Report nothing: the reader gets a StreamEnd for a node that fails for good."""


LIVE_MAX_PAUSE = 10.0  # seconds between two tries to come back
LAST_NODE_LIMIT = 60.0  # seconds that the last node may take to come back when all others have ended


class LiveReader:
    """Follows a run on some of its nodes until their parts have ended."""

    def __init__(
        self,
        run: tasks.RunHandle,
        request: FollowChoice,
        *,
        notice: Callable[[str], None],
        clocks: Mapping[str, float] | None = None,
        offsets: Mapping[str, Mapping[str, int]] | None = None,
    ) -> None:
        self._streams = NodeStreams(
            run,
            request,
            notice=notice,
            longest_pause=LIVE_MAX_PAUSE,
            clocks=clocks,
            offsets=offsets,
        )
        self._remaining = {node.name for node in run.nodes}
        self._attempt: int | None = (request.get("logs") or {}).get("attempt")  # the only one that is wanted
        self._ended_nodes: set[str] = set()
        # nodes whose place another has taken, or which the others lost for good
        self._lost_nodes: set[str] = set()

    def updates(self) -> Iterator[Update]:
        """Yield what the nodes send, as it comes; a StreamEnd comes only for a node that is given up."""
        for update in self.updates_or_none(0.5):
            if update is not None:
                yield update

    def updates_or_none(self, wait: float) -> Generator[Update | None, None, None]:
        """The same, with None at least every `wait` seconds, or after what came at once."""
        self._streams.open_all()
        try:
            while self._remaining:
                for update in self._streams.updates(wait):
                    if not isinstance(update, StreamEnd):
                        self._on_update(update)
                        yield update
                    elif self._has_ended(update.node, update.error):
                        self._remaining.discard(update.node)
                        if update.error is not None:
                            yield update
                yield None
        finally:
            self._streams.close()

    def _on_update(self, update: Update) -> None:
        if isinstance(update, StateChange):
            is_past_attempt = self._attempt is not None and self._attempt < update.state.attempt
            (
                self._ended_nodes.discard
                if update.state.live and not is_past_attempt
                else self._ended_nodes.add
            )(update.node)
            self._lost_nodes |= {slot.node for slot in update.state.roster if slot.lost}

    def _has_ended(self, name: str, error: ClusterctlError | None) -> bool:
        """Return whether a node's stream has ended for good; if not, it is opened again."""
        if error is None and name in self._ended_nodes:
            return True
        if not can_reconnect(error) or self._should_give_up(name):
            return True
        self._streams.reopen(name, error)
        return False

    def _should_give_up(self, name: str) -> bool:
        """Return whether a node is not worth waiting for: all others have ended, and it has been silent for long."""
        others = self._remaining - {name}
        if name in self._lost_nodes:
            return True
        if others or not self._ended_nodes - {name}:
            return False
        broke_at = self._streams.broke_at.get(name, time.monotonic())
        return name not in self._streams.last_received or time.monotonic() - broke_at > LAST_NODE_LIMIT
