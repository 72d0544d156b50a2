"""File contents by hash, shared by all runs of a work directory, also when nodes share it.

Nothing is flushed to the disk: what a power cut damages is found when it is copied, since every copy is hashed, and is
asked for again.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from contextlib import suppress
from typing import Dict, Union

from ...protocol.run_paths import WorkdirPaths
from ..runtime.stream import VerbError
from ..state.workdir import NEW_FILE_FLAGS, make_below, make_private
from .hashing import Path, Sha, hash_file
from .received import Received
from .removal import remove_quietly, remove_stale

Data = Union[bytes, memoryview]
USED_EVERY = 86400.0  # seconds; the day of a content's last use is kept as its time, for `clean`


class Incoming:
    """One content on its way into the store."""

    def __init__(self, path: str, most: int) -> None:
        self.path = path
        self.size = 0
        self._most = most
        self.digest = hashlib.sha256()
        self.descriptor = os.open(path, NEW_FILE_FLAGS, 0o600)

    def write(self, data: Data) -> None:
        """Append; an OSError names the file, VerbError means that more comes than there can be."""
        if self.size + len(data) > self._most:
            raise VerbError(
                "CC-SYNC-009", f"a file changed in transfer: more than its {self._most} bytes came"
            )
        self.digest.update(data)
        self.size += len(data)
        write_all(self.descriptor, data, self.path)

    def close(self) -> None:
        """Close; an OSError names the file: network file systems report only now that they are full."""
        descriptor, self.descriptor = self.descriptor, -1
        try:
            os.close(descriptor)
        except OSError as error:
            raise OSError(error.errno, error.strerror, self.path) from None

    def discard(self) -> None:
        """Remove what was written."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
        remove_quietly(self.path)


class Store:
    """Contents at `store/<aa>/<sha256>`, 0600; leaving the context removes what is unfinished."""

    def __init__(self, workdir: str) -> None:
        self.root = make_private(WorkdirPaths(workdir).store)
        self.incoming_folder = make_below(self.root, "incoming")
        self.received = Received()
        self._open: Dict[Sha, Incoming] = {}
        self._token = os.urandom(8).hex()
        self._count = 0

    def __enter__(self) -> Store:
        remove_stale(self.incoming_folder)
        return self

    def __exit__(self, *_: object) -> None:
        self.abandon()

    def path(self, sha: Sha) -> str:
        """Return where a content lies, or would lie."""
        return os.path.join(self.root, sha[:2], sha)

    def has(self, sha: Sha, size: int) -> bool:
        """Return whether a content of this size is there; what is in it shows when it is copied."""
        try:
            status = os.lstat(self.path(sha))
        except FileNotFoundError:
            return False
        is_stored = stat.S_ISREG(status.st_mode) and status.st_size == size
        if is_stored and time.time() - status.st_mtime > USED_EVERY:
            with suppress(OSError):
                os.utime(self.path(sha))
        return is_stored

    def add(self, sha: Sha, data: Data, size: int, *, last: bool = True) -> None:
        """Take a content of a known size or the next part of one; the last part must complete the hash."""
        incoming = self._open.get(sha)
        if incoming is None:
            self._count += 1
            name = f"{self._token}-{self._count}"
            incoming = self._open[sha] = Incoming(os.path.join(self.incoming_folder, name), size)
        if not data and not last:
            raise VerbError("CC-SYNC-009", "an empty piece of a file arrived before its last one")
        incoming.write(data)
        if not last:
            self.received.grow(sha, incoming.path, incoming.size)
            return
        if incoming.digest.hexdigest() != sha:
            raise VerbError("CC-SYNC-009", f"a file changed in transfer: its content is not {sha}")
        incoming.close()
        self._move(incoming.path, sha)
        del self._open[sha]
        self.received.complete(sha, incoming.path)

    def held(self) -> Dict[Sha, int]:
        """Return how much there is of each content of which only a part has come."""
        return {sha: incoming.size for sha, incoming in self._open.items()}

    def abandon(self) -> None:
        """Drop contents of which only a part has come; each can begin again."""
        for sha in list(self._open):
            self.drop(sha)

    def drop(self, sha: Sha) -> None:
        """Drop what has come of a content."""
        if sha in self._open:
            self._open.pop(sha).discard()
            self.received.drop(sha)

    def discard_if_wrong(self, sha: Sha) -> bool:
        """Remove a stored content that does not have its hash; say whether it was so."""
        try:
            if hash_file(self.path(sha)) == sha:
                return False
        except FileNotFoundError:
            return True
        remove_quietly(self.path(sha))
        return True

    def _move(self, path: str, sha: Sha) -> None:
        """Store a complete content under its name."""
        target = self.path(sha)
        try:
            os.rename(path, target)
        except FileNotFoundError:  # the first of its folder, or `clean` has just removed the empty folder
            make_private(os.path.dirname(target))
            os.rename(path, target)


def write_all(descriptor: int, data: Data, path: Path) -> None:
    """Write everything; an OSError names the file."""
    remaining = memoryview(data)
    try:
        while remaining:
            remaining = remaining[os.write(descriptor, remaining) :]
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None
