"""Passing over the holes of a log: a sparse file of terabytes costs no disk, but would be read for hours."""

from __future__ import annotations

import errno
import os


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
