"""A source tree on a node: checked as a manifest, laid out from the store, and read back from the disk."""

from __future__ import annotations

import fcntl
import os
import stat
from typing import Any, List, Set

from ...protocol.manifest import ManifestError, TreeEntry, decode_name, encode_name, parents, parse_manifest
from ..runtime.stream import DISK_ERRORS, VerbError
from .hashing import CHUNK, Path, hash_file
from .removal import Step, ignore_step, list_entries
from .store import Store, write_all

FICLONE = 0x40049409
SMALL_FILE = 1 << 18  # bytes; below, one read and one write are the fastest copy


def parse_rows(raw: Any) -> List[TreeEntry]:
    """Check a manifest; VerbError if it is refused."""
    try:
        return parse_manifest(raw)
    except ManifestError as error:
        raise VerbError("CC-SYNC-007", str(error)) from None


def lay_out(store: Store, target: bytes, rows: List[TreeEntry], step: Step = ignore_step) -> None:
    """Create a directory with a tree in it; links come last, so that nothing is written through one.

    An OSError names the file.
    """
    os.mkdir(target, 0o700)
    made: Set[str] = set()
    for row in sorted(rows, key=lambda row: row.kind == "link"):
        step()
        for folder in [*parents(row.path), *([row.path] if row.kind == "dir" else [])]:
            if folder not in made:
                os.mkdir(os.path.join(target, encode_name(folder)), 0o755)
                made.add(folder)
        path = os.path.join(target, encode_name(row.path))
        if row.kind == "link":
            os.symlink(encode_name(row.content), path)
        elif row.kind == "file":
            copy_file(store.path(row.content), path, row.mode)


def copy_file(source: str, target: Path, mode: int) -> None:
    """Copy a file to a new name; where the file system can, both share their blocks."""
    from_fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        to_fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            try:
                fcntl.ioctl(to_fd, FICLONE, from_fd)
            except OSError:
                copy_content(from_fd, to_fd, target)
            os.fchmod(to_fd, mode)
        finally:
            os.close(to_fd)
    finally:
        os.close(from_fd)


def copy_content(from_fd: int, to_fd: int, path: Path) -> None:
    """Copy by the kernel where it can, else by hand; an OSError names the file."""
    size = os.fstat(from_fd).st_size
    copied = 0 if size <= SMALL_FILE else _copy_in_kernel(from_fd, to_fd, size, path)
    os.lseek(from_fd, copied, os.SEEK_SET)
    data = os.read(from_fd, CHUNK)
    while data:
        write_all(to_fd, data, path)
        data = os.read(from_fd, CHUNK)


def _copy_in_kernel(from_fd: int, to_fd: int, size: int, path: Path) -> int:
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


def read_tree(root: bytes, step: Step = ignore_step) -> List[TreeEntry]:
    """Read a tree from the disk, every file hashed; what a manifest cannot hold gets kind `other`."""
    rows = []  # type: List[TreeEntry]
    folders = [""]
    while folders:
        folder = folders.pop()
        entries = list_entries(os.path.join(root, encode_name(folder)), strict=True)
        if folder and not entries:
            rows.append(TreeEntry(folder, "dir", 0, "", 0))
        for entry in entries:
            step()
            path = folder + "/" + decode_name(entry.name) if folder else decode_name(entry.name)
            if entry.is_dir(follow_symlinks=False):
                folders.append(path)
            else:
                rows.append(_read_row(path, entry))
    return rows


def _read_row(path: str, entry: Any) -> TreeEntry:
    if entry.is_symlink():
        return TreeEntry(path, "link", 0, decode_name(os.readlink(entry.path)), 0)
    status = entry.stat(follow_symlinks=False)
    if not stat.S_ISREG(status.st_mode):
        return TreeEntry(path, "other", 0, "", 0)
    mode = 0o755 if status.st_mode & stat.S_IXUSR else 0o644
    return TreeEntry(path, "file", mode, hash_file(entry.path), status.st_size)
