"""Hashes remembered by what the file system says about a file, as git's index does."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

from clusterctl.runs.private_files import keep_newest, read_own, write_own

VERSION = 1
LARGEST = 256 << 20  # bytes: the names and hashes of a million files
MOST_TREES = 100  # source roots that are remembered
RACY = 2_000_000_000  # ns: a file this young may change again without a new time stamp (FAT counts in 2 s)

Stamp = tuple[int, int, int, int]  # size, mtime_ns, ctime_ns, inode


def stamp_of(found: os.stat_result) -> Stamp:
    """Return what must be unchanged for a file to count as unchanged."""
    return (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)


class StatCache:
    """SHA-256 by path and stamp, for one source root; a missing or damaged file is an empty cache.

    Entries that were written too shortly before the scan are not remembered: they could change again without
    a new stamp.
    """

    def __init__(self, folder: Path | None, root: bytes) -> None:
        self._file = folder / f"{hashlib.sha256(root).hexdigest()[:32]}.json" if folder else None
        self._horizon = time.time_ns() - RACY
        self._known = self._load()
        self._fresh: dict[str, tuple[Stamp, str]] = {}

    def find(self, path: str, stamp: Stamp) -> str | None:
        """Return the hash of an unchanged file."""
        known = self._known.get(path)
        if known is None or known[0] != stamp:
            return None
        self._fresh[path] = known
        return known[1]

    def remember(self, path: str, stamp: Stamp, sha: str) -> None:
        """Keep a hash for the next scan, unless the file is too young to be trusted."""
        if max(stamp[1], stamp[2]) < self._horizon:
            self._fresh[path] = (stamp, sha)

    def save(self) -> None:
        """Write the cache atomically; a cache that cannot be written is only slower."""
        if self._file is None or self._fresh == self._known:
            return
        rows = {path: [*stamp, sha] for path, (stamp, sha) in self._fresh.items()}
        with contextlib.suppress(OSError):
            write_own(self._file, json.dumps({"version": VERSION, "files": rows}))
            keep_newest(self._file.parent, MOST_TREES)

    def _load(self) -> dict[str, tuple[Stamp, str]]:
        if self._file is None:
            return {}
        try:
            data = json.loads(read_own(self._file, LARGEST))
            return _parse(data["files"]) if data["version"] == VERSION else {}
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return {}


def _parse(rows: dict[str, list[Any]]) -> dict[str, tuple[Stamp, str]]:
    known: dict[str, tuple[Stamp, str]] = {}
    for path, (size, mtime, ctime, inode, sha) in rows.items():
        if len(bytes.fromhex(sha)) == hashlib.sha256().digest_size:
            known[path] = ((size, mtime, ctime, inode), sha)
    return known
