"""What an agent does about its run's logs: it notes how they grow, and holds them to the job's limit."""

from __future__ import annotations

import errno
import json
import os
import time
from contextlib import suppress
from typing import Callable, Dict, Iterable, Optional, Set

from ..runtime.event_loop import Loop
from ..state.run_record import Record
from ..state.workdir import release_disk_reserve, reserve_disk, write_atomically
from .time_index import WRITE_EVERY, SizeIndex
from .truncation import Truncation, truncation_path

CHECK_INTERVAL = 0.5  # seconds between looks while anything grows
QUIET_INTERVAL = 2.0  # seconds between looks at logs that do not grow
QUIET_AFTER = 8  # looks without growth after which it is quiet
MAX_CUT = 1 << 30  # bytes that are freed at once: the agent must not be silent for long
MAX_HEAD = 16 << 20  # bytes at the beginning of a log that are never cut
MAX_CUTS = 8
UNSUPPORTED = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EPERM, errno.ETXTBSY)
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
KEEP_SIZE, PUNCH_HOLE = 1, 2  # of fallocate(2)
PAGE = 4096  # what can be freed begins and ends at a multiple of it
MAX_SEARCH = 1 << 16  # bytes in which a line's beginning is looked for


class LogRecorder:
    """The logs of one run on this node, of all its attempts."""

    def __init__(self, loop: Loop, record: Record, limit: int, files: Callable[[], Iterable[str]]) -> None:
        """`files` names those that may grow now; `limit` is in bytes, 0 for none."""
        self._loop = loop
        self._files = files
        self._limit = SizeLimit(record, limit)
        self._logs: Dict[str, SizeIndex] = {}
        self._checked_at = time.time()
        self._written_at = time.monotonic()
        self._quiet_checks = 0

    def start(self) -> None:
        """Look from now on, every now and then."""
        self._quiet_checks = 0 if self.check() else self._quiet_checks + 1
        self._loop.after(
            CHECK_INTERVAL if self._quiet_checks < QUIET_AFTER else QUIET_INTERVAL, "logs", self.start
        )

    def check(self) -> bool:
        """Look how long each log is; True if any has grown."""
        now, grown = time.time(), False
        for file in self._files():
            if file not in self._logs:
                self._logs[file] = SizeIndex(file, self._checked_at)
                self._written_at = float("-inf")  # a reader that finds a log finds its index
            grown = self._logs[file].check(now) or grown
        self._checked_at = now
        if time.monotonic() - self._written_at > WRITE_EVERY or any(
            log.paused for log in self._logs.values()
        ):
            self.write()
        self._limit.enforce({file: log.size for file, log in self._logs.items()})
        return grown

    def write(self) -> None:
        """Write down what was seen."""
        self._written_at = time.monotonic()
        for log in self._logs.values():
            log.write()

    def conclude(self) -> None:
        """An attempt has ended, and nothing writes any more."""
        self.check()
        self.write()


class SizeLimit:
    """Frees the middle of the longest log whenever all together are too long."""

    def __init__(self, record: Record, limit: int) -> None:
        self._record = record
        self._limit = limit
        self._cuts: Dict[str, Truncation] = {}
        self._unfreeable: Set[str] = set()  # of these logs nothing can be freed
        self._disk_full = False

    def enforce(self, sizes: Dict[str, int]) -> None:
        """Keep the logs within the limit; where the file system cannot do that, say so once."""
        for _ in range(MAX_CUTS if self._limit else 0):
            held = {file: size - self._freed_bytes(file, size) for file, size in sizes.items()}
            freeable = {file: size for file, size in held.items() if file not in self._unfreeable}
            if sum(held.values()) <= self._limit or not freeable:
                return
            longest = max(freeable, key=lambda file: freeable[file])
            try:
                if not self._shorten(longest, sizes[longest], self._limit // len(sizes) // 4):
                    return
            except OSError as error:
                self._on_cut_failed(longest, error)
                return

    def _on_cut_failed(self, file: str, error: OSError) -> None:
        """Leave alone what can never be freed; all else is tried again at the next look."""
        if error.errno in UNSUPPORTED:
            if not self._unfreeable:
                why = os.strerror(error.errno or 0)
                self._record.add_event("logs_unbounded", {"limit": self._limit, "why": why})
            self._unfreeable.add(file)
        elif error.errno in DISK_FULL:
            release_disk_reserve(self._record.rundir)  # room to write down what is freed
            self._disk_full = True

    def _shorten(self, file: str, size: int, kept: int) -> bool:
        """Free a part of one log, so much kept at both ends; False if there is no more between them."""
        cut: Optional[Truncation] = self._cuts.get(file)
        head = cut.begin if cut else min(MAX_HEAD, kept)
        begin = cut.freed if cut else round_up_to_page(head)
        most = round_up_to_page(max(1, min(MAX_CUT, self._limit // 8)))
        end = min(begin + most, round_up_to_page(size - kept) - round_up_to_page(1))
        if end <= begin:
            return False
        self._cuts[file] = truncate_middle(file, cut, head, end)
        if cut is None and len(self._cuts) == 1:
            self._record.add_event("logs_cut", {"limit": self._limit})
        if self._disk_full:
            self._disk_full = False
            reserve_disk(self._record.rundir)
        return True

    def _freed_bytes(self, file: str, size: int) -> int:
        cut = self._cuts.get(file)
        if cut is not None and size < cut.freed:  # another program has emptied or removed it
            del self._cuts[file]
            with suppress(OSError):
                os.unlink(truncation_path(file))
            return 0
        return cut.freed - round_up_to_page(cut.begin) if cut else 0


def truncate_middle(log: str, previous: Optional[Truncation], head: int, freed: int) -> Truncation:
    """Free a log up to `freed`, but for its first lines; OSError where the file system cannot do that.

    The record is written before the log is cut: a reader that finds zeros finds out why.
    """
    descriptor = os.open(log, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        begin = previous.begin if previous else line_before(descriptor, head)
        cut = Truncation(begin, line_after(descriptor, freed), freed)
        write_atomically(truncation_path(log), json.dumps(cut._asdict()).encode("ascii"))
        try:
            punch(descriptor, previous.freed if previous else round_up_to_page(begin), freed)
        except OSError:
            restore_truncation(log, previous)
            raise
    finally:
        os.close(descriptor)
    return cut


def restore_truncation(log: str, previous: Optional[Truncation]) -> None:
    """Restore what was recorded before."""
    if previous is None:
        os.unlink(truncation_path(log))
    else:
        write_atomically(truncation_path(log), json.dumps(previous._asdict()).encode("ascii"))


def round_up_to_page(offset: int) -> int:
    """Round up to what can be freed."""
    return -(-offset // PAGE) * PAGE


def line_before(descriptor: int, offset: int) -> int:
    """Return the beginning of the line that a place is in; the place itself in a line without end."""
    start = max(0, offset - MAX_SEARCH)
    newline = os.pread(descriptor, offset - start, start).rfind(b"\n")
    return start + newline + 1 if newline >= 0 else offset


def line_after(descriptor: int, offset: int) -> int:
    """Return the beginning of the first line after a place; the place itself in a line without end."""
    newline = os.pread(descriptor, MAX_SEARCH, offset).find(b"\n")
    return offset + newline + 1 if newline >= 0 else offset


def punch(descriptor: int, begin: int, end: int) -> None:
    """Free a part of a file that others may be writing to; its length stays."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    fallocate = getattr(libc, "fallocate64", None) or libc.fallocate  # the second may take 32 bits only
    fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    if fallocate(descriptor, KEEP_SIZE | PUNCH_HOLE, begin, end - begin):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
