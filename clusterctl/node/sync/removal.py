"""Removal of trees and files that others may remove at the same time; listing what is there."""

from __future__ import annotations

import errno
import os
import stat
import time
from contextlib import suppress
from typing import Any, Callable, List

STALE = 86400.0  # seconds after which an unfinished file was left by a process that died

OnError = Callable[[str, OSError], None]
Step = Callable[[], None]  # counts a piece of work, so that a client sees that it goes on
GONE = (errno.ENOENT, errno.ESTALE)  # on a file system that machines share another one may remove it as well


def ignore_step() -> None:
    """Count nothing: the progress is not shown."""


def ignore_error(path: str, error: OSError) -> None:
    """Leave what cannot be removed; `clean` tries again."""


def remove_tree(root: str, step: Step = ignore_step, on_error: OnError = ignore_error) -> None:
    """Remove a directory with all in it and follow no link; `on_error` gets what could not be removed.

    Others may remove it at the same time: what is gone is as good as removed.
    """

    def report_unless_gone(path: str, error: OSError) -> None:
        if error.errno not in GONE:
            on_error(path, error)

    make_writable(root, step)
    try:
        _empty(root, step, report_unless_gone)
        os.rmdir(root)
    except OSError as error:
        report_unless_gone(root, error)


def _empty(root: str, step: Step, on_error: OnError) -> None:
    for folder, folders, files, folder_fd in os.fwalk(root, topdown=False):
        for name in files + folders:
            step()
            try:
                remove_name(name, folder_fd)
            except OSError as error:
                on_error(os.path.join(folder, name), error)


def make_writable(root: str, step: Step) -> None:
    """Make every directory of ours writable: without that its entries cannot be removed."""
    grant_owner_access(root)
    for folder, folders, _ in os.walk(root):
        for name in folders:
            step()
            grant_owner_access(os.path.join(folder, name))


def grant_owner_access(folder: str) -> None:
    """Grant a directory's owner all rights there."""
    with suppress(OSError):
        mode = os.lstat(folder).st_mode
        if stat.S_ISDIR(mode) and mode & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(folder, stat.S_IMODE(mode) | stat.S_IRWXU)


def remove_name(name: str, folder_fd: int) -> None:
    """Remove a name from an open directory."""
    try:
        os.unlink(name, dir_fd=folder_fd)
    except IsADirectoryError:
        os.rmdir(name, dir_fd=folder_fd)


def list_entries(folder: Any, *, strict: bool = False) -> List[Any]:
    """List a directory in order; without `strict`, nothing if it is gone or closed."""
    try:
        with os.scandir(folder) as scanner:
            return sorted(scanner, key=lambda entry: entry.name)
    except OSError:
        if strict:
            raise
        return []


def remove_stale(folder: str) -> None:
    """Remove the files that a process which died has left a day ago."""
    oldest = time.time() - STALE
    for entry in list_entries(folder):
        with suppress(OSError):  # another process has just given it its name
            if entry.stat(follow_symlinks=False).st_mtime < oldest:
                os.unlink(entry.path)


def remove_quietly(path: str) -> None:
    """Remove a file that may be gone already."""
    with suppress(OSError):
        os.unlink(path)
