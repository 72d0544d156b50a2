"""Which run a directory of checkpoints belongs to: which of two runs has written a file is not visible.

mirror/.places/<digest>       the run's id; its keepers hold a shared lock, which the kernel frees when they end
.clusterctl-<digest>          the same beside the directory, for runs of other work directories that see it
<either>-contested            the id of a run that was refused; a keeper of it has the lock as long as it writes there
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from contextlib import suppress
from typing import Dict, Iterable, Iterator, List

from ...state.workdir import make_below
from .folders import MIRRORS
from .scanning import OWN_PREFIX

MAX_ID = 200  # bytes
WRITE_LIMIT = 5.0  # seconds in which the first keeper of a run writes its id
WRITE_INTERVAL = 0.02  # seconds
CONTESTED = b"-contested"
CONTEST_TRIES = 5


class Claim:
    """The directory of a run's checkpoints; as long as another run uses it too, neither can keep any."""

    def __init__(self, workdir: str, folder: bytes, run_id: str) -> None:
        self._workdir, self._folder, self._run_id = workdir, folder, os.fsencode(run_id)
        self._is_held = False
        self._claims: List[int] = []  # descriptors, whose locks last as long as this process
        self._contests: Dict[int, bytes] = {}  # descriptors, and what each file held
        self._contesting: Dict[bytes, int] = {}  # descriptors, by paths of what was refused

    def find_rival(self) -> str:
        """Return the id of another run that has the directory, or was refused it since the last call."""
        if self._is_held:
            return self._find_refused()
        return self._claim() if os.path.isdir(self._folder) else ""

    def _claim(self) -> str:
        """Claim the directory; return the id of the run that has it, if there is one."""
        for path in _find_paths(self._workdir, os.path.realpath(self._folder)):
            with suppress(OSError):  # no locks there, or not to be written to
                contest = _open(path + CONTESTED)
                self._contests[contest] = os.pread(contest, MAX_ID, 0)
                self._claims.append(_open(path))
                holder = _lock(self._claims[-1], self._run_id)
                if holder != self._run_id:
                    self._close([*self._claims, *self._contests])
                    self._claims, self._contests = [], {}
                    if path not in self._contesting:
                        self._contesting[path] = _open(path + CONTESTED)
                        _contest(self._contesting[path], self._run_id)
                    return holder.decode("ascii", "replace")
        self._is_held = True
        self._close(self._contesting.values())
        self._contesting.clear()
        return self._find_refused()

    def _find_refused(self) -> str:
        """Return the id of a run that was refused the directory, and is alive or was so since the last call."""
        for contest, before in self._contests.items():
            with suppress(OSError):
                is_alive = not _try_lock(contest, fcntl.LOCK_SH)
                if not is_alive:
                    fcntl.flock(contest, fcntl.LOCK_UN)
                # after the lock, with which NFS reads it again
                now = self._contests[contest] = os.pread(contest, MAX_ID, 0)
                refused = now.partition(b"\n")[0]
                if (is_alive or now != before) and refused != self._run_id:
                    return refused.decode("ascii", "replace")
        return ""

    def _close(self, descriptors: Iterable[int]) -> None:
        for descriptor in descriptors:
            os.close(descriptor)


def _open(path: bytes) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


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


def _try_lock(descriptor: int, kind: int) -> bool:
    with suppress(BlockingIOError):
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        return True
    return False


def _write_id(descriptor: int, content: bytes) -> None:
    os.pwrite(descriptor, content, 0)
    os.ftruncate(descriptor, len(content))  # only now, as it must never be empty for who reads it


def _lock(descriptor: int, run_id: bytes) -> bytes:
    """Share the lock of a run, and return its id; the first of its keepers writes it, under a lock of its own."""
    if _try_lock(descriptor, fcntl.LOCK_EX):
        _write_id(descriptor, run_id)
    due = time.monotonic() + WRITE_LIMIT
    while not _try_lock(descriptor, fcntl.LOCK_SH):  # another keeper writes its id
        if time.monotonic() > due:
            raise BlockingIOError
        time.sleep(WRITE_INTERVAL)
    return os.pread(descriptor, MAX_ID, 0)  # now, as between the two locks there was none


def _contest(descriptor: int, run_id: bytes) -> None:
    """Have the run that holds the directory see that another one writes there, until this process ends."""
    _write_id(descriptor, run_id + b"\n" + os.urandom(8).hex().encode("ascii"))  # not what was there before
    for _ in range(CONTEST_TRIES):  # the other run looks for a moment; another keeper has the lock for good
        if _try_lock(descriptor, fcntl.LOCK_EX):
            return
        time.sleep(WRITE_INTERVAL)
