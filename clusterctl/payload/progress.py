"""Whether an attempt got on: whether files below the output directory that matter were made or changed by it.

The walk runs in a thread of its own, is bounded, and may hang in a file system without harm: then nothing is known.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import Callable, FrozenSet, Iterator, List, Optional, Pattern

from .background import call_in_thread, run_in_thread
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
        run_in_thread(lambda: self._before.append(self._look()))

    def end(self, done: Callable[[Optional[bool]], None]) -> None:
        """Call `done` with whether anything is new; with None if that cannot be told in time."""
        call_in_thread(self._loop, "progress", LIMIT, self._look, lambda after: done(self._compare(after)))

    def _look(self) -> Marks:
        """Look at the directory; only here, for its path alone may lead through a file system that hangs."""
        return marks(os.path.realpath(os.path.expanduser(self._root)), self._wanted)

    def _compare(self, after: Marks) -> Optional[bool]:
        before = self._before[0] if self._before else None
        return None if before is None or after is None else bool(after - before)


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
