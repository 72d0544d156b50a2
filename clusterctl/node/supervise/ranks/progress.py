"""Whether an attempt made progress: whether it made or changed any file below the output directory that matters.

The walk runs in a thread of its own, is bounded, and may hang in a file system without harm: then nothing is known.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import Callable, FrozenSet, Iterator, List, Optional, Pattern

from ...runtime.event_loop import Loop, call_in_thread, run_in_thread

MOST_FILES = 20000  # entries that are looked at
SCAN_LIMIT = 5.0  # seconds for the look at the end

FileMarks = Optional[
    FrozenSet[int]
]  # of every file its path, size and time of change; None if there are too many


class Progress:
    """Compares what is there before the start with what is there after the end."""

    def __init__(self, loop: Loop, root: str, pattern: str) -> None:
        self._loop = loop
        self._root = root
        self._pattern = glob_to_regex(pattern)
        self._before: List[FileMarks] = []

    def begin(self) -> None:
        """Look at what is there."""
        run_in_thread(lambda: self._before.append(self._scan()))

    def finish(self, on_result: Callable[[Optional[bool]], None]) -> None:
        """Call `on_result` with whether anything is new; with None if that is not known in time."""
        call_in_thread(
            self._loop, "progress", SCAN_LIMIT, self._scan, lambda after: on_result(self._compare(after))
        )

    def _scan(self) -> FileMarks:
        """Look at the directory; only here, for its path alone may lead through a file system that hangs."""
        return scan_files(os.path.realpath(os.path.expanduser(self._root)), self._pattern)

    def _compare(self, after: FileMarks) -> Optional[bool]:
        before = self._before[0] if self._before else None
        return None if before is None or after is None else bool(after - before)


def scan_files(root: str, pattern: Pattern[str]) -> FileMarks:
    """Mark every file below a directory whose path from there is wanted."""
    file_marks = set()
    for count, entry in enumerate(_walk(root)):
        if count >= MOST_FILES:
            return None
        path = os.path.relpath(entry.path, root)
        with suppress(OSError):
            if pattern.fullmatch(path):
                status = entry.stat(follow_symlinks=False)
                file_marks.add(hash((path, status.st_size, status.st_mtime_ns)))
    return frozenset(file_marks)


def _walk(root: str) -> Iterator[os.DirEntry[str]]:
    directories = [root]
    while directories:
        with suppress(OSError), os.scandir(directories.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    directories.append(entry.path)
                yield entry


def glob_to_regex(pattern: str) -> Pattern[str]:
    """Turn a glob into a regular expression for paths: `*` stays within a name, `**` does not."""
    text, position = "", 0
    for match in re.finditer(r"\*\*/|\*\*|\*|\?", pattern):
        text += re.escape(pattern[position : match.start()])
        text += {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}[match[0]]
        position = match.end()
    return re.compile(text + re.escape(pattern[position:]), re.DOTALL)
