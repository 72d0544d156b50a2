"""Logs that are too long lose their middle: where the hole in a log is, and how it is made.

The workers hold their logs open, so that these cannot be rotated. The kernel can free a part of a file all the same;
what is there reads as zeros, and a small file beside the log names the lines that are gone.
"""

from __future__ import annotations

import json
import os
from typing import NamedTuple, Optional

from ...protocol.untrusted import Untrusted
from ..state.workdir import read_json, write_atomically

KEEP_SIZE, PUNCH_HOLE = 1, 2  # of fallocate(2)
PAGE = 4096  # what can be freed begins and ends at a multiple of it
LONGEST_SEARCH = 1 << 16  # bytes in which a line's beginning is looked for


class Truncation(NamedTuple):
    """The lines from `begin` to `end` are gone, and of the file the bytes from `begin` rounded up to `freed`."""

    begin: int
    end: int
    freed: int


def truncation_path(log: str) -> str:
    """Name the file that records what is gone of a log."""
    return f"{log}.cut"


def read_truncation(log: str) -> Optional[Truncation]:
    """Return what is gone of a log; None if all is there."""
    entry = Untrusted(read_json(truncation_path(log)))
    begin, end, freed = (entry.integer(name, 0) for name in Truncation._fields)
    return None if begin is None or end is None or freed is None else Truncation(begin, end, freed)


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
    start = max(0, offset - LONGEST_SEARCH)
    newline = os.pread(descriptor, offset - start, start).rfind(b"\n")
    return start + newline + 1 if newline >= 0 else offset


def line_after(descriptor: int, offset: int) -> int:
    """Return the beginning of the first line after a place; the place itself in a line without end."""
    newline = os.pread(descriptor, LONGEST_SEARCH, offset).find(b"\n")
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
