"""Environments of a work directory that no run uses any more, and what setups that broke off have left."""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from typing import Callable, Iterator, Optional, Set, Tuple

from ..protocol.untrusted import Untrusted
from .environments import CONTENT, MARK, ROOT
from .removal import Tell, let_in, remove_tree
from .state import FINAL, mark_of, read_spec, resolve, run_dirs
from .workdir import make_below


class Environments:
    """Those that were last used more than `unused` seconds ago; `tags` gives those of living processes."""

    def __init__(
        self, workdir: str, unused: float, tags: Callable[[], Set[str]], step: Callable[[], None]
    ) -> None:
        self._workdir = workdir
        self._tags = tags
        self._unused = unused
        self._step = step

    def spare(self) -> Iterator[Tuple[str, int]]:
        """Give each that could go, and the bytes in it."""
        wanted = self._wanted()
        for folder in sorted(entries(os.path.join(self._workdir, ROOT))):
            size = self._weigh(folder) if self._is_old(folder) else None
            if size is not None and os.path.basename(folder)[:CONTENT] not in wanted:
                yield folder, size

    def remove(self, tell: Tell) -> Tuple[int, int]:
        """Remove them, each out of sight in one step; gives how many went, and their bytes."""
        count = size = 0
        for folder, weight in list(self.spare()):
            if not self._is_old(folder):
                continue  # used since it was found
            aside = os.path.join(make_below(self._workdir, "trash"), os.urandom(8).hex())
            try:
                let_in(folder)
                os.rename(folder, aside)
            except FileNotFoundError:
                continue
            except OSError as error:
                tell(folder, error)
                continue
            if not self._is_old(aside):
                os.rename(aside, folder)  # somebody has just found it
                continue
            remove_tree(aside, self._step, tell)
            count, size = count + 1, size + weight
        return count, size

    def _wanted(self) -> Set[str]:
        """Name the contents that runs use which live, or perhaps live elsewhere, or of which a process is left."""
        wanted = set()
        tags = self._tags()
        for rundir in run_dirs(self._workdir, None, None):
            spec = read_spec(rundir)
            setup = Untrusted(spec).record("setup")
            if spec is None or not setup:
                continue
            state = resolve(rundir)
            live = state is not None and (state["state"] not in FINAL or state["state"] == "UNKNOWN")
            if live or any(tag.startswith(mark_of(spec)) for tag in tags):
                wanted.add(setup.text("content", CONTENT))
        return wanted

    def _is_old(self, folder: str) -> bool:
        """Whether it was not used for long; one that is not complete is as old as the lock of who was making it."""
        newest = 0.0
        for name in (MARK, "lock", ""):
            with suppress(OSError):
                found = os.lstat(os.path.join(folder, name))
                if found.st_uid != os.geteuid():
                    return False
                if name or not newest:
                    newest = max(newest, found.st_mtime)
        return time.time() - newest > self._unused

    def _weigh(self, root: str) -> Optional[int]:
        """Add up what lies below; None if it is gone, or some of it is another account's or on another file system."""
        size, folders = 0, [root]
        try:
            here = os.lstat(root)
        except OSError:
            return None
        while folders:
            for path in entries(folders.pop(), everything=True):
                self._step()
                with suppress(OSError):
                    found = os.lstat(path)
                    if (found.st_dev, found.st_uid) != (here.st_dev, os.geteuid()):
                        return None
                    size += found.st_size
                    if stat.S_ISDIR(found.st_mode):
                        folders.append(path)
        return size


def entries(folder: str, *, everything: bool = False) -> Iterator[str]:
    """List the directories in a directory that may be gone; nothing if it is a link."""
    with suppress(OSError):
        if not os.path.islink(folder):
            with os.scandir(folder) as found:
                yield from (one.path for one in found if everything or one.is_dir(follow_symlinks=False))
