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
from typing import Dict, List, Set, Union

from ...protocol.run_paths import WorkdirPaths
from ..runtime.stream import VerbError
from ..state.workdir import NEW_FILE_FLAGS, make_below, make_private
from .hashing import Path, Sha, hash_file
from .received import Received
from .removal import Step, remove_quietly, remove_stale

Data = Union[bytes, memoryview]
USED_EVERY = 86400.0  # seconds; the day of a content's last use is kept as its time, for `clean`


class Incoming:
    """One content on its way into the store."""

    def __init__(self, path: str, most: int, descriptor: int) -> None:
        self.path = path
        self.size = 0
        self._most = most
        self.digest = hashlib.sha256()
        self.descriptor = descriptor

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
        remove_quietly(self.path)
        if self.descriptor >= 0:  # until then its lock is held
            os.close(self.descriptor)
            self.descriptor = -1


class Store:
    """Contents at `store/<aa>/<sha256>`, 0600; leaving the context removes what is unfinished."""

    def __init__(self, workdir: str) -> None:
        self.root = make_private(WorkdirPaths(workdir).store)
        self.incoming_folder = make_below(self.root, "incoming")
        self.received = Received()
        self.continued: Set[Sha] = set()
        self.wrong_parts: Set[Sha] = set()
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

    def prepare(self, missing: Set[Sha], sizes: Dict[Sha, int], step: Step) -> None:
        """Get ready for what is missing: a store of its own has nothing to do."""

    def add(self, sha: Sha, data: Data, size: int, *, last: bool = True) -> bool:
        """Take a content of a known size or the next part of one; return whether it is complete.

        The last part must complete the hash. Where it does not, and the first part was here before, the content is
        among `wrong_parts`, and is to come from its beginning.
        """
        incoming = self._open.get(sha)
        if incoming is None:
            incoming = self._open[sha] = self._begin(sha, size)
        if not data and not last:
            raise VerbError("CC-SYNC-009", "an empty piece of a file arrived before its last one")
        try:
            incoming.write(data)
        except VerbError:
            self.drop(sha)
            raise
        if not last:
            self.received.grow(sha, incoming.path, incoming.size)
            return False
        return self._complete(sha)

    def _begin(self, sha: Sha, size: int) -> Incoming:  # noqa: ARG002 - others name the file by its hash
        self._count += 1
        path = os.path.join(self.incoming_folder, f"{self._token}-{self._count}")
        return Incoming(path, size, os.open(path, NEW_FILE_FLAGS, 0o600))

    def _complete(self, sha: Sha) -> bool:
        incoming = self._open[sha]
        if incoming.digest.hexdigest() != sha:
            self.drop(sha)
            if sha in self.continued:
                self.continued.discard(sha)
                self.wrong_parts.add(sha)
                return False
            raise VerbError("CC-SYNC-009", f"a file changed in transfer: its content is not {sha}")
        lock = os.dup(incoming.descriptor)  # of a part: until the content has its name
        try:
            incoming.close()
            self._move(incoming.path, sha)
        finally:
            os.close(lock)
        del self._open[sha]
        self.received.complete(sha, incoming.path)
        return True

    def held(self) -> Dict[Sha, int]:
        """Return how much there is of each content of which only a part has come."""
        return {sha: incoming.size for sha, incoming in self._open.items()}

    def describe_parts(self) -> List[List[Union[str, int]]]:
        """Return of each content of which a part is here its bytes, and their hash."""
        return [[sha, incoming.size, incoming.digest.hexdigest()] for sha, incoming in self._open.items()]

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
