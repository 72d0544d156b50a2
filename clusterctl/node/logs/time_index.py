"""When the bytes of a log were written: beside each log an index of how long it was at which moment.

The agent keeps it, as fixed-size records (length, time by the node's clock) that only grow. Between two records time
goes with the bytes, so that a line's time is known to half a second, and to a millisecond where lines are few.
"""

from __future__ import annotations

import os
import struct
import time
from contextlib import suppress
from typing import Callable, List, Optional, Tuple

from .log_file import open_log

RECORD = struct.Struct("<Qd")
PAUSE = 0.25  # seconds without a change that are worth a record of their own
WRITE_EVERY = 5.0  # seconds that records may wait to be written, but for those after a long pause
MAX_MARKS = 1000
MAX_UNWRITTEN = 4096  # records that wait for a disk that is full
THIN_OUT_AFTER = 200000  # records after which they are made half as often

Mark = Tuple[int, float]  # so long was the file at that time


def index_path(log: str) -> str:
    """Name the index of a log."""
    return f"{log}.idx"


class SizeIndex:
    """How one log grows: looked at now and then, written down in one go."""

    def __init__(self, log: str, since: float) -> None:
        """`since` is when there was nothing of it yet."""
        self.log = log
        self.size = 0
        self._checked_at = since
        self._marks: List[Mark] = [(0, since)]  # not written yet, but for the first of an index that is there
        self._latest = since
        self._written = 0
        self._skip = 0
        # whether what was noted last must not wait: a reader would spread it over a pause
        self.paused = False

    def check(self, now: float) -> bool:
        """Look at the file; True if it has changed since the last look."""
        try:
            status = os.stat(self.log)
        except OSError:
            if self.size:
                self._reset()  # another program has removed it
            return False
        if status.st_size == self.size:
            self._checked_at = now
            return False
        if status.st_size < self.size:
            self._reset()
        self._add_marks(status, now)
        return True

    def write(self) -> None:
        """Append what is new to the index; what a full disk refuses is written the next time."""
        if not self._marks:
            return
        content = b"".join(RECORD.pack(*mark) for mark in self._marks)
        with suppress(OSError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(index_path(self.log), flags, 0o600)
            try:
                if self._written == 0:
                    os.ftruncate(descriptor, 0)
                if os.pwrite(descriptor, content, self._written) == len(content):
                    self._written += len(content)
                    self._marks, self.paused = [], False
            finally:
                os.close(descriptor)
        if len(self._marks) > MAX_UNWRITTEN:
            self._marks = self._marks[1::2]

    def _add_marks(self, status: os.stat_result, now: float) -> None:
        before, moment = growth_interval(self._latest, self._checked_at, status, now)
        self._skip = (self._skip + 1) % (1 + self._written // RECORD.size // THIN_OUT_AFTER)
        if self._skip == 0:
            if before - self._latest > PAUSE:
                self._marks.append((self.size, before))
            self.paused = self.paused or before - self._latest > WRITE_EVERY / 2
            self._marks.append((status.st_size, moment))
            self._latest = moment
        self.size, self._checked_at = status.st_size, now

    def _reset(self) -> None:
        """Another program has cut the file: what was known of it is wrong now."""
        self.size, self._written = 0, 0
        self._marks = [(0, self._checked_at)]


class TimeIndex:
    """When the bytes of a log were written, by its index, and for what came since by its size."""

    def __init__(self, log: str) -> None:
        self._descriptor: Optional[int] = None
        self._count = 0
        self._recent: List[Mark] = []  # what is in no index
        self._initial_size, self._checked_at = 0, time.time()
        with suppress(OSError):
            self._descriptor = open_log(index_path(log))
            self._count = os.fstat(self._descriptor).st_size // RECORD.size
        with suppress(OSError):
            self._load(os.stat(log))
        self._indexed = self._count > 0

    def is_guess(self, offset: int) -> bool:
        """Whether the time of a place is no better known than as that of the file's last write."""
        return not self._indexed and offset < self._initial_size

    def update(self, status: os.stat_result, now: float) -> None:
        """Take notice of how long the file is now."""
        size, moment = self._recent[-1] if self._recent else (0, 0.0)
        if status.st_size < size:
            self._count, self._recent = 0, [(0, self._checked_at)]
            size, moment = self._recent[-1]
        if status.st_size > size:
            before, latest = growth_interval(moment, self._checked_at, status, now)
            if before > moment:
                self._recent.append((size, before))
            self._recent.append((status.st_size, latest))
        self._checked_at = now

    def time_marks(self, start: int, end: int) -> List[Mark]:
        """Read the times of some bytes: at their beginning, where the pace changes, and at their end."""
        first = self._search(lambda mark: mark[0] <= start)
        last = self._search(lambda mark: mark[0] < end)
        inner = self._marks_between(first, last)
        inner = inner[:: 1 + len(inner) // MAX_MARKS]
        return [(start, self._interpolate(first, start)), *inner, (end, self._interpolate(last, end))]

    def offset_at(self, moment: float) -> int:
        """Return a place before which everything was written before a moment."""
        index = self._search(lambda mark: mark[1] < moment)
        return self._mark(index - 1)[0] if index else 0

    def forget_before(self, offset: int) -> None:
        """Keep no more than is needed from a place on."""
        while len(self._recent) > 2 and self._recent[1][0] <= offset:
            if self._count:
                self._count = 0
            del self._recent[0]

    def close(self) -> None:
        """Close the index."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        self._count = 0

    def _load(self, status: os.stat_result) -> None:
        """Take the file as it is now; of its index what goes beyond that is left out."""
        self._initial_size = status.st_size
        while self._count and self._mark(self._count - 1)[0] > status.st_size:
            self._count -= 1
        latest = self._mark(self._count - 1)[1] if self._count else 0.0
        written = max(latest, min(status.st_mtime, self._checked_at))
        known = self._mark(self._count - 1)[0] if self._count else 0
        since = max(latest, written - WRITE_EVERY - 1.0) if self._count else written
        self._recent = [(known, since), (status.st_size, written)]

    @property
    def _total(self) -> int:
        return self._count + len(self._recent)

    def _mark(self, index: int) -> Mark:
        return self._marks_between(index, index + 1)[0]

    def _marks_between(self, first: int, last: int) -> List[Mark]:
        recent = self._recent[max(0, first - self._count) : max(0, last - self._count)]
        count = max(0, min(last, self._count) - first)
        if self._descriptor is None or not count:
            return recent
        content = os.pread(self._descriptor, count * RECORD.size, first * RECORD.size)
        return [(length, moment) for length, moment in RECORD.iter_unpack(content)] + recent

    def _search(self, is_before: Callable[[Mark], bool]) -> int:
        """Find the first record that is not before what is looked for."""
        low, high = 0, self._total
        while low < high:
            middle = (low + high) // 2
            if is_before(self._mark(middle)):
                low = middle + 1
            else:
                high = middle
        return low

    def _interpolate(self, index: int, offset: int) -> float:
        """Return the time of a place that lies between a record and the one before it."""
        if index == 0:
            return self._mark(0)[1]
        if index >= self._total:
            return self._mark(self._total - 1)[1]
        (low, earlier), (high, later) = self._mark(index - 1), self._mark(index)
        return later if high == low else earlier + (later - earlier) * (offset - low) / (high - low)


def growth_interval(
    latest: float, checked_at: float, status: os.stat_result, now: float
) -> Tuple[float, float]:
    """Return between which moments a file has grown since the last look; a file server may have another clock."""
    before = max(latest, min(checked_at, now))
    return before, status.st_mtime if before <= status.st_mtime <= now else max(before, now)
