"""Whether files can be written before the first byte comes: space, inodes, quota, and whose the directories are."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from typing import Iterable, List, NoReturn

from ....protocol.manifest import TreeEntry, encode_name
from ...runtime.stream import VerbError
from ..removal import remove_quietly

PROBE_BYTES = 4096


def check_room(root: bytes, rows: List[TreeEntry], needed: int, probe: str) -> None:
    """Raise VerbError if so many bytes and these files do not fit below a directory; `probe` is a file to try it."""
    shown = os.fsdecode(root)
    for folder in existing_folders(root, rows):
        if not os.access(folder, os.W_OK | os.X_OK):
            refuse_access(folder)
    status = os.statvfs(root)
    free = status.f_bavail * status.f_frsize
    if needed > free:
        raise VerbError(
            "CC-COPY-004",
            f"no room at {shown}: {show_amount(needed)} are needed, {show_amount(free)} are free",
        )
    if status.f_files and len(rows) > status.f_favail:
        raise VerbError(
            "CC-COPY-004", f"no room at {shown}: {len(rows)} inodes are needed, {status.f_favail} are free"
        )
    if rows:
        try_to_write(probe, shown, needed)


def make_folder(path: bytes) -> None:
    """Make a directory with those above it; VerbError where this account may not."""
    try:
        os.makedirs(path, exist_ok=True)
    except PermissionError:
        while not os.path.isdir(path):
            path = os.path.dirname(path)
        refuse_access(path)


def existing_folders(root: bytes, rows: Iterable[TreeEntry]) -> List[bytes]:
    """Return the directories in which files, or the directories that they need, are made."""
    found = {}  # type: dict[bytes, None]
    for parent in dict.fromkeys(row.path.rpartition("/")[0] for row in rows):
        folder = os.path.join(root, encode_name(parent)) if parent else root
        while not os.path.isdir(folder):
            folder = os.path.dirname(folder)
        found[folder] = None
    return list(found)


def try_to_write(path: str, shown: str, needed: int) -> None:
    """Write a little: only so a used up quota shows."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, bytes(PROBE_BYTES))
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in (errno.EDQUOT, errno.ENOSPC):
            raise
        raise VerbError(
            "CC-COPY-004", f"no room at {shown}: {show_amount(needed)} are needed: {error.strerror}"
        ) from None
    finally:
        remove_quietly(path)


def refuse_access(path: bytes) -> NoReturn:
    """Raise VerbError that this account may not use a file or directory; it may be root's, from a container."""
    shown = os.fsdecode(path)
    with suppress(OSError):
        status = os.lstat(path)
        mode = stat.S_IMODE(status.st_mode)
        raise VerbError(
            "CC-COPY-005",
            f"{shown} belongs to uid {status.st_uid} (mode {mode:04o}), and this account is uid {os.geteuid()}",
        )
    raise VerbError("CC-COPY-005", f"cannot use {shown}: {os.strerror(errno.EACCES)}")


def show_amount(size: int) -> str:
    """Return a number of bytes as people read it; it is one word, for node_texts.py."""
    return f"{size / 1e9:.1f}GB" if size >= 1e9 else f"{size / 1e6:.1f}MB"
