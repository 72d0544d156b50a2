"""What is gone of a log, and how readers pass over it: the middle of one that was too long, and holes of any origin.

The workers hold their logs open, so that these cannot be rotated. The kernel can free a part of a file all the same
(`recorder`); what is there reads as zeros, and a small file beside the log names the lines that are gone. A sparse file
of terabytes costs no disk, but would be read for hours.
"""

from __future__ import annotations

import errno
import os
from typing import NamedTuple, Optional

from ...protocol.untrusted import Untrusted
from ..state.workdir import read_json


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


def is_empty_block(content: bytes) -> bool:
    """Whether a block may be of a hole: it has zeros and nothing else."""
    return content.startswith(b"\0") and not content.strip(b"\0")


def find_hole_end(descriptor: int, offset: int, size: int) -> int:
    """Return where the data behind a place go on; the place itself where the file system knows of no hole."""
    try:
        return min(size, max(offset, os.lseek(descriptor, offset, os.SEEK_DATA)))
    except OSError as error:
        return size if error.errno == errno.ENXIO else offset  # ENXIO: there are none up to the end


def find_hole_begin(descriptor: int, begin: int, offset: int) -> int:
    """Return a place not before `begin` from which to `offset` there are no data, in steps that double."""
    found, step = offset, 1 << 20
    while found > begin:
        earlier = max(begin, found - step)
        if find_hole_end(descriptor, earlier, offset) < offset:
            return found
        found, step = earlier, step * 2
    return found
