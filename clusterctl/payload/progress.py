"""Whether an attempt got on: whether files below the output directory that matter were made or changed by it.

The walk runs in a thread of its own, is bounded, and may hang in a file system without harm: then nothing is known.
"""

from __future__ import annotations

import os
import re
import threading
from contextlib import suppress
from typing import Callable, FrozenSet, Iterator, List, Optional, Pattern

from .loop import Loop

MOST = 20000  # entries that are looked at
LIMIT = 5.0  # seconds for the look at the end

Marks = Optional[
    FrozenSet[int]
]  # of every file its path, size and time of change; None if there are too many


class Progress:
    """Compares what is there before the start with what is there after the end."""

    def __init__(self, loop: Loop, root: str, pattern: str) -> None:
        self._loop = loop
        self._root = root
        self._wanted = translate(pattern)
        self._before: List[Marks] = []

    def begin(self) -> None:
        """Look at what is there."""
        self._in_thread(lambda: self._before.append(self._look()))

    def end(self, done: Callable[[Optional[bool]], None]) -> None:
        """Call `done` with whether anything is new; with None if that cannot be told in time."""
        found: List[Marks] = []
        reader, writer = os.pipe()

        def look() -> None:
            found.append(self._look())
            with suppress(OSError):
                os.write(writer, b".")

        def tell() -> None:
            self._loop.drop("progress")
            self._loop.forget(reader)
            os.close(reader)
            if found:
                os.close(writer)  # else the thread may still use it
            done(self._compare(found))

        self._loop.watch(reader, tell)
        self._loop.after(LIMIT, "progress", tell)
        self._in_thread(look)

    def _look(self) -> Marks:
        """Look at the directory; only here, for its path alone may lead through a file system that hangs."""
        return marks(os.path.realpath(os.path.expanduser(self._root)), self._wanted)

    def _compare(self, after: List[Marks]) -> Optional[bool]:
        known = self._before and after and self._before[0] is not None and after[0] is not None
        if not known:
            return None
        assert self._before[0] is not None and after[0] is not None
        return bool(after[0] - self._before[0])

    def _in_thread(self, work: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # no thread to be had: nothing will be known
            threading.Thread(target=work, daemon=True).start()


def marks(root: str, wanted: Pattern[str]) -> Marks:
    """Mark every file below a directory whose path from there is wanted."""
    found = set()
    for count, entry in enumerate(_walk(root)):
        if count >= MOST:
            return None
        path = os.path.relpath(entry.path, root)
        with suppress(OSError):
            if wanted.fullmatch(path):
                seen = entry.stat(follow_symlinks=False)
                found.add(hash((path, seen.st_size, seen.st_mtime_ns)))
    return frozenset(found)


def _walk(root: str) -> Iterator[os.DirEntry[str]]:
    waiting = [root]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                yield entry


def translate(pattern: str) -> Pattern[str]:
    """Turn a glob into a regular expression for paths: `*` stays within a name, `**` does not."""
    text, place = "", 0
    for found in re.finditer(r"\*\*/|\*\*|\*|\?", pattern):
        text += re.escape(pattern[place : found.start()])
        text += {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}[found[0]]
        place = found.end()
    return re.compile(text + re.escape(pattern[place:]), re.DOTALL)
