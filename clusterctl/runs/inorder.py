"""Lines of many nodes in the order of time, when each node sends what it has in about that order."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import replace

from clusterctl.runs.follow import LogLines

NEVER, OVER = float("-inf"), float("inf")


class InOrder:
    """Holds lines back until no node can send an older one; the order within a file is always kept."""

    def __init__(self, nodes: Iterable[str]) -> None:
        self._reached = dict.fromkeys(nodes, NEVER)  # no node will send anything older than that
        self._waiting: list[
            tuple[float, int, int]
        ] = []  # time, entry, line; of -1 what stands before the lines
        self._entries: dict[int, tuple[LogLines, int]] = {}  # with the number of its lines that are waiting
        self._count = 0

    def hear(self, entry: LogLines) -> None:
        """Take lines of a node."""
        self._reached[entry.node] = max(self._reached[entry.node], entry.began)
        self._count += 1
        number = self._count
        if entry.gone:
            heapq.heappush(self._waiting, (entry.began, number, -1))
        for line, moment in enumerate(entry.times):
            heapq.heappush(self._waiting, (moment, number, line))
        self._entries[number] = replace(entry, places=entry.offsets), len(entry.times) + bool(entry.gone)

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
        safe = min(self._reached.values(), default=OVER)
        begun: tuple[int, int, int] | None = None  # an entry, and its lines from here to there
        while self._waiting and self._waiting[0][0] <= safe:
            _, number, line = heapq.heappop(self._waiting)
            if begun is not None and begun[0] == number and begun[2] == line and line >= 0:
                begun = (number, begun[1], line + 1)
            else:
                if begun is not None:
                    yield self._take(*begun)
                begun = (number, line, line + 1)
        if begun is not None:
            yield self._take(*begun)

    def _take(self, number: int, first: int, last: int) -> LogLines:
        entry, missing = self._entries.pop(number)
        if missing > last - first:
            self._entries[number] = entry, missing - (last - first)
        return entry.cut(slice(max(0, first), last), entry.gone if first < 0 else None)
