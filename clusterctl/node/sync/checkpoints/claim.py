"""Which run a directory of checkpoints belongs to: which of two runs has written a file is not visible.

mirror/.places/<digest>       the run's id; its keepers hold a shared lock, which the kernel frees when they end
.clusterctl-<digest>          the same beside the directory, for runs of other work directories that see it
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from contextlib import suppress
from typing import Iterator, List

from ...state.workdir import make_below
from .folders import MIRRORS
from .scanning import OWN_PREFIX

MAX_ID = 200  # bytes
WRITE_LIMIT = 5.0  # seconds in which the first keeper of a run writes its id
WRITE_INTERVAL = 0.02  # seconds


class ClaimedError(Exception):
    """Another run writes its checkpoints there; the text is its id."""


def claim_folder(workdir: str, folder: bytes, run_id: str) -> List[int]:
    """Return descriptors that hold the directory for a run as long as they are open; none where there are no locks."""
    held: List[int] = []
    try:
        for path in _find_paths(workdir, os.path.realpath(folder)):
            with suppress(OSError):  # no locks there, or not to be written to
                flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
                held.append(os.open(path, flags, 0o600))
                _lock(held[-1], os.fsencode(run_id))
    except ClaimedError:
        for descriptor in held:
            os.close(descriptor)
        raise
    return held


def _find_paths(workdir: str, folder: bytes) -> Iterator[bytes]:
    """Yield the files to lock; nothing is written into the directory itself, which a script may want to be empty.

    The same path on two machines that share the work directory, but not the files, is two places. What is below the
    work directory is that of no other one.
    """
    identity = (
        f"{os.stat(folder).st_ino} {getattr(os.statvfs(folder), 'f_fsid', 0)} ".encode("ascii") + folder
    )
    yield os.path.join(os.fsencode(make_below(workdir, MIRRORS, ".places")), _digest(identity))
    if not folder.startswith(os.path.realpath(os.fsencode(workdir)) + b"/"):
        parent, name = os.path.split(folder)
        yield os.path.join(parent, OWN_PREFIX.encode("ascii") + _digest(name))


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest()[:32].encode("ascii")


def _lock(descriptor: int, run_id: bytes) -> None:
    """Share the lock of a run; the first of its keepers writes its id, under a lock of its own."""
    with suppress(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, run_id, 0)
    due = time.monotonic() + WRITE_LIMIT
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            break
        except BlockingIOError:  # another keeper writes its id
            if time.monotonic() > due:
                raise
            time.sleep(WRITE_INTERVAL)
    holder = os.pread(descriptor, MAX_ID, 0)  # now, as between the two locks there was none
    if holder != run_id:
        raise ClaimedError(holder.decode("ascii", "replace"))
