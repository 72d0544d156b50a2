"""Files anywhere on a node that are taken: a store for the code that transfers contents.

What is taken is written aside, in the directory that it goes to, and gets its name when it is whole. Nothing is written
through a link below that directory.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Dict, List, Optional, Set, Tuple

from ...protocol.manifest import TreeEntry, encode_name
from ..runtime.stream import DISK_ERRORS
from .given_files import GivenFiles
from .hashing import Path, Sha
from .layout import copy_file
from .removal import Step, remove_quietly
from .staging.folders import OPEN_FILE, link_target, open_parent
from .staging.parts import MIN_KEPT, begin_part, continue_part, find_parts, part_path
from .staging.remembered_hashes import RememberedHashes
from .staging.room import check_room, refuse_access
from .staging.written import mark_written
from .store import Incoming

if TYPE_CHECKING:
    from ...protocol.messages.contents import CopyReport

MAX_KEPT = 10  # that are named
MAX_CONTINUED = 8  # parts that are named to a provider (transfer.py: MAX_HELD)


class Destination(GivenFiles):
    """Files below `root` that are taken; `overwrite`: in place of others; `private`: only the account may read them."""

    def __init__(
        self,
        root: bytes,
        rows: List[TreeEntry],
        step: Step,
        hashes: RememberedHashes,
        *,
        overwrite: bool,
        private: bool,
    ) -> None:
        super().__init__()
        self.incoming_folder = os.fsdecode(root)
        self._root, self._overwrite, self._mask = root, overwrite, 0o700 if private else 0o777
        self._open: Dict[Sha, Incoming] = {}
        self.continued, self.wrong_parts = set(), set()
        self._hashes = hashes
        self._written: List[Tuple[Path, os.stat_result, Sha]] = []
        self.marks: List[TreeEntry] = []  # of files, links and empty directories that were written
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
        self._others = [row for row in rows if row.kind != "file"]
        present = []
        for row in rows:
            step()
            if row.kind == "file":
                path, status = self._find(row)
                if status is None:
                    self._needed.setdefault(row.content, []).append(row)
                else:
                    present.append((row, path, status))
        try:
            hashes.read_ahead(
                [(path, status) for row, path, status in present if is_sized(row, status)], step
            )
            for row, path, status in present:
                self._judge(row, path, status, step)
        except PermissionError as error:
            refuse_access(os.fsencode(error.filename))

    @property
    def is_lacking(self) -> bool:
        """Return whether a file must come."""
        return bool(self._needed)

    def __enter__(self) -> Destination:
        return self

    def __exit__(self, *exception: object) -> None:
        """Keep large parts for the next time, unless they are what has filled the disk."""
        error = exception[1]
        is_full = isinstance(error, OSError) and error.errno in DISK_ERRORS
        for sha, incoming in list(self._open.items()):
            if is_full or incoming.size < MIN_KEPT or incoming.path != part_path(self.incoming_folder, sha):
                self.drop(sha)
            else:
                self._open.pop(sha).close()
        self.remember()

    def remember(self) -> None:
        """Remember what was written, as what need not be read the next time."""
        self._hashes.remember_written(self._written)
        self._hashes.save()
        self._written = []

    def prepare(self, missing: Set[Sha], sizes: Dict[Sha, int], step: Step) -> None:
        """Find parts that an earlier transfer has left, and make sure that there is room for the rest."""
        parts = [sha for sha in find_parts(self.incoming_folder) if sha in missing]
        for sha in parts[:MAX_CONTINUED]:
            incoming = continue_part(self.incoming_folder, sha, sizes[sha], step)
            if incoming is not None:
                self._open[sha] = incoming
                self.continued.add(sha)
                if incoming.size < sizes[sha]:
                    self.received.grow(sha, incoming.path, incoming.size)
                elif self._complete(sha):
                    missing.discard(sha)
        self.wrong_parts.clear()  # nothing has come yet that depends on them
        needed = sum(sizes[sha] for sha in missing) - sum(self.held().values())
        rows = [row for sha in missing for row in self._needed[sha]]
        rows += [
            row
            for row in self._others
            if not os.path.lexists(os.path.join(self._root, encode_name(row.path)))
        ]
        check_room(self._root, rows, needed, os.path.join(self.incoming_folder, self._token))

    def _begin(self, sha: Sha, size: int) -> Incoming:
        return begin_part(self.incoming_folder, sha, size) or super()._begin(sha, size)

    def has(self, sha: Sha, size: int) -> bool:  # noqa: ARG002 - the store's signature
        """Return whether a content need not come."""
        return sha not in self._needed

    def finish(self, rows: List[TreeEntry]) -> None:
        """Make empty directories, and links last."""
        for row in rows:
            if row.kind == "dir":
                is_new = not os.path.lexists(os.path.join(self._root, encode_name(row.path)))
                inside = f"{row.path}/."  # so that the directory itself is made
                with open_parent(self._root, inside, make=True) as (folder, _):
                    if is_new:
                        self.marks.append(mark_written(row.path, os.fstat(folder)))
        for row in rows:
            if row.kind == "link":
                self._make_link(row)

    def _find(self, row: TreeEntry) -> Tuple[bytes, Optional[os.stat_result]]:
        """Return the path of a file, and what has its name already."""
        path = os.path.join(self._root, encode_name(row.path))
        try:
            with open_parent(self._root, row.path, make=False) as (folder, name):
                return path, os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return path, None
        except PermissionError:
            refuse_access(path)

    def _judge(self, row: TreeEntry, path: bytes, status: os.stat_result, step: Step) -> None:
        """Decide whether a file is wanted where something has its name: if that may go."""
        if is_sized(row, status) and self._hashes.hash(path, step)[0] == row.content:
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
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        self.report["files"] += 1
        self.report["bytes"] += row.size
        self.marks.append(mark_written(row.path, status))
        installed = os.path.join(self._root, encode_name(row.path))
        self._written.append((installed, status, row.content))
        self.add_file(row.content, installed)

    def _make_link(self, row: TreeEntry) -> None:
        target = encode_name(row.content)
        with open_parent(self._root, row.path, make=True) as (folder, name):
            if link_target(name, folder) == target:
                return
            try:
                os.symlink(target, name, dir_fd=folder)
            except FileExistsError:
                if not self._overwrite:
                    self._keep(row)
                    return
                os.symlink(target, self._token, dir_fd=folder)
                try:
                    os.replace(self._token, name, src_dir_fd=folder, dst_dir_fd=folder)
                except IsADirectoryError:  # which stays
                    os.unlink(self._token, dir_fd=folder)
                    self._keep(row)
                    return
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            self.marks.append(mark_written(row.path, status))


def is_sized(row: TreeEntry, status: os.stat_result) -> bool:
    """Return whether a file may be one of the manifest."""
    return stat.S_ISREG(status.st_mode) and status.st_size == row.size
