"""Removing what a run has left, also where its job made directories read-only."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import Callable

Tell = Callable[[str, OSError], None]


def remove_tree(root: str, step: Callable[[], None], tell: Tell) -> None:
    """Remove a directory with all in it and follow no link; `step` counts, `tell` hears what could not go."""
    open_up(root, step)
    for folder, folders, files, place in os.fwalk(root, topdown=False):
        for name in files + folders:
            step()
            try:
                drop(name, place)
            except FileNotFoundError:
                pass  # two may be at it
            except OSError as error:
                tell(os.path.join(folder, name), error)
    try:
        os.rmdir(root)
    except FileNotFoundError:
        pass
    except OSError as error:
        tell(root, error)


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
