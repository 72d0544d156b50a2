"""Directories of runs under Ray and mpirun in /tmp and /dev/shm: which are ours, and removing those that no agent uses.

Each agent holds a shared lock on those of its run. One without a lock is of a run whose guardian and agent were both
killed: the end of the next run removes it, and so do `stop` and `clean`. Making them: `supervise/launchers/temp_files`.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from contextlib import suppress

TEMPORARY = "/tmp"  # only a directory there that is ours and closed to others is used
SHARED_MEMORY = "/dev/shm"
PREFIX = "cc-run-"


def own_prefix(run_id: str) -> str:
    """Return how the names of a run's directories begin."""
    return f"{PREFIX}{hashlib.sha256(run_id.encode()).hexdigest()[:10]}-"


def remove_all(prefix: str) -> None:
    """Remove our directories with such names that no agent has locked."""
    for parent in (TEMPORARY, SHARED_MEMORY):
        with suppress(OSError):
            for entry in os.scandir(parent):
                if entry.name.startswith(prefix):
                    with suppress(OSError):
                        remove_unused(entry.path, open_own(entry.path))


def open_own(folder: str) -> int:
    """Open a directory; PermissionError unless it is ours and closed to other accounts."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    found = os.fstat(descriptor)
    if found.st_uid != os.geteuid() or found.st_mode & 0o077:
        os.close(descriptor)
        raise PermissionError
    return descriptor


def remove_unused(folder: str, descriptor: int) -> None:
    """Remove a directory unless a process has locked it; its descriptor is closed."""
    with suppress(OSError):  # in use
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    os.close(descriptor)
