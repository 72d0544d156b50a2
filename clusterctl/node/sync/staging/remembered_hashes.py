"""Hashes of files, remembered by device, inode, size, mtime and ctime: what is unchanged is not read again.

staged/<host>/hashes   MAGIC, rows of a key (five integers) and a SHA-256, and the SHA-256 of all of that

The least recently used rows go first. A file is remembered only if a later change has another time stamp.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
import threading
import time
from contextlib import suppress
from typing import Dict, Iterable, List, Tuple

from ...runtime.stream import VerbError
from ...state.workdir import make_below, open_workdir, read_bytes, write_atomically
from ..hashing import Path, Sha, hash_descriptor
from ..removal import Step

MAGIC = b"clusterctl-hashes 1\n"
KEY = struct.Struct("<5Q")
DIGEST_SIZE = 32
ROW_SIZE = KEY.size + DIGEST_SIZE
MAX_ROWS = 1 << 18  # 19 MB
READERS = 4  # threads: one reads and hashes less than a fast network takes
MIN_AHEAD = 1 << 16  # bytes; threads gain nothing with smaller files
# ns in which two changes may have one time stamp; FAT counts in 2 s
FINE, COARSE = 100_000_000, 2_000_000_000


def staged_folder(workdir: str) -> str:
    """Return where a work directory keeps what this host has of staged content."""
    return os.path.join(workdir, "staged", os.uname().nodename)


def make_staged_folder(workdir: str) -> str:
    """Make it, and a work directory for a node that only gives files."""
    return make_below(open_workdir(workdir), "staged", os.uname().nodename)


class RememberedHashes:
    """Hashes files; an unreadable memory is an empty one, and without a work directory nothing is remembered."""

    def __init__(self, workdir: str) -> None:
        self._workdir = workdir
        self._file = os.path.join(staged_folder(workdir), "hashes")
        self._known = read_rows(self._file)
        self._used: Dict[bytes, bytes] = {}
        self._ahead: Dict[bytes, Tuple[Sha, int]] = {}  # what `read_ahead` has read
        self._is_changed = False

    def read_ahead(
        self, files: Iterable[Tuple[Path, os.stat_result]], step: Step, *, again: bool = False
    ) -> None:
        """Hash files for which `hash` will be called, a few at once; raises the first error."""
        unread = {
            key_of(status): path
            for path, status in files
            if stat.S_ISREG(status.st_mode)
            and status.st_size >= MIN_AHEAD
            and (again or key_of(status) not in self._known)
        }
        remaining = iter(list(unread.items()))
        errors: List[Exception] = []

        def count() -> None:
            step()
            if errors:
                raise errors[0]

        def read() -> None:
            try:
                for key, path in remaining:
                    self._ahead[key] = self.hash(path, count, again=again)
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=read) for _ in range(min(READERS, len(unread)))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]

    def hash(self, path: Path, step: Step, *, again: bool = False) -> Tuple[Sha, int]:
        """Return the hash of a regular file and its size; with `again` it is read in any case.

        A link in its place is an OSError.
        """
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            before, began = os.fstat(descriptor), time.time_ns()
            key = key_of(before)
            if key in self._ahead:
                return self._ahead[key]
            known = None if again else self._known.get(key)
            if known is not None and stat.S_ISREG(before.st_mode):
                self._used[key] = known
                return known.hex(), before.st_size
            sha, size = hash_descriptor(descriptor, step)
            if key_of(os.fstat(descriptor)) == key and is_settled(before, began):
                self._remember(key, bytes.fromhex(sha))
            return sha, size
        finally:
            os.close(descriptor)

    def remember_written(self, files: List[Tuple[Path, os.stat_result, Sha]]) -> None:
        """Remember files that were written with these contents, unless they have changed since."""
        youngest = max((settled_at(status) for _, status, _ in files), default=0) - time.time_ns()
        time.sleep(min(max(0, youngest), FINE) / 1e9)
        for path, status, sha in files:
            with suppress(OSError):
                now = time.time_ns()
                if key_of(os.lstat(path)) == key_of(status) and is_settled(status, now):
                    self._remember(key_of(status), bytes.fromhex(sha))

    def _remember(self, key: bytes, digest: bytes) -> None:
        self._known[key] = self._used[key] = digest
        self._is_changed = True

    def save(self) -> None:
        """Write what was added, with what other processes have written meanwhile; it need not succeed."""
        if self._is_changed and self._workdir:
            self._is_changed = False
            rows = read_rows(self._file)
            for key, digest in self._used.items():
                rows.pop(key, None)
                rows[key] = digest  # newest last
            newest = list(rows.items())[-MAX_ROWS:]
            content = MAGIC + b"".join(key + digest for key, digest in newest)
            with suppress(OSError, VerbError):
                make_staged_folder(self._workdir)
                write_atomically(self._file, content + hashlib.sha256(content).digest())


def read_rows(path: str) -> Dict[bytes, bytes]:
    """Read what was remembered; empty if there is nothing, or it is damaged."""
    try:
        content = read_bytes(path) or b""
    except OSError:
        return {}
    rows, digest = content[:-DIGEST_SIZE], content[-DIGEST_SIZE:]
    if not rows.startswith(MAGIC) or hashlib.sha256(rows).digest() != digest:
        return {}
    starts = range(len(MAGIC), len(rows), ROW_SIZE)
    return {rows[at : at + KEY.size]: rows[at + KEY.size : at + ROW_SIZE] for at in starts}


def key_of(status: os.stat_result) -> bytes:
    """Return what must be unchanged for a file to count as unchanged."""
    numbers = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return KEY.pack(*(number % (1 << 64) for number in numbers))


def settled_at(status: os.stat_result) -> int:
    """Return from when on (ns) a change of a file gives it another time stamp: a clock of files has ticks."""
    is_fine = status.st_ctime_ns % 1_000_000 != 0
    return max(status.st_mtime_ns, status.st_ctime_ns) + (FINE if is_fine else COARSE)


def is_settled(status: os.stat_result, time_ns: int) -> bool:
    """Return whether a file that was read from this time on can be known again."""
    return settled_at(status) < time_ns
