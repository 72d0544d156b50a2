"""Removing what a run has left, also where its job made directories read-only."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from typing import Callable

Tell = Callable[[str, OSError], None]
GONE = (errno.ENOENT, errno.ESTALE)  # on a file system that machines share another one may remove it as well


def remove_tree(root: str, step: Callable[[], None], tell: Tell) -> None:
    """Remove a directory with all in it and follow no link; `step` counts, `tell` hears what could not go.

    Others may remove it at the same time: what is gone is as good as removed.
    """

    def tell_unless_gone(path: str, error: OSError) -> None:
        if error.errno not in GONE:
            tell(path, error)

    open_up(root, step)
    try:
        _empty(root, step, tell_unless_gone)
        os.rmdir(root)
    except OSError as error:
        tell_unless_gone(root, error)


def _empty(root: str, step: Callable[[], None], tell: Tell) -> None:
    for folder, folders, files, place in os.fwalk(root, topdown=False):
        for name in files + folders:
            step()
            try:
                drop(name, place)
            except OSError as error:
                tell(os.path.join(folder, name), error)


def open_up(root: str, step: Callable[[], None]) -> None:
    """Let us into every directory of ours: who may not write into one cannot remove what lies there."""
    let_in(root)
    for folder, folders, _ in os.walk(root):
        for name in folders:
            step()
            let_in(os.path.join(folder, name))


def let_in(folder: str) -> None:
    """Give a directory's owner all rights there."""
    with suppress(OSError):
        mode = os.lstat(folder).st_mode
        if stat.S_ISDIR(mode) and mode & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(folder, stat.S_IMODE(mode) | stat.S_IRWXU)


def drop(name: str, place: int) -> None:
    """Remove a name from an open directory."""
    try:
        os.unlink(name, dir_fd=place)
    except IsADirectoryError:
        os.rmdir(name, dir_fd=place)
