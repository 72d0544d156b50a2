"""What an agent does about its run's logs: it notes how they grow, and holds them to the job's limit."""

from __future__ import annotations

import errno
import os
import time
from contextlib import suppress
from typing import Callable, Dict, Iterable, Optional, Set

from ..runtime.event_loop import Loop
from ..state.run_record import Record
from ..state.workdir import drop_ballast, lay_ballast
from .time_index import WRITE_EVERY, Growth
from .truncation import Cut, cut_of, cut_out, page_from

STEP = 0.5  # seconds between looks while anything grows
QUIET = 2.0  # seconds between looks at logs that do not grow
TURNS = 8  # looks without growth after which it is quiet
MOST_CUT = 1 << 30  # bytes that are freed at once: the agent must not be silent for long
MOST_HEAD = 16 << 20  # bytes at the beginning of a log that are never cut
ROUNDS = 8
CANNOT = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EPERM, errno.ETXTBSY)
FULL = (errno.ENOSPC, errno.EDQUOT)


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
        if time.monotonic() - self._written > WRITE_EVERY or any(log.paused for log in self._logs.values()):
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
        self._firm: Set[str] = set()  # of these logs nothing can be freed
        self._full = False

    def hold(self, sizes: Dict[str, int]) -> None:
        """Keep the logs within the limit; where the file system cannot do that, say so once."""
        for _ in range(ROUNDS if self._limit else 0):
            held = {file: size - self._lost(file, size) for file, size in sizes.items()}
            loose = {file: size for file, size in held.items() if file not in self._firm}
            if sum(held.values()) <= self._limit or not loose:
                return
            longest = max(loose, key=lambda file: loose[file])
            try:
                if not self._shorten(longest, sizes[longest], self._limit // len(sizes) // 4):
                    return
            except OSError as error:
                self._take_refusal(longest, error)
                return

    def _take_refusal(self, file: str, error: OSError) -> None:
        """Leave alone what can never be freed; all else is tried again at the next look."""
        if error.errno in CANNOT:
            if not self._firm:
                self._record.note("logs_unbounded", limit=self._limit, why=os.strerror(error.errno or 0))
            self._firm.add(file)
        elif error.errno in FULL:
            drop_ballast(self._record.rundir)  # room to write down what is freed
            self._full = True

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
        if self._full:
            self._full = False
            lay_ballast(self._record.rundir)
        return True

    def _lost(self, file: str, size: int) -> int:
        known = self._cuts.get(file)
        if known is not None and size < known.freed:  # somebody has emptied or removed it
            del self._cuts[file]
            with suppress(OSError):
                os.unlink(cut_of(file))
            return 0
        return known.freed - page_from(known.begin) if known else 0
