"""When the bytes of a log were written: beside each log an index of how long it was at which moment.

The agent keeps it, as fixed-size records (length, time by the node's clock) that only grow. Between two records time
goes with the bytes, so that a line's time is known to half a second, and to a millisecond where lines are few.
"""

from __future__ import annotations

import os
import struct
import time
from contextlib import suppress
from typing import List, Optional, Tuple

RECORD = struct.Struct("<Qd")
PAUSE = 0.25  # seconds without a change that are worth a record of their own
WRITE_EVERY = 5.0  # seconds that records may wait to be written, but for those after a long pause
MOST_KNOTS = 1000
MOST_KEPT = 4096  # records that wait for a disk that is full
LONG = 200000  # records after which they are made half as often

Mark = Tuple[int, float]  # so long was the file at that time


def index_of(log: str) -> str:
    """Name the index of a log."""
    return f"{log}.idx"


class Growth:
    """How one log grows: looked at now and then, written down in one go."""

    def __init__(self, log: str, since: float) -> None:
        """`since` is when there was nothing of it yet."""
        self.log = log
        self.size = 0
        self._looked = since
        self._marks: List[Mark] = [(0, since)]  # not written yet, but for the first of an index that is there
        self._latest = since
        self._written = 0
        self._skip = 0
        self.paused = (
            False  # whether what was noted last must not wait: a reader would spread it over a pause
        )

    def look(self, now: float) -> bool:
        """Look at the file; True if it has changed since the last look."""
        try:
            found = os.stat(self.log)
        except OSError:
            if self.size:
                self._begin_anew()  # somebody has removed it
            return False
        if found.st_size == self.size:
            self._looked = now
            return False
        if found.st_size < self.size:
            self._begin_anew()
        self._note(found, now)
        return True

    def write(self) -> None:
        """Append what is new to the index; what a full disk refuses is written the next time."""
        if not self._marks:
            return
        content = b"".join(RECORD.pack(*mark) for mark in self._marks)
        with suppress(OSError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(index_of(self.log), flags, 0o600)
            try:
                if self._written == 0:
                    os.ftruncate(descriptor, 0)
                if os.pwrite(descriptor, content, self._written) == len(content):
                    self._written += len(content)
                    self._marks, self.paused = [], False
            finally:
                os.close(descriptor)
        if len(self._marks) > MOST_KEPT:
            self._marks = self._marks[1::2]

    def _note(self, found: os.stat_result, now: float) -> None:
        before, moment = moments(self._latest, self._looked, found, now)
        self._skip = (self._skip + 1) % (1 + self._written // RECORD.size // LONG)
        if self._skip == 0:
            if before - self._latest > PAUSE:
                self._marks.append((self.size, before))
            self.paused = self.paused or before - self._latest > WRITE_EVERY / 2
            self._marks.append((found.st_size, moment))
            self._latest = moment
        self.size, self._looked = found.st_size, now

    def _begin_anew(self) -> None:
        """Somebody has cut the file: what was known of it is wrong now."""
        self.size, self._written = 0, 0
        self._marks = [(0, self._looked)]


class Times:
    """When the bytes of a log were written, as its index tells, and for what came since by looking at it."""

    def __init__(self, log: str) -> None:
        self._descriptor: Optional[int] = None
        self._count = 0
        self._late: List[Mark] = []  # what no index tells
        self._met, self._looked = 0, time.time()
        with suppress(OSError):
            self._descriptor = os.open(index_of(log), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            self._count = os.fstat(self._descriptor).st_size // RECORD.size
        with suppress(OSError):
            self._begin(os.stat(log))
        self._indexed = self._count > 0

    def guesses(self, place: int) -> bool:
        """Whether the time of a place is no better known than as that of the file's last write."""
        return not self._indexed and place < self._met

    def look(self, found: os.stat_result, now: float) -> None:
        """Take notice of how long the file is now."""
        size, moment = self._late[-1] if self._late else (0, 0.0)
        if found.st_size < size:
            self._count, self._late = 0, [(0, self._looked)]
            size, moment = self._late[-1]
        if found.st_size > size:
            before, latest = moments(moment, self._looked, found, now)
            if before > moment:
                self._late.append((size, before))
            self._late.append((found.st_size, latest))
        self._looked = now

    def knots(self, start: int, end: int) -> List[Mark]:
        """Tell the times of some bytes: at their beginning, where the pace changes, and at their end."""
        first, last = self._after(start), self._from(end)
        inner = self._marks_between(first, last)
        inner = inner[:: 1 + len(inner) // MOST_KNOTS]
        return [(start, self._time_before(first, start)), *inner, (end, self._time_before(last, end))]

    def place_at(self, moment: float) -> int:
        """Give a place before which everything was written before a moment."""
        low, high = 0, self._all
        while low < high:
            middle = (low + high) // 2
            if self._mark(middle)[1] < moment:
                low = middle + 1
            else:
                high = middle
        return self._mark(low - 1)[0] if low else 0

    def forget(self, place: int) -> None:
        """Keep no more than is needed from a place on."""
        while len(self._late) > 2 and self._late[1][0] <= place:
            if self._count:
                self._count = 0
            del self._late[0]

    def close(self) -> None:
        """Let go of the index."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        self._count = 0

    def _begin(self, found: os.stat_result) -> None:
        """Take the file as it is now; of its index what goes beyond that is left out."""
        self._met = found.st_size
        while self._count and self._mark(self._count - 1)[0] > found.st_size:
            self._count -= 1
        latest = self._mark(self._count - 1)[1] if self._count else 0.0
        written = max(latest, min(found.st_mtime, self._looked))
        known = self._mark(self._count - 1)[0] if self._count else 0
        since = max(latest, written - WRITE_EVERY - 1.0) if self._count else written
        self._late = [(known, since), (found.st_size, written)]

    @property
    def _all(self) -> int:
        return self._count + len(self._late)

    def _mark(self, number: int) -> Mark:
        return self._marks_between(number, number + 1)[0]

    def _marks_between(self, first: int, last: int) -> List[Mark]:
        late = self._late[max(0, first - self._count) : max(0, last - self._count)]
        wanted = max(0, min(last, self._count) - first)
        if self._descriptor is None or not wanted:
            return late
        content = os.pread(self._descriptor, wanted * RECORD.size, first * RECORD.size)
        return [(length, moment) for length, moment in RECORD.iter_unpack(content)] + late

    def _from(self, place: int) -> int:
        """Find the first record of at least this length."""
        low, high = 0, self._all
        while low < high:
            middle = (low + high) // 2
            if self._mark(middle)[0] < place:
                low = middle + 1
            else:
                high = middle
        return low

    def _after(self, place: int) -> int:
        return self._from(place + 1)

    def _time_before(self, number: int, place: int) -> float:
        """Give the time of a place that lies between a record and the one before it."""
        if number == 0:
            return self._mark(0)[1]
        if number >= self._all:
            return self._mark(self._all - 1)[1]
        (low, earlier), (high, later) = self._mark(number - 1), self._mark(number)
        return later if high == low else earlier + (later - earlier) * (place - low) / (high - low)


def moments(latest: float, looked: float, found: os.stat_result, now: float) -> Tuple[float, float]:
    """Tell between which moments a file has grown since the last look; a file server may have another clock."""
    before = max(latest, min(looked, now))
    return before, found.st_mtime if before <= found.st_mtime <= now else max(before, now)
