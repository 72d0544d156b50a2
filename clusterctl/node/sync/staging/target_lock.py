"""One process at a time stages to a place of a node: others wait, and report who does.

staged/<host>/locks/mutex      held while the others are looked at
staged/<host>/locks/<random>   {"path", "by"} of a process, which holds the file's lock; the kernel frees it at its end

A place inside another one counts as the same. Where a file system has no locks, nothing is held.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from contextlib import contextmanager, suppress
from typing import Callable, Iterator, Optional

from ....protocol.untrusted import Untrusted, bounded_text
from ...state.workdir import NEW_FILE_FLAGS, make_below, read_json
from ..removal import list_entries
from .remembered_hashes import make_staged_folder

POLL_INTERVAL = 0.2  # seconds
MAX_PATH, MAX_BY = 4096, 300  # characters
MUTEX = "mutex"
UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


@contextmanager
def hold_target(workdir: str, path: str, by: str, on_wait: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock of a path; while another process does, `on_wait` gets its `by`, again and again."""
    folder = make_below(make_staged_folder(workdir), "locks")
    path = bounded_text(path, MAX_PATH)
    entry, descriptor = os.path.join(folder, os.urandom(8).hex()), -1
    try:
        while descriptor < 0:
            holder = None  # type: Optional[str]
            with _mutex(folder):
                holder = _find_holder(folder, path)
                if holder is None:
                    descriptor = _lock_new(entry, {"path": path, "by": by[:MAX_BY]})
            if holder is not None:
                on_wait(holder)
                time.sleep(POLL_INTERVAL)
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
    try:
        yield
    finally:
        if descriptor >= 0:
            os.unlink(entry)
            os.close(descriptor)


@contextmanager
def _mutex(folder: str) -> Iterator[None]:
    descriptor = os.open(os.path.join(folder, MUTEX), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _find_holder(folder: str, path: str) -> Optional[str]:
    """Return who holds a path, one in it or one that it is in; what dead processes have left is removed."""
    for entry in list_entries(folder):
        if entry.name != MUTEX and _is_held(entry.path):
            holder = Untrusted(read_json(entry.path))
            held = holder.text("path", MAX_PATH)
            if overlap(held, path):
                return holder.text("by", MAX_BY)
    return None


def overlap(path: str, other: str) -> bool:
    """Return whether two absolute paths are the same, or one is in the other."""
    return f"{path}/".startswith(f"{other}/") or f"{other}/".startswith(f"{path}/")


def _is_held(path: str) -> bool:
    """Return whether a process holds a lock; a file without one is removed."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(path)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)


def _lock_new(path: str, holder: object) -> int:
    descriptor = os.open(path, NEW_FILE_FLAGS, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.write(descriptor, json.dumps(holder).encode("ascii"))
    except OSError:
        os.close(descriptor)
        with suppress(OSError):
            os.unlink(path)
        raise
    return descriptor
