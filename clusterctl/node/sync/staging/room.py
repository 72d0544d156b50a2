"""Whether files can be written before the first byte comes: space, inodes, quota, and whose the directories are."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from typing import Iterable, Iterator, List, NoReturn

from ....protocol.manifest import TreeEntry, encode_name
from ...runtime.stream import VerbError
from ..removal import remove_quietly


def check_room(root: bytes, rows: List[TreeEntry], needed: int, probe: str) -> None:
    """Raise VerbError if so many bytes and files do not fit below a directory; `probe`: a file to try it."""
    for folder in existing_folders(root, rows):
        if not os.access(folder, os.W_OK | os.X_OK):
            refuse_access(folder)
    shown, status = os.fsdecode(root), os.statvfs(root)
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
    problem = reserve(probe, needed) if rows else ""
    if problem:
        raise VerbError("CC-COPY-004", f"no room at {shown}: {show_amount(needed)} are needed: {problem}")


def make_folder(path: bytes) -> None:
    """Make a directory with those above it; VerbError where this account may not."""
    try:
        os.makedirs(path, exist_ok=True)
    except PermissionError:
        while not os.path.isdir(path):
            path = os.path.dirname(path)
        refuse_access(path)


def existing_folders(root: bytes, rows: Iterable[TreeEntry]) -> Iterator[bytes]:
    """Yield the directories in which files or their directories are made."""
    for parent in dict.fromkeys(row.path.rpartition("/")[0] for row in rows):
        folder = os.path.join(root, encode_name(parent)) if parent else root
        while not os.path.isdir(folder):
            folder = os.path.dirname(folder)
        yield folder


def reserve(path: str, size: int) -> str:
    """Return why a file cannot have so many bytes, or nothing."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            remove_quietly(path)
            os.write(descriptor, bytes(4096))
            with suppress(ImportError, AttributeError):  # posix_fallocate writes each block on NFS 3
                from ctypes import CDLL, c_int64, get_errno

                if CDLL(None, use_errno=True).fallocate64(descriptor, 0, c_int64(0), c_int64(size)):
                    raise OSError(get_errno(), "")
        finally:
            os.close(descriptor)
            remove_quietly(path)  # it may stay while it is open
    except OSError as error:
        if error.errno in (errno.EDQUOT, errno.ENOSPC):
            return os.strerror(error.errno)
    return ""


def refuse_access(path: bytes) -> NoReturn:
    """Raise VerbError that this account may not use a path; it may be root's, from a container."""
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
