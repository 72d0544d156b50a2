"""Contents of source files: hashed while they keep still, packed once for all nodes."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import threading
import zlib
from collections.abc import Iterator
from typing import BinaryIO

from clusterctl.errors import SyncError
from clusterctl.plans.tree import Entry, Manifest
from clusterctl.runs.statcache import Stamp, stamp_of

CHUNK = 1 << 20
PART = 2 << 20  # bytes of a file that travel in one frame
KEEP = 64 << 20  # packed bytes kept in memory for the next nodes
SAMPLE = 1 << 16


def hash_still(root: bytes, path: str) -> tuple[os.stat_result, str]:
    """Hash a file that does not change meanwhile; a second attempt is made, then SyncError."""
    for _ in range(2):
        try:
            with open_inside(root, path) as file:
                before = os.fstat(file.fileno())
                sha = _digest(file)
                after = os.fstat(file.fileno())
        except OSError as error:
            raise unreadable(path, error) from None
        if stamp_of(before) == stamp_of(after):
            return after, sha
    raise changed(path)


def _digest(file: BinaryIO) -> str:
    digest = hashlib.sha256()
    while data := file.read(CHUNK):
        digest.update(data)
    return digest.hexdigest()


def open_inside(root: bytes, path: str) -> BinaryIO:
    """Open a regular file below the root for reading; links and devices are an OSError."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(root + b"/" + path.encode(), flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, "no longer a regular file")
    return os.fdopen(descriptor, "rb", buffering=0)


def unreadable(path: str, error: OSError) -> SyncError:
    """Name a file that stands in the way."""
    return SyncError(
        f"{path} in the source tree cannot be read: {error.strerror or error}",
        code="CC-SYNC-005",
        fix="make it readable, or name it in .gitignore or sync.exclude if the job does not need it",
    )


def changed(path: str) -> SyncError:
    """Name a file that did not keep still."""
    return SyncError(
        f"{path} changed while it was being read",
        code="CC-SYNC-006",
        fix="let whatever writes it finish, then launch again; exclude it if it is a log or an output",
    )


class Contents:
    """What the nodes lack, packed at most once as long as it fits into memory; safe from many threads."""

    def __init__(self, root: bytes, manifest: Manifest, keep: int = KEEP) -> None:
        self._root = root
        self._manifest = manifest
        self._room = keep
        self._lock = threading.Lock()
        self._packed: dict[tuple[str, int], bytes] = {}
        self._listing = b""
        self._stamps: dict[str, Stamp] = {}

    @property
    def listing(self) -> bytes:
        """Return the packed manifest."""
        with self._lock:
            if not self._listing:
                rows = [entry.row for entry in self._manifest.entries]
                self._listing = zlib.compress(json.dumps(rows, separators=(",", ":")).encode(), 1)
        return self._listing

    def parts(self, sha: str) -> Iterator[tuple[bytes, int]]:
        """Yield (packed part, bytes of the file in it); SyncError if the file is no longer what it was."""
        entry = self._manifest.blobs[sha]
        for start in range(0, max(entry.size, 1), PART):
            size = min(PART, entry.size - start)
            yield self._part(entry, start, size), size

    def _part(self, entry: Entry, start: int, size: int) -> bytes:
        key = (entry.content, start)
        if key in self._packed:
            return self._packed[key]
        if self._room < size:
            return _pack(self._read(entry, start, size))
        with self._lock:  # all nodes ask in the same order: one packs, the others wait for the result
            if key not in self._packed:
                part = _pack(self._read(entry, start, size))
                self._packed[key] = part
                self._room -= len(part)
        return self._packed[key]

    def _read(self, entry: Entry, start: int, size: int) -> bytes:
        whole = entry.size <= PART
        stamp = None if whole else self._stamp(entry)
        try:
            with open_inside(self._root, entry.path) as file:
                data = os.pread(file.fileno(), size, start)
                found = os.fstat(file.fileno())
        except OSError as error:
            raise unreadable(entry.path, error) from None
        same = hashlib.sha256(data).hexdigest() == entry.content if whole else stamp_of(found) == stamp
        if not same or len(data) != size:
            raise changed(entry.path)
        return data

    def _stamp(self, entry: Entry) -> Stamp:
        """Hash a large file before its first part leaves; the other parts must bear the same stamp."""
        if entry.content not in self._stamps:
            found, sha = hash_still(self._root, entry.path)
            if sha != entry.content:
                raise changed(entry.path)
            self._stamps[entry.content] = stamp_of(found)
        return self._stamps[entry.content]


def _pack(data: bytes) -> bytes:
    """Compress, but spend no time on what is compressed already."""
    sample = data[:SAMPLE]
    dense = len(zlib.compress(sample, 1)) > 0.95 * len(sample)
    return zlib.compress(data, 0 if dense else 1)
