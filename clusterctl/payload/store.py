"""File contents by hash, shared by all runs of a work directory, also when several nodes share it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import threading
import time
from types import TracebackType
from typing import Dict, List, Optional, Tuple, Type, Union

from .wire import VerbError
from .workdir import NEW, make_below, make_private

CHUNK = 1 << 20
PENDING_FILES = 128  # written but not yet on the disk; bounded, since each holds a descriptor
PENDING_BYTES = 64 << 20
FSYNC_THREADS = 16
STALE = 86400.0  # seconds after which an unfinished file of a broken transfer is swept
USED_EVERY = 86400.0  # seconds; the day of a content's last use is kept as its time, for `clean`

Sha = str
Path = Union[str, bytes]


class Incoming:
    """One content on its way into the store."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.size = 0
        self.digest = hashlib.sha256()
        self.descriptor = os.open(path, NEW, 0o600)

    def write(self, data: bytes) -> None:
        """Append; an OSError names the file."""
        self.digest.update(data)
        self.size += len(data)
        write_all(self.descriptor, data, self.path)

    def drop(self) -> None:
        """Remove what was written."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
        remove_quietly(self.path)


class Store:
    """Contents at `store/<aa>/<sha256>`, 0600; leaving the context removes what is unfinished."""

    def __init__(self, workdir: str) -> None:
        self.root = make_below(workdir, "store")
        self.aside = make_below(self.root, "incoming")
        self._open: Dict[Sha, Incoming] = {}
        self._written: List[Tuple[Sha, Incoming]] = []
        self._token = os.urandom(8).hex()
        self._count = 0

    def __enter__(self) -> Store:
        self._sweep()
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        for incoming in [*self._open.values(), *(incoming for _, incoming in self._written)]:
            incoming.drop()

    def path(self, sha: Sha) -> str:
        """Return where a content lies, or would lie."""
        return os.path.join(self.root, sha[:2], sha)

    def has(self, sha: Sha, size: int) -> bool:
        """Say whether a content of this size is there; what is in it shows when it is copied."""
        try:
            found = os.lstat(self.path(sha))
        except FileNotFoundError:
            return False
        there = stat.S_ISREG(found.st_mode) and found.st_size == size
        if there and time.time() - found.st_mtime > USED_EVERY:
            with contextlib.suppress(OSError):
                os.utime(self.path(sha))
        return there

    def add(self, sha: Sha, data: bytes, *, last: bool = True) -> None:
        """Take a content or the next part of one; the last part must complete the hash."""
        incoming = self._open.get(sha)
        if incoming is None:
            self._count += 1
            name = f"{self._token}-{self._count}"
            incoming = self._open[sha] = Incoming(os.path.join(self.aside, name))
        incoming.write(data)
        if not last:
            return
        if incoming.digest.hexdigest() != sha:
            raise VerbError("CC-SYNC-009", f"a file changed on its way: its content is not {sha}")
        self._written.append((sha, self._open.pop(sha)))
        if (
            len(self._written) >= PENDING_FILES
            or sum(written.size for _, written in self._written) > PENDING_BYTES
        ):
            self.settle()

    def abandon(self) -> None:
        """Drop contents of which only a part has come; each can begin anew."""
        while self._open:
            self._open.popitem()[1].drop()

    def settle(self) -> None:
        """Bring what was written onto the disk, then give it its name."""
        fsync_all([(incoming.descriptor, incoming.path) for _, incoming in self._written])
        while self._written:
            sha, incoming = self._written[-1]
            target = self.path(sha)
            make_private(os.path.dirname(target))
            os.rename(incoming.path, target)
            os.close(incoming.descriptor)
            self._written.pop()

    def discard_if_wrong(self, sha: Sha) -> bool:
        """Remove a stored content that does not have its hash; say whether it was so."""
        try:
            if hash_file(self.path(sha)) == sha:
                return False
        except FileNotFoundError:
            return True
        remove_quietly(self.path(sha))
        return True

    def _sweep(self) -> None:
        oldest = time.time() - STALE
        with os.scandir(self.aside) as found:
            for entry in found:
                if entry.stat(follow_symlinks=False).st_mtime < oldest:
                    remove_quietly(entry.path)


def write_all(descriptor: int, data: bytes, path: Path) -> None:
    """Write everything; an OSError names the file."""
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None


def fsync_all(files: List[Tuple[int, str]]) -> None:
    """Flush many files at once, which a disk does far faster than one by one."""
    waiting, failures = list(files), []  # type: List[Tuple[int, str]], List[OSError]

    def flush() -> None:
        while True:
            try:
                descriptor, path = waiting.pop()
            except IndexError:
                return
            try:
                os.fsync(descriptor)
            except OSError as error:
                failures.append(OSError(error.errno, error.strerror, path))

    threads = [threading.Thread(target=flush) for _ in range(min(FSYNC_THREADS, len(files)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def hash_file(path: Path) -> Sha:
    """Hash a regular file; a link in its place is an OSError."""
    digest = hashlib.sha256()
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        data = os.read(descriptor, CHUNK)
        while data:
            digest.update(data)
            data = os.read(descriptor, CHUNK)
    finally:
        os.close(descriptor)
    return digest.hexdigest()


def remove_quietly(path: str) -> None:
    """Remove a file that may be gone already."""
    with contextlib.suppress(OSError):
        os.unlink(path)
