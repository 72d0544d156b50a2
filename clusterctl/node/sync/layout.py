"""A source tree on a node: checked as a manifest, laid out from the store, and read back from the disk."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import stat
from collections import namedtuple
from typing import Any, Callable, Iterable, List, Set

from ..runtime.stream import DISK_ERRORS, VerbError
from .store import CHUNK, Store, hash_file, write_all

FICLONE = 0x40049409
SMALL_FILE = 1 << 18  # bytes; below, one read and one write are the fastest copy
SHA = re.compile(r"[0-9a-f]{64}\Z")


# Not of `typing`, which takes long to load.
class Row(namedtuple("Row", "path kind mode content size")):
    """One entry of a manifest, as plans/sync/manifest.py describes it."""

    __slots__ = ()
    path: str
    kind: str
    mode: int
    content: str
    size: int


def parse_rows(raw: Any) -> List[Row]:
    """Check a manifest: nothing in it may lead out of the tree or through a link."""
    try:
        rows = [Row(*entry) for entry in raw]
        for row in rows:
            _check(row)
    except (TypeError, AttributeError, UnicodeEncodeError) as error:
        raise VerbError("CC-SYNC-007", f"the manifest is malformed: {error}") from None
    paths = {row.path for row in rows}
    if len(paths) < len(rows):
        raise VerbError("CC-SYNC-007", "the manifest names a path twice")
    for row in rows:
        for parent in _parents(row.path):
            if parent in paths:
                raise VerbError("CC-SYNC-007", f"the manifest puts {row.path!r} below a file or link")
    return rows


def _check(row: Row) -> None:
    parts = row.path.encode("utf-8").split(b"/")
    valid = not any(part in (b"", b".", b"..") or b"\0" in part for part in parts)
    if row.kind == "file":
        valid = valid and row.mode in (0o644, 0o755) and bool(SHA.match(row.content))
        valid = valid and isinstance(row.size, int) and row.size >= 0
    elif row.kind == "link":
        valid = valid and bool(row.content) and b"\0" not in row.content.encode("utf-8")
        valid = valid and (row.mode, row.size) == (0, 0)
    else:
        valid = valid and row[1:] == ("dir", 0, "", 0)
    if not valid:
        raise VerbError("CC-SYNC-007", f"the manifest holds an entry that is refused: {row.path!r}")


def _parents(path: str) -> Iterable[str]:
    slash = path.find("/")
    while slash >= 0:
        yield path[:slash]
        slash = path.find("/", slash + 1)


def encode_name(text: str) -> bytes:
    """Return the bytes of a name, whatever the locale."""
    return text.encode("utf-8", "surrogateescape")


def tree_hash(rows: Iterable[Row]) -> str:
    """Hash a tree; the format stands in plans/sync/manifest.py."""
    digest = hashlib.sha256(b"clusterctl-tree 1\n")
    for row in sorted(rows, key=lambda row: encode_name(row.path)):
        mode = "%o" % row.mode if row.kind == "file" else ""
        digest.update(b"\0".join(encode_name(part) for part in (row.kind, mode, row.content, row.path, "")))
    return digest.hexdigest()


class Layout:
    """Lays a tree out in a new directory; links come last, so that nothing is written through one."""

    def __init__(self, store: Store, target: bytes, step: Callable[[], None]) -> None:
        self.store = store
        self.target = target
        self._step = step
        self._folders: Set[str] = set()
        self._reflink = True

    def make(self, rows: List[Row]) -> None:
        """Create the directory and everything in it; an OSError names the file."""
        os.mkdir(self.target, 0o700)
        for row in sorted(rows, key=lambda row: row.kind == "link"):
            self._step()
            path = os.path.join(self.target, encode_name(row.path))
            self._make_parents(row.path)
            if row.kind == "dir":
                self._make_folder(row.path)
            elif row.kind == "link":
                os.symlink(encode_name(row.content), path)
            else:
                self._copy(self.store.path(row.content), path, row.mode)

    def _make_parents(self, path: str) -> None:
        for parent in _parents(path):
            self._make_folder(parent)

    def _make_folder(self, path: str) -> None:
        if path not in self._folders:
            os.mkdir(os.path.join(self.target, encode_name(path)), 0o755)
            self._folders.add(path)

    def _copy(self, source: str, path: bytes, mode: int) -> None:
        from_fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            to_fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
            try:
                if not (self._reflink and self._clone(from_fd, to_fd)):
                    copy_content(from_fd, to_fd, path)
                os.fchmod(to_fd, mode)
            finally:
                os.close(to_fd)
        finally:
            os.close(from_fd)

    def _clone(self, from_fd: int, to_fd: int) -> bool:
        try:
            fcntl.ioctl(to_fd, FICLONE, from_fd)
        except OSError:
            self._reflink = False
        return self._reflink


def copy_content(from_fd: int, to_fd: int, path: bytes) -> None:
    """Copy by the kernel where it can, else by hand; an OSError names the file."""
    size = os.fstat(from_fd).st_size
    copied = 0 if size <= SMALL_FILE else _copy_in_kernel(from_fd, to_fd, size, path)
    os.lseek(from_fd, copied, os.SEEK_SET)
    data = os.read(from_fd, CHUNK)
    while data:
        write_all(to_fd, data, path)
        data = os.read(from_fd, CHUNK)


def _copy_in_kernel(from_fd: int, to_fd: int, size: int, path: bytes) -> int:
    copied = 0
    copy = getattr(os, "copy_file_range", None)
    try:
        while copy and copied < size:
            count = copy(from_fd, to_fd, min(size - copied, 64 << 20))
            if not count:
                break
            copied += count
    except OSError as error:
        if error.errno in DISK_ERRORS:
            raise OSError(error.errno, error.strerror, path) from None
    return copied


def read_tree(root: bytes, step: Callable[[], None]) -> List[Row]:
    """Read a tree from the disk, every file hashed; what a manifest cannot hold gets kind `other`."""
    rows = []  # type: List[Row]
    folders = [""]
    while folders:
        folder = folders.pop()
        with os.scandir(os.path.join(root, encode_name(folder))) as scanner:
            entries = list(scanner)
        if folder and not entries:
            rows.append(Row(folder, "dir", 0, "", 0))
        for entry in entries:
            step()
            path = folder + "/" + _decode_name(entry.name) if folder else _decode_name(entry.name)
            if entry.is_dir(follow_symlinks=False):
                folders.append(path)
            else:
                rows.append(_read_row(path, entry))
    return rows


def _decode_name(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _read_row(path: str, entry: Any) -> Row:
    if entry.is_symlink():
        return Row(path, "link", 0, _decode_name(os.readlink(entry.path)), 0)
    status = entry.stat(follow_symlinks=False)
    if not stat.S_ISREG(status.st_mode):
        return Row(path, "other", 0, "", 0)
    mode = 0o755 if status.st_mode & stat.S_IXUSR else 0o644
    return Row(path, "file", mode, hash_file(entry.path), status.st_size)


def remove_tree_quietly(root: bytes) -> None:
    """Remove a directory and all in it, if it is there and as far as that is possible."""
    if os.path.lexists(root):
        import shutil

        shutil.rmtree(root, ignore_errors=True)
