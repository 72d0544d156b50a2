"""Logs: once, in time order, live."""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from clusterctl.client.rpc import tasks
from clusterctl.client.rpc.cluster import Cluster
from clusterctl.client.watch.follower import LogLines, StateChange, StreamEnd, Streams, Update, may_return
from clusterctl.errors import ClusterctlError
from clusterctl.specs.inventory.model import Node

NEVER, OVER = float("-inf"), float("inf")
HELD_FOR = 1.0  # seconds that a line which is followed waits for older ones of other nodes
MOST_HELD = 16 << 20  # bytes of lines that wait, each with what it costs here beside its text
COST = 200
MOST_FILES = 100_000


class _Lines:
    """Lines that wait for their turn; the order within an entry is kept if its times do not fall."""

    def __init__(self) -> None:
        self._waiting: list[
            tuple[float, int, int]
        ] = []  # time, entry, line; of -1 what stands before the lines
        self._entries: dict[int, tuple[LogLines, int]] = {}  # with the number of its lines that are waiting
        self._count = 0
        self.held = 0  # bytes

    def add(self, entry: LogLines, began: float, times: Sequence[float]) -> None:
        """Take an entry whose lines stand at these times in the order."""
        self._count += 1
        number = self._count
        if entry.gone:
            heapq.heappush(self._waiting, (began, number, -1))
        for line, moment in enumerate(times):
            heapq.heappush(self._waiting, (moment, number, line))
            self.held += COST + entry.sizes[line]
        if times or entry.gone:
            self._entries[number] = replace(entry, places=entry.offsets), len(times) + bool(entry.gone)

    def take(self, until: float, most: int | None = None) -> Iterator[LogLines]:
        """Give the lines up to that time, and the oldest of the others while more than `most` bytes are held."""
        begun: tuple[int, int, int] | None = None  # an entry, and its lines from here to there
        while self._waiting and (self._waiting[0][0] <= until or (most is not None and self.held > most)):
            _, number, line = heapq.heappop(self._waiting)
            self.held -= COST + self._entries[number][0].sizes[line] if line >= 0 else 0
            if begun is not None and begun[0] == number and begun[2] == line and line >= 0:
                begun = (number, begun[1], line + 1)
            else:
                if begun is not None:
                    yield self._cut(*begun)
                begun = (number, line, line + 1)
        if begun is not None:
            yield self._cut(*begun)

    def _cut(self, number: int, first: int, last: int) -> LogLines:
        entry, missing = self._entries[number]
        if missing > last - first:
            self._entries[number] = entry, missing - (last - first)
        else:
            del self._entries[number]
        return entry.cut(slice(max(0, first), last), entry.gone if first < 0 else None)


class InOrder:
    """Holds lines back until no node can send an older one, where each sends what it has in about that order."""

    def __init__(self, nodes: Iterable[str]) -> None:
        self._reached = dict.fromkeys(nodes, NEVER)  # no node will send anything older than that
        self._lines = _Lines()

    def hear(self, entry: LogLines) -> None:
        """Take lines of a node."""
        self._reached[entry.node] = max(self._reached[entry.node], entry.began)
        self._lines.add(entry, entry.began, entry.times)

    def end(self, node: str) -> None:
        """Expect nothing more of a node."""
        self._reached[node] = OVER

    @property
    def behind(self) -> str | None:
        """Name the node whose lines are needed next; None if all have sent everything."""
        node = min(self._reached, key=lambda name: self._reached[name], default=None)
        return node if node is not None and self._reached[node] < OVER else None

    def ready(self) -> Iterator[LogLines]:
        """Give the lines whose turn has come."""
        return self._lines.take(min(self._reached.values(), default=OVER))


class Window:
    """Holds lines that are followed for a moment after they came, so that older ones of other nodes can go first.

    No node can hold up the others: what comes late, or has waited for `hold` seconds, goes; so does the oldest where
    more than `most` bytes wait. A time in the future counts as the time of arrival: a clock that is ahead moves nobody.
    `now` is seconds of any clock that does not go back.
    """

    def __init__(self, hold: float = HELD_FOR, most: int = MOST_HELD) -> None:
        self._hold, self._most = hold, most
        self._lines = _Lines()
        self._arrived: deque[tuple[float, float]] = deque()  # when an entry has waited enough, its last time
        self._latest: dict[tuple[str, str], float] = {}  # of each file
        self._until = NEVER

    def hear(self, entry: LogLines, now: float, wall: float) -> None:
        """Take lines of a node that came `now`; `wall` is the time of day."""
        file = (entry.node, entry.file)
        latest, times = self._latest.get(file, NEVER), []
        for moment in entry.times or (wall,) * len(entry.lines):
            known = moment if moment <= wall else wall  # also what is no number
            latest = max(latest, known)
            times.append(latest)
        if len(self._latest) > MOST_FILES:  # nobody has so many: a node makes names up
            self._latest.clear()
        self._latest[file] = latest
        began = times[0] if times else latest
        self._lines.add(entry, began, times)
        self._arrived.append((now + self._hold, latest))

    def ready(self, now: float) -> Iterator[LogLines]:
        """Give the lines whose turn has come."""
        while self._arrived and self._arrived[0][0] <= now:
            self._until = max(self._until, self._arrived.popleft()[1])
        return self._lines.take(self._until, self._most)

    def rest(self) -> Iterator[LogLines]:
        """Give all that still waits."""
        return self._lines.take(OVER)


TRIES = 3  # in a row, to open a stream that was cut; a pager that nobody turns over cuts it as well
LONGEST_PAUSE = 1.0  # seconds between them


