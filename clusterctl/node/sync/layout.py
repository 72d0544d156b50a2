"""A source tree on a node: checked as a manifest, laid out from the store, and read back from the disk."""

from __future__ import annotations

import fcntl
import os
import stat
from typing import Any, Callable, List, Set

from ...protocol.manifest import ManifestError, TreeEntry, encode_name, parents, parse_manifest
from ..runtime.stream import DISK_ERRORS, VerbError
from .store import CHUNK, Store, hash_file, write_all

FICLONE = 0x40049409
SMALL_FILE = 1 << 18  # bytes; below, one read and one write are the fastest copy


def parse_rows(raw: Any) -> List[TreeEntry]:
    """Check a manifest; VerbError if it is refused."""
    try:
        return parse_manifest(raw)
    except ManifestError as error:
        raise VerbError("CC-SYNC-007", str(error)) from None


class Layout:
    """Lays a tree out in a new directory; links come last, so that nothing is written through one."""

    def __init__(self, store: Store, target: bytes, step: Callable[[], None]) -> None:
        self.store = store
        self.target = target
        self._step = step
        self._folders: Set[str] = set()
        self._reflink = True

    def make(self, rows: List[TreeEntry]) -> None:
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
        for parent in parents(path):
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


def read_tree(root: bytes, step: Callable[[], None]) -> List[TreeEntry]:
    """Read a tree from the disk, every file hashed; what a manifest cannot hold gets kind `other`."""
    rows = []  # type: List[TreeEntry]
    folders = [""]
    while folders:
        folder = folders.pop()
        with os.scandir(os.path.join(root, encode_name(folder))) as scanner:
            entries = list(scanner)
        if folder and not entries:
            rows.append(TreeEntry(folder, "dir", 0, "", 0))
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


def _read_row(path: str, entry: Any) -> TreeEntry:
    if entry.is_symlink():
        return TreeEntry(path, "link", 0, _decode_name(os.readlink(entry.path)), 0)
    status = entry.stat(follow_symlinks=False)
    if not stat.S_ISREG(status.st_mode):
        return TreeEntry(path, "other", 0, "", 0)
    mode = 0o755 if status.st_mode & stat.S_IXUSR else 0o644
    return TreeEntry(path, "file", mode, hash_file(entry.path), status.st_size)


def remove_tree_quietly(root: bytes) -> None:
    """Remove a directory and all in it, if it is there and as far as that is possible."""
    if os.path.lexists(root):
        import shutil

        shutil.rmtree(root, ignore_errors=True)
