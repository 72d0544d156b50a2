"""What an agent does about its run's logs: it notes how they grow, and holds them to the job's limit."""

from __future__ import annotations

import time
from typing import Callable, Dict, Iterable, Optional

from .logcut import Cut, cut_out, page_from
from .logindex import Growth
from .loop import Loop
from .state import Record

STEP = 0.5  # seconds between looks while anything grows
QUIET = 2.0  # seconds between looks at logs that do not grow
TURNS = 8  # looks without growth after which it is quiet
WRITE_EVERY = 5.0  # seconds
MOST_CUT = 1 << 30  # bytes that are freed at once: the agent must not be silent for long
MOST_HEAD = 16 << 20  # bytes at the beginning of a log that are never cut
ROUNDS = 8


class Logbook:
    """The logs of one run on this node, of all its attempts."""

    def __init__(self, loop: Loop, record: Record, limit: int, files: Callable[[], Iterable[str]]) -> None:
        """`files` names those that may grow now; `limit` is in bytes, 0 for none."""
        self._loop = loop
        self._files = files
        self._limit = Limit(record, limit)
        self._logs: Dict[str, Growth] = {}
        self._looked = time.time()
        self._written = time.monotonic()
        self._still = 0

    def begin(self) -> None:
        """Look from now on, every now and then."""
        self._still = 0 if self.look() else self._still + 1
        self._loop.after(STEP if self._still < TURNS else QUIET, "logs", self.begin)

    def look(self) -> bool:
        """Look how long each log is; True if any has grown."""
        now, grown = time.time(), False
        for file in self._files():
            if file not in self._logs:
                self._logs[file] = Growth(file, self._looked)
                self._written = float("-inf")  # whoever finds a log finds its index
            grown = self._logs[file].look(now) or grown
        self._looked = now
        if time.monotonic() - self._written > WRITE_EVERY:
            self.write()
        self._limit.hold({file: log.size for file, log in self._logs.items()})
        return grown

    def write(self) -> None:
        """Write down what was seen."""
        self._written = time.monotonic()
        for log in self._logs.values():
            log.write()

    def conclude(self) -> None:
        """An attempt has ended, and nobody writes any more."""
        self.look()
        self.write()


class Limit:
    """Frees the middle of the longest log whenever all together are too long."""

    def __init__(self, record: Record, limit: int) -> None:
        self._record = record
        self._limit = limit
        self._cuts: Dict[str, Cut] = {}

    def hold(self, sizes: Dict[str, int]) -> None:
        """Keep the logs within the limit; where that cannot be, say so once."""
        for _ in range(ROUNDS if self._limit else 0):
            held = {file: size - self._lost(file) for file, size in sizes.items()}
            if sum(held.values()) <= self._limit:
                return
            longest = max(held, key=lambda file: held[file])
            try:
                if not self._shorten(longest, sizes[longest], self._limit // len(sizes) // 4):
                    return
            except OSError as error:
                self._record.note("logs_unbounded", limit=self._limit, why=error.strerror or str(error))
                self._limit = 0
                return

    def _shorten(self, file: str, size: int, kept: int) -> bool:
        """Free a part of one log, so much kept at both ends; False if there is no more between them."""
        known: Optional[Cut] = self._cuts.get(file)
        head = known.begin if known else min(MOST_HEAD, kept)
        begin = known.freed if known else page_from(head)
        wanted = page_from(max(1, min(MOST_CUT, self._limit // 8)))
        end = min(begin + wanted, page_from(size - kept) - page_from(1))
        if end <= begin:
            return False
        self._cuts[file] = cut_out(file, known, head, end)
        if known is None and len(self._cuts) == 1:
            self._record.note("logs_cut", limit=self._limit)
        return True

    def _lost(self, file: str) -> int:
        known = self._cuts.get(file)
        return known.freed - page_from(known.begin) if known else 0
