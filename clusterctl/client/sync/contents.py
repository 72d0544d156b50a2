"""Hash and pack contents; stat cache."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import threading
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, TypedDict

from clusterctl.client.local.private_files import keep_newest, read_own, write_own
from clusterctl.errors import SyncError
from clusterctl.node_texts import describe_system_error
from clusterctl.plans.sync.manifest import Manifest
from clusterctl.protocol.manifest import TreeEntry
from clusterctl.translation import tr

if TYPE_CHECKING:
    from clusterctl.protocol.messages.contents import Blob
    from clusterctl.protocol.messages.verbs import PlainClientFrame

VERSION = 1
MAX_CACHE_SIZE = 256 << 20  # bytes: the names and hashes of a million files
MAX_TREES = 100  # source roots that are remembered
RACY = 2_000_000_000  # ns: a file this young may change again without a new time stamp (FAT counts in 2 s)

Stamp = tuple[int, int, int, int]  # size, mtime_ns, ctime_ns, inode


def stamp_of(file_stat: os.stat_result) -> Stamp:
    """Return what must be unchanged for a file to count as unchanged."""
    return (file_stat.st_size, file_stat.st_mtime_ns, file_stat.st_ctime_ns, file_stat.st_ino)


class CacheFile(TypedDict):
    """For each path its stamp and the sha256 of its content."""

    version: int
    files: dict[str, list[Any]]


class StatCache:
    """SHA-256 by path and stamp, for one source root; a missing or damaged file is an empty cache.

    Entries that were written too shortly before the scan are not remembered: they could change again without
    a new stamp.
    """

    def __init__(self, folder: Path | None, root: bytes) -> None:
        self._file = folder / f"{hashlib.sha256(root).hexdigest()[:32]}.json" if folder else None
        self._horizon = time.time_ns() - RACY
        self._known = self._load()
        self._updated: dict[str, tuple[Stamp, str]] = {}

    def find(self, path: str, stamp: Stamp) -> str | None:
        """Return the hash of an unchanged file."""
        known = self._known.get(path)
        if known is None or known[0] != stamp:
            return None
        self._updated[path] = known
        return known[1]

    def remember(self, path: str, stamp: Stamp, sha: str) -> None:
        """Keep a hash for the next scan, unless the file is too young to be trusted."""
        if max(stamp[1], stamp[2]) < self._horizon:
            self._updated[path] = (stamp, sha)

    def save(self) -> None:
        """Write the cache atomically; a cache that cannot be written is only slower."""
        if self._file is None or self._updated == self._known:
            return
        rows = {path: [*stamp, sha] for path, (stamp, sha) in self._updated.items()}
        with contextlib.suppress(OSError):
            data: CacheFile = {"version": VERSION, "files": rows}
            write_own(self._file, json.dumps(data))
            keep_newest(self._file.parent, MAX_TREES)

    def _load(self) -> dict[str, tuple[Stamp, str]]:
        if self._file is None:
            return {}
        try:
            data: CacheFile = json.loads(read_own(self._file, MAX_CACHE_SIZE))
            return _parse(data["files"]) if data["version"] == VERSION else {}
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return {}


def _parse(rows: dict[str, list[Any]]) -> dict[str, tuple[Stamp, str]]:
    known: dict[str, tuple[Stamp, str]] = {}
    for path, (size, mtime, ctime, inode, sha) in rows.items():
        if len(bytes.fromhex(sha)) == hashlib.sha256().digest_size:
            known[path] = ((size, mtime, ctime, inode), sha)
    return known


class HeldPart(NamedTuple):
    """So many bytes of a content that a node has, and their hash."""

    size: int
    sha256: str


CHUNK = 1 << 20
PART_SIZE = 2 << 20  # bytes of a file that travel in one frame
CACHE_BYTES = 64 << 20  # packed bytes kept in memory for the next nodes
SAMPLE_SIZE = 1 << 16
SMALL_FILE = 1 << 16  # bytes; smaller files travel together
GROUP_SIZE = 1 << 19
GROUP_FILES = 1000
NOTHING_HELD: Mapping[str, HeldPart] = MappingProxyType({})
NOTHING_ADDED: Mapping[str, Path] = MappingProxyType({})
GROUPED = -1  # in the place of a part's offset


def hash_stable_file(
    root: bytes, path: str, on_bytes: Callable[[int], None] = lambda _: None
) -> tuple[os.stat_result, str]:
    """Hash a file that does not change meanwhile; a second attempt is made, then SyncError."""
    for _ in range(2):
        try:
            with open_inside(root, path) as file:
                before = os.fstat(file.fileno())
                sha = _digest(file, on_bytes)
                after = os.fstat(file.fileno())
        except OSError as error:
            raise unreadable(path, error) from None
        if stamp_of(before) == stamp_of(after):
            return after, sha
    raise changed(path)


def _digest(file: BinaryIO, on_bytes: Callable[[int], None]) -> str:
    digest = hashlib.sha256()
    while data := file.read(CHUNK):
        digest.update(data)
        on_bytes(len(data))
    return digest.hexdigest()


def open_inside(root: bytes, path: str) -> BinaryIO:
    """Open a regular file below the root for reading; links and devices are an OSError."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(root + b"/" + path.encode(), flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, tr("no longer a regular file"))
    return os.fdopen(descriptor, "rb", buffering=0)


def unreadable(path: str, error: OSError) -> SyncError:
    """Name a file that stands in the way."""
    return SyncError("CC-SYNC-005", path=path, reason=describe_system_error(error))