class Reading:
    """The streams of a run's nodes, each read to its end once; nothing is doubled if one has to be opened again."""

    def __init__(
        self,
        cluster: Cluster,
        run: str,
        nodes: Sequence[Node],
        interpreters: Mapping[str, tasks.Interpreter],
        wish: Mapping[str, Any],
        *,
        clocks: Mapping[str, float],
    ) -> None:
        self._awaited = [node.name for node in nodes]
        self._cut: dict[str, ClusterctlError] = {}  # streams that ended while it was not their turn
        self._streams = Streams(
            cluster, run, nodes, interpreters, wish, notice=_hush, longest_pause=LONGEST_PAUSE, clocks=clocks
        )

    @property
    def offsets(self) -> Mapping[str, Mapping[str, int]]:
        """How far each node's files have been read, in bytes."""
        return self._streams.offsets

    def in_turn(self) -> Iterator[Update]:
        """Give what the nodes say, of one after the other; a StreamEnd comes for each, at its end."""
        self._streams.open_all()
        try:
            while self._awaited:
                turn = self._awaited[0]
                for update in self._read(turn):
                    yield from self._take(update, turn)
        finally:
            self._streams.close()

    def in_order(self) -> Iterator[list[LogLines] | StreamEnd]:
        """Give the lines of all nodes, the oldest first, as many at a time as are known to be next."""
        order = InOrder(self._awaited)
        self._streams.open_all()
        try:
            while (node := order.behind) is not None:
                for heard in self._read(node):
                    for update in self._take(heard, node):
                        if isinstance(update, LogLines):
                            order.hear(update)
                        elif isinstance(update, StreamEnd):
                            order.end(update.node)
                            yield update
                yield list(order.ready())
        finally:
            self._streams.close()

    def _read(self, turn: str) -> Iterator[Update]:
        """Read from one node; a stream that was cut while others were read is opened again now that it is needed."""
        if turn in self._cut:
            self._streams.reopen(turn, self._cut.pop(turn))
        return self._streams.updates(1.0, only=turn)

    def _take(self, update: Update, turn: str) -> Iterator[Update]:
        """Pass an update on, unless it is the end of a stream that is worth another try."""
        if not isinstance(update, StreamEnd):
            yield update
            return
        name, error, tries = update.node, update.error, self._streams.tries.get(update.node, 0)
        if error is not None and may_return(error) and tries < TRIES:
            if name == turn:
                self._streams.reopen(name, error)
            else:
                self._cut[name] = error  # a node hangs up when nobody reads for a minute
            return
        self._awaited = [other for other in self._awaited if other != name]
        yield update


def _hush(_: str) -> None:
    """Say nothing: whoever reads is told of what fails for good."""


LIVE_LONGEST_PAUSE = 10.0  # seconds between two tries to come back
LAST_LIMIT = 60.0  # seconds that the last node may take to come back when all others have ended


class Onlooker:
    """Follows a run on some of its nodes until their parts have ended."""

    def __init__(
        self,
        cluster: Cluster,
        run: str,
        nodes: Sequence[Node],
        interpreters: Mapping[str, tasks.Interpreter],
        wish: Mapping[str, Any],
        *,
        notice: Callable[[str], None],
        clocks: Mapping[str, float] | None = None,
        offsets: Mapping[str, Mapping[str, int]] | None = None,
    ) -> None:
        self._streams = Streams(
            cluster,
            run,
            nodes,
            interpreters,
            wish,
            notice=notice,
            longest_pause=LIVE_LONGEST_PAUSE,
            clocks=clocks,
            offsets=offsets,
        )
        self._awaited = {node.name for node in nodes}
        self._attempt: int | None = (wish.get("logs") or {}).get("attempt")  # the only one that is wanted
        self._over: set[str] = set()
        self._gone: set[str] = set()  # nodes whose place another has taken, or which the others lost for good

    def updates(self) -> Iterator[Update]:
        """Give what the nodes say, as it comes; a StreamEnd comes only for a node that is given up."""
        for update in self.updates_or_nothing(0.5):
            if update is not None:
                yield update

    def updates_or_nothing(self, wait: float) -> Iterator[Update | None]:
        """The same, with None at least every `wait` seconds, or after what came at once."""
        self._streams.open_all()
        try:
            while self._awaited:
                for update in self._streams.updates(wait):
                    if not isinstance(update, StreamEnd):
                        self._note(update)
                        yield update
                    elif self._ends(update.node, update.error):
                        self._awaited.discard(update.node)
                        if update.error is not None:
                            yield update
                yield None
        finally:
            self._streams.close()

    def _note(self, update: Update) -> None:
        if isinstance(update, StateChange):
            past = self._attempt is not None and self._attempt < update.state.attempt
            (self._over.discard if update.state.live and not past else self._over.add)(update.node)
            self._gone |= {seat.node for seat in update.state.roster if seat.lost}

    def _ends(self, name: str, error: ClusterctlError | None) -> bool:
        """Tell whether a node's stream has ended for good; if not, it is opened again."""
        if error is None and name in self._over:
            return True
        if not may_return(error) or self._is_vain(name):
            return True
        self._streams.reopen(name, error)
        return False

    def _is_vain(self, name: str) -> bool:
        """Tell whether a node is not worth waiting for: all others have ended, and it has not been heard for long."""
        others = self._awaited - {name}
        if name in self._gone:
            return True
        if others or not self._over - {name}:
            return False
        broke_at = self._streams.broke_at.get(name, time.monotonic())
        return name not in self._streams.heard or time.monotonic() - broke_at > LAST_LIMIT
