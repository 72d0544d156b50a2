"""The lines of many logs in the order of time, as far as whole parcels can be: none begins before the one sent last.

Of each log one parcel at most lies beyond what is to come, so that whoever puts the single lines into their order needs
to keep no more than that.
"""

from __future__ import annotations

import heapq
from typing import Callable, Iterable, List, Optional, Tuple

from .grep import Grep
from .lines import PIECE
from .runlogs import Log, Parcel

MOST = PIECE  # bytes of a parcel; with less, no piece of a line without end would fit


class InOrder:
    """Reads logs that are not waited for, each to the end that it had when we came."""

    def __init__(
        self,
        logs: Iterable[Log],
        grep: Optional[Grep],
        ended: Callable[[Log], bool],
        tick: Callable[[], None],
    ) -> None:
        """`ended` tells whether nobody writes to a log any more; `tick` is called now and then."""
        self._logs = list(logs)
        self._grep, self._ended, self._tick = grep, ended, tick

    def send(self, send: Callable[[Parcel], None]) -> None:
        """Hand out all parcels, each when it is its turn."""
        waiting: List[Tuple[float, int, Parcel]] = []
        for number in range(len(self._logs)):
            self._take(waiting, number)
        while waiting:
            _, number, parcel = heapq.heappop(waiting)
            send(parcel)
            self._take(waiting, number)

    def _take(self, waiting: List[Tuple[float, int, Parcel]], number: int) -> None:
        log = self._logs[number]
        while True:
            self._tick()
            parcel = log.parcel(self._grep, self._ended(log), MOST)
            if parcel is None:
                return
            if parcel.body or "gone" in parcel.header:
                heapq.heappush(waiting, (parcel.began, number, parcel))
                return
