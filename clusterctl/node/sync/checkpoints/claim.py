"""Which run a directory of checkpoints belongs to: which of two runs has written a file is not visible.

mirror/.places/<digest>   the run's id; its keepers hold a shared lock, which the kernel frees when they end
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from contextlib import suppress

from ...state.workdir import make_below
from .folders import MIRRORS

MAX_ID = 200  # bytes
WRITE_LIMIT = 0.1  # seconds in which the first keeper of a run writes its id


class ClaimedError(Exception):
    """Another run writes its checkpoints there; the text is its id."""


def claim_folder(workdir: str, folder: bytes, run_id: str) -> int:
    """Return a descriptor that holds the directory for a run as long as it is open; -1 where there are no locks.

    The same path on two machines that share the work directory, but not the files, is two places.
    """
    place = os.path.realpath(folder)
    identity = f"{os.stat(place).st_ino} {getattr(os.statvfs(place), 'f_fsid', 0)} ".encode("ascii") + place
    root = make_below(workdir, MIRRORS, ".places")
    path = os.path.join(root, hashlib.sha256(identity).hexdigest()[:32])
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        _lock(descriptor, os.fsencode(run_id))
    except ClaimedError:
        os.close(descriptor)
        raise
    except OSError:  # no locks there
        os.close(descriptor)
        return -1
    return descriptor


def _lock(descriptor: int, run_id: bytes) -> None:
    with suppress(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, run_id, 0)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        return
    time.sleep(WRITE_LIMIT)
    holder = os.pread(descriptor, MAX_ID, 0)
    if holder != run_id:
        raise ClaimedError(holder.decode("ascii", "replace"))
    fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
