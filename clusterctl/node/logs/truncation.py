"""Logs that are too long lose their middle: where the hole in a log is, and how it is made.

The workers hold their logs open, so that these cannot be rotated. The kernel can free a part of a file all the same;
what is there reads as zeros, and a small file beside the log says which lines are gone.
"""

from __future__ import annotations

import json
import os
from typing import NamedTuple, Optional

from ..state.workdir import read_json, write_atomically

KEEP_SIZE, PUNCH_HOLE = 1, 2  # of fallocate(2)
PAGE = 4096  # what can be freed begins and ends at a multiple of it
LONGEST = 1 << 16  # bytes in which a line's beginning is looked for


class Cut(NamedTuple):
    """The lines from `begin` to `end` are gone, and of the file the bytes from `begin` rounded up to `freed`."""

    begin: int
    end: int
    freed: int


def cut_of(log: str) -> str:
    """Name the file that says what is gone of a log."""
    return f"{log}.cut"


def read_cut(log: str) -> Optional[Cut]:
    """Tell what is gone of a log; None if all is there."""
    found = read_json(cut_of(log))
    try:
        return Cut(int(found["begin"]), int(found["end"]), int(found["freed"])) if found else None
    except (KeyError, TypeError, ValueError):
        return None


def cut_out(log: str, known: Optional[Cut], head: int, freed: int) -> Cut:
    """Free a log up to `freed`, but for its first lines; OSError where the file system cannot do that.

    The word comes before the deed: whoever meets zeros finds out why.
    """
    descriptor = os.open(log, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        begin = known.begin if known else line_before(descriptor, head)
        cut = Cut(begin, line_after(descriptor, freed), freed)
        write_atomically(cut_of(log), json.dumps(cut._asdict()).encode("ascii"))
        try:
            punch(descriptor, known.freed if known else page_from(begin), freed)
        except OSError:
            take_back(log, known)
            raise
    finally:
        os.close(descriptor)
    return cut


def take_back(log: str, known: Optional[Cut]) -> None:
    """Say again what was true before."""
    if known is None:
        os.unlink(cut_of(log))
    else:
        write_atomically(cut_of(log), json.dumps(known._asdict()).encode("ascii"))


def page_from(place: int) -> int:
    """Round up to what can be freed."""
    return -(-place // PAGE) * PAGE


def line_before(descriptor: int, place: int) -> int:
    """Give the beginning of the line that a place is in; the place itself in a line without end."""
    start = max(0, place - LONGEST)
    found = os.pread(descriptor, place - start, start).rfind(b"\n")
    return start + found + 1 if found >= 0 else place


def line_after(descriptor: int, place: int) -> int:
    """Give the beginning of the first line after a place; the place itself in a line without end."""
    found = os.pread(descriptor, LONGEST, place).find(b"\n")
    return place + found + 1 if found >= 0 else place


def punch(descriptor: int, begin: int, end: int) -> None:
    """Free a part of a file that others may be writing to; its length stays."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    fallocate = getattr(libc, "fallocate64", None) or libc.fallocate  # the second may take 32 bits only
    fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    if fallocate(descriptor, KEEP_SIZE | PUNCH_HOLE, begin, end - begin):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
