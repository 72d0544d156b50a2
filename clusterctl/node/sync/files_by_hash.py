"""Files anywhere on a node that are taken: a store for the code that transfers contents.

What is taken is written aside, in the directory that it goes to, and gets its name when it is whole. Nothing is written
through a link below that directory.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Dict, Iterator, List, Tuple

from ...protocol.manifest import TreeEntry, encode_name
from ..runtime.stream import VerbError
from .given_files import GivenFiles
from .hashing import Sha, hash_file
from .layout import copy_file
from .removal import Step, remove_quietly
from .store import Incoming

if TYPE_CHECKING:
    from ...protocol.messages.contents import CopyReport

OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
OPEN_FOLDER = OPEN_FILE | os.O_DIRECTORY
MAX_KEPT = 10  # that are named


class Destination(GivenFiles):
    """Files below `root` that are taken; `overwrite`: in place of others; `private`: only the account may read them."""

    def __init__(
        self,
        root: bytes,
        rows: List[TreeEntry],
        step: Step,
        *,
        overwrite: bool,
        private: bool,
    ) -> None:
        super().__init__()
        self.incoming_folder = os.fsdecode(root)
        self._root, self._overwrite, self._mask = root, overwrite, 0o700 if private else 0o777
        self._open: Dict[Sha, Incoming] = {}
        self._token, self._count = f".clusterctl-{os.urandom(8).hex()}", 0
        self._needed: Dict[Sha, List[TreeEntry]] = {}
        self.report: CopyReport = {
            "files": 0,
            "bytes": 0,
            "unchanged": 0,
            "replaced": 0,
            "kept": [],
            "kept_count": 0,
        }
        for row in rows:
            step()
            if row.kind == "file":
                self._judge(row, step)

    def __enter__(self) -> Destination:
        return self

    def has(self, sha: Sha, size: int) -> bool:  # noqa: ARG002 - the store's signature
        """Return whether a content need not come."""
        return sha not in self._needed

    def finish(self, rows: List[TreeEntry]) -> None:
        """Make empty directories, and links last."""
        for row in rows:
            if row.kind == "dir":
                inside = f"{row.path}/."  # so that the directory itself is made
                with open_parent(self._root, inside, make=True):
                    pass
        for row in rows:
            if row.kind == "link":
                self._make_link(row)

    def _judge(self, row: TreeEntry, step: Step) -> None:
        """Decide whether a file is wanted: nothing has its name, or something else has that may go."""
        try:
            with open_parent(self._root, row.path, make=False) as (folder, name):
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            self._needed.setdefault(row.content, []).append(row)
            return
        path = os.path.join(self._root, encode_name(row.path))
        is_file = stat.S_ISREG(status.st_mode)
        if is_file and status.st_size == row.size and hash_file(path, step) == row.content:
            self.report["unchanged"] += 1
            self.add_file(row.content, path)
        elif self._overwrite and not stat.S_ISDIR(status.st_mode):
            self.report["replaced"] += 1
            self._needed.setdefault(row.content, []).append(row)
        else:
            self._keep(row)

    def _keep(self, row: TreeEntry) -> None:
        self.report["kept_count"] += 1
        if len(self.report["kept"]) < MAX_KEPT:
            self.report["kept"].append(row.path)

    def _move(self, path: str, sha: Sha) -> None:
        """Write a complete content under all its names."""
        *others, last = self._needed.pop(sha)
        for row in others:
            twin = f"{path}-twin"
            try:
                copy_file(path, twin, 0o600)
                self._install(twin, row)
            finally:
                remove_quietly(twin)
        self._install(path, last)

    def _install(self, path: str, row: TreeEntry) -> None:
        with open_parent(self._root, row.path, make=True) as (folder, name):
            if not self._overwrite and os.path.lexists(os.path.join(self._root, encode_name(row.path))):
                self._keep(row)  # it has come meanwhile
                remove_quietly(path)
                return
            # never through a link in its place
            descriptor = os.open(path, OPEN_FILE)
            try:
                os.fchmod(descriptor, row.mode & self._mask)
            finally:
                os.close(descriptor)
            os.replace(path, name, dst_dir_fd=folder)
        self.report["files"] += 1
        self.report["bytes"] += row.size
        self.add_file(row.content, os.path.join(self._root, encode_name(row.path)))

    def _make_link(self, row: TreeEntry) -> None:
        target = encode_name(row.content)
        with open_parent(self._root, row.path, make=True) as (folder, name):
            try:
                os.symlink(target, name, dir_fd=folder)
            except FileExistsError:
                if link_target(name, folder) == target:
                    return
                if self._overwrite:
                    os.symlink(target, self._token, dir_fd=folder)
                    # a directory stays
                    with suppress(IsADirectoryError):
                        os.replace(self._token, name, src_dir_fd=folder, dst_dir_fd=folder)
                        return
                    os.unlink(self._token, dir_fd=folder)
                self._keep(row)


def link_target(name: bytes, folder: int) -> bytes:
    """Return where a link leads; empty if it is none."""
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError:
        return b""


@contextmanager
def open_parent(root: bytes, path: str, *, make: bool) -> Iterator[Tuple[int, bytes]]:
    """Open the directory that holds a path, one step after the other, none of them a link."""
    *folders, name = encode_name(path).split(b"/")
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for folder in folders:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(folder, dir_fd=descriptor)
            inner = open_folder(folder, descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor, name
    finally:
        os.close(descriptor)


def open_folder(name: bytes, parent: int) -> int:
    """Open a directory by its name; VerbError for a link or a file."""
    try:
        return os.open(name, OPEN_FOLDER, dir_fd=parent)
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            shown = name.decode("utf-8", "replace")
            raise VerbError("CC-COPY-003", f"{shown} is not a directory") from None
        raise
