"""Which files, links and directories `stage` itself has written: `clean` removes no others.

staged/<host>/<digest>.written   a manifest as in staged.py, of all revisions; the digest is that of the path. The
                                 content of its files is the MARK of the file or link that was written
MARK                             SHA-256 of inode, size, mtime and ctime: a file that replaces it has another ctime,
                                 also if it has the old size and mtime

Each host has its own: those that share a home may have a disk each.
"""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import suppress
from typing import List, Set, Tuple

from ....protocol.manifest import TreeEntry, encode_name, parents
from ...runtime.stream import VerbError
from ..removal import Step
from .folders import open_parent
from .remembered_hashes import make_staged_folder, staged_folder
from .staged import digest_of, read_manifest, write_manifest


def mark_written(path: str, status: os.stat_result) -> TreeEntry:
    """Return the row of something that was just written."""
    if stat.S_ISDIR(status.st_mode):
        return TreeEntry(path, "dir", 0, "", 0)
    numbers = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return TreeEntry(
        path, "file", 0o644, hashlib.sha256(repr(numbers).encode("ascii")).hexdigest(), status.st_size
    )


def add_written(workdir: str, path: str, new: List[TreeEntry]) -> None:
    """Record what was written at a path, with what was written there before."""
    if new:
        names = {row.path for row in new}
        folders = {folder for name in names for folder in parents(name)}
        old = [
            row
            for row in read_written(workdir, path)
            if row.path not in names | folders and names.isdisjoint(parents(row.path))
        ]
        _write(workdir, path, old + new)


def read_written(workdir: str, path: str) -> List[TreeEntry]:
    """Return what was written at a path; empty if it cannot be read."""
    return read_manifest(_file(workdir, path))


def _write(workdir: str, path: str, rows: List[TreeEntry]) -> None:
    make_staged_folder(workdir)
    write_manifest(_file(workdir, path), rows)


def _file(workdir: str, path: str) -> str:
    return os.path.join(staged_folder(workdir), f"{digest_of(path)}.written")


def remove_written(workdir: str, path: str, kept: Set[str], step: Step) -> Tuple[int, int]:
    """Remove what was written at a path, and directories that are empty then; returns files and bytes.

    What was changed since stays, as does what lies behind a link, and what has one of the absolute names `kept`.
    """
    parent, files, size = os.path.dirname(path), 0, 0
    rows = read_written(workdir, path)
    left = [row for row in rows if os.path.join(parent, row.path) in kept]
    gone = [row for row in rows if os.path.join(parent, row.path) not in kept]
    for row in gone:
        step()
        with suppress(FileNotFoundError, VerbError):
            if row.kind == "file" and remove_row(os.fsencode(parent), row):
                files, size = files + 1, size + row.size
    remove_empty_folders(os.fsencode(parent), gone)
    if left:
        _write(workdir, path, left)
    else:
        with suppress(FileNotFoundError):
            os.unlink(_file(workdir, path))
    return files, size


def remove_row(parent: bytes, row: TreeEntry) -> bool:
    """Remove a file or link that is as it was written; return whether it was."""
    with open_parent(parent, row.path, make=False) as (folder, name):
        same = mark_written(row.path, os.stat(name, dir_fd=folder, follow_symlinks=False)) == row
        if same:
            os.unlink(name, dir_fd=folder)
        return same


def remove_empty_folders(parent: bytes, rows: List[TreeEntry]) -> None:
    """Remove the directories of a manifest that hold nothing any more, the innermost first."""
    folders = {row.path for row in rows if row.kind == "dir"}
    folders.update(folder for row in rows for folder in parents(row.path))
    for folder in sorted(folders, key=len, reverse=True):
        with suppress(OSError, VerbError), open_parent(parent, folder, make=False) as (descriptor, name):
            os.rmdir(name, dir_fd=descriptor)


def make_way(workdir: str, path: str, rows: List[TreeEntry]) -> None:
    """Remove files and links that `stage` wrote where a manifest has a directory now."""
    parent = os.fsencode(os.path.dirname(path))
    folders = {
        folder for row in rows for folder in parents(f"{row.path}/" if row.kind == "dir" else row.path)
    }
    in_the_way = {folder for folder in folders if is_no_directory(os.path.join(parent, encode_name(folder)))}
    if in_the_way:
        for row in read_written(workdir, path):
            if row.path in in_the_way:
                with suppress(FileNotFoundError, VerbError):
                    remove_row(parent, row)


def is_no_directory(path: bytes) -> bool:
    """Return whether something is there that is not a directory."""
    try:
        return not stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False
