"""Lines of many nodes in the order of time: of what has been written exactly, of what is being written for a moment."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from clusterctl.runs.follow import LogLines

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
