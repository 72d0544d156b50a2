"""Contents of which only a part has come: files beside those that they become, found again by the content's hash.

A process that writes to a part holds its lock. So a killed one leaves a part that the next continues, and two never
write to the same.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from contextlib import suppress
from typing import Dict

from ..hashing import CHUNK, Sha
from ..removal import STALE, Step, list_entries
from ..store import Incoming

PREFIX = ".clusterctl-part-"
MIN_KEPT = 1 << 20  # bytes; a smaller part is not worth a file that the user does not expect


def part_path(folder: str, sha: Sha) -> str:
    """Return where the part of a content is."""
    return os.path.join(folder, PREFIX + sha)


def open_part(path: str, *, make: bool) -> int:
    """Open a part and lock it; -1 if there is none, another process writes to it, or it is not ours alone."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | (os.O_CREAT if make else 0)
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError:
        return -1
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        status, named = os.fstat(descriptor), os.lstat(path)
        is_own = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and status.st_nlink == 1
        # the process that had the lock may have given it its name meanwhile
        if is_own and not status.st_mode & 0o022 and os.path.samestat(status, named):
            return descriptor
    os.close(descriptor)
    return -1


def find_parts(folder: str) -> Dict[Sha, int]:
    """Return the sizes of the parts in a directory, and remove those that nothing has continued for a day."""
    parts, oldest = {}, time.time() - STALE
    for entry in list_entries(folder):
        if entry.name.startswith(PREFIX):
            with suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if status.st_mtime >= oldest:
                    parts[entry.name[len(PREFIX) :]] = status.st_size
                    continue
                descriptor = open_part(entry.path, make=False)
                if descriptor >= 0:
                    os.unlink(entry.path)
                    os.close(descriptor)
    return parts


def begin_part(folder: str, sha: Sha, size: int) -> Incoming | None:
    """Begin a content in a part of its name; None if that cannot be used."""
    path = part_path(folder, sha)
    descriptor = open_part(path, make=True)
    if descriptor < 0:
        return None
    os.ftruncate(descriptor, 0)
    return Incoming(path, size, descriptor)


def continue_part(folder: str, sha: Sha, size: int, step: Step) -> Incoming | None:
    """Read the part of a content that is there, to continue it; None if there is none that can be."""
    path = part_path(folder, sha)
    descriptor = open_part(path, make=False)
    if descriptor < 0:
        return None
    incoming = Incoming(path, size, descriptor)
    while incoming.size <= size:
        data = os.read(descriptor, CHUNK)
        if not data:
            return incoming
        try:
            step()
        except BaseException:  # the part stays, for the next time; its lock goes
            incoming.close()
            raise
        incoming.digest.update(data)
        incoming.size += len(data)
    incoming.discard()  # longer than the content
    return None