def changed(path: str) -> SyncError:
    """Name a file that did not keep still."""
    return SyncError("CC-SYNC-006", path=path)


@dataclass(frozen=True)
class Shipment:
    """One frame of file contents; `size` counts the bytes of the files in it."""

    header: PlainClientFrame | Blob
    body: bytes
    size: int


class Contents:
    """What the nodes lack, packed at most once as long as it fits into memory; safe from many threads.

    Small files travel together: {"blobs": [[sha256, bytes], ...]}. Others are cut into parts:
    {"blob": sha256, "at": byte, "last": bool}.
    """

    def __init__(
        self,
        root: bytes,
        manifest: Manifest,
        cache_bytes: int = CACHE_BYTES,
        listed: Manifest | None = None,
        added: Mapping[str, Path] = NOTHING_ADDED,
    ) -> None:
        """Find what `manifest` names below `root`; nodes know the contents as `listed`, if that is something else.

        `added` are files of it that are elsewhere.
        """
        self._root = root
        self._added = {name: os.fsencode(path.parent) for name, path in added.items()}
        self._listed = listed or manifest
        self._cache_left = cache_bytes
        self._lock = threading.Lock()
        self._packed: dict[tuple[str, int], bytes] = {}
        self._stamps: dict[str, Stamp] = {}
        self._groups = tuple(_group(manifest.blobs.values()))

    @property
    def listing(self) -> bytes:
        """Return the packed manifest."""
        return self._pack_once(("", 0), 0, self._render_listing)

    def _render_listing(self) -> bytes:
        rows = [list(entry) for entry in self._listed.entries]
        return json.dumps(rows, separators=(",", ":")).encode()

    def shipments(
        self, missing: Collection[str], held: Mapping[str, HeldPart] = NOTHING_HELD
    ) -> Iterator[Shipment]:
        """Yield what a node lacks, in the order of the tree; SyncError if a file is no longer what it was.

        Of a content of which it has a part, that is the rest.
        """
        for group in self._groups:
            needed = [entry for entry in group if entry.content in missing]
            if len(needed) == len(group) > 1:
                yield self._group_shipment(group)
            else:
                for entry in needed:
                    part = held.get(entry.content)
                    yield from self._part_shipments(entry, part.size if part else 0)

    def _group_shipment(self, group: Sequence[TreeEntry]) -> Shipment:
        size = sum(entry.size for entry in group)
        header: PlainClientFrame = {"blobs": [[entry.content, entry.size] for entry in group]}
        body = self._pack_once(
            (group[0].content, GROUPED),
            size,
            lambda: b"".join(self._read(entry, 0, entry.size) for entry in group),
        )
        return Shipment(header, body, size)

    def _part_shipments(self, entry: TreeEntry, first: int) -> Iterator[Shipment]:
        for start in range(first, max(entry.size, 1), PART_SIZE):
            size = min(PART_SIZE, entry.size - start)
            header: Blob = {"blob": entry.content, "at": start, "last": start + size == entry.size}
            read = partial(self._read, entry, start, size)
            yield Shipment(header, self._pack_once((entry.content, start), size, read), size)

    def _pack_once(self, key: tuple[str, int], size: int, read: Callable[[], bytes]) -> bytes:
        """Pack what `read` gives, and keep it while there is room."""
        if key not in self._packed and self._cache_left < size:
            return _pack(read())
        with (
            self._lock
        ):  # all nodes request in the same order: one thread packs, the others wait for the result
            if key not in self._packed:
                self._packed[key] = _pack(read())
                self._cache_left -= len(self._packed[key])
        return self._packed[key]

    def _read(self, entry: TreeEntry, start: int, size: int) -> bytes:
        whole = size == entry.size
        stamp = None if whole else self._stamp(entry)
        try:
            with open_inside(self._folder(entry), entry.path) as file:
                data = os.pread(file.fileno(), size, start)
                file_stat = os.fstat(file.fileno())
        except OSError as error:
            raise unreadable(entry.path, error) from None
        unchanged = (
            hashlib.sha256(data).hexdigest() == entry.content if whole else stamp_of(file_stat) == stamp
        )
        if not unchanged or len(data) != size:
            raise changed(entry.path)
        return data

    def _folder(self, entry: TreeEntry) -> bytes:
        return self._added.get(entry.path, self._root)

    def _stamp(self, entry: TreeEntry) -> Stamp:
        """Hash a large file before its first part leaves; the other parts must have the same stamp."""
        if entry.content not in self._stamps:
            file_stat, sha = hash_stable_file(self._folder(entry), entry.path)
            if sha != entry.content:
                raise changed(entry.path)
            self._stamps[entry.content] = stamp_of(file_stat)
        return self._stamps[entry.content]


def _pack(data: bytes) -> bytes:
    """Compress, but spend no time on what is compressed already."""
    sample = data[:SAMPLE_SIZE]
    incompressible = len(zlib.compress(sample, 1)) > 0.95 * len(sample)
    return zlib.compress(data, 0 if incompressible else 1)


def _group(entries: Iterable[TreeEntry]) -> Iterator[tuple[TreeEntry, ...]]:
    """Put small files together, so that a frame carries about half a megabyte."""
    group: list[TreeEntry] = []
    size = 0
    for entry in entries:
        if entry.size > SMALL_FILE:
            yield (entry,)
            continue
        group.append(entry)
        size += entry.size
        if size > GROUP_SIZE or len(group) == GROUP_FILES:
            yield tuple(group)
            group, size = [], 0
    if group:
        yield tuple(group)
