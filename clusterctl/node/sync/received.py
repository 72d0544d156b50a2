"""What has come into a store so far: one thread adds to it, and others send on meanwhile what they see here."""

from __future__ import annotations

import threading
from typing import Dict, List, NamedTuple, Tuple


class Progress(NamedTuple):
    """How many bytes of a content may be sent on, and the file that they were written to; "" before any has come.

    The last byte may be only once all of them have the right hash: without it no receiver takes a content for whole.
    A file that has another path than before replaces one that was discarded.
    """

    path: str
    size: int


class Received:
    """Contents in the order in which they became whole, and those of which only a part has come."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._whole: List[str] = []
        self._paths: Dict[str, str] = {}  # by content; whole ones have another name now
        self._unfinished: Dict[str, int] = {}  # bytes

    def grow(self, sha: str, path: str, size: int) -> None:
        """Note that so many bytes of a content have been written to a file aside."""
        with self._changed:
            self._paths[sha], self._unfinished[sha] = path, size
            self._changed.notify_all()

    def complete(self, sha: str, path: str) -> None:
        """Note that a content is in the store; it was written to that file."""
        with self._changed:
            self._unfinished.pop(sha, None)
            self._paths[sha] = path
            self._whole.append(sha)
            self._changed.notify_all()

    def drop(self, sha: str) -> None:
        """Note that what had come of a content was discarded."""
        with self._changed:
            self._unfinished.pop(sha, None)
            self._paths.pop(sha, None)
            self._changed.notify_all()

    def wait(self, after: int, timeout: float) -> Tuple[List[str], List[str]]:
        """Wait until a content after the first `after` is whole, or a part of one is here; return both."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._whole) > after or self._unfinished, timeout)
            return self._whole[after:], list(self._unfinished)

    def wait_for_more(self, sha: str, seen: Progress, size: int, timeout: float) -> Progress:
        """Wait until there is more than `seen` of a content of this size, or another file."""

        def find() -> Progress:
            sent_on = min(self._unfinished.get(sha, size), size - (sha in self._unfinished))
            return Progress(self._paths[sha], sent_on) if sha in self._paths else Progress("", 0)

        with self._changed:
            self._changed.wait_for(lambda: find().path != seen.path or find().size > seen.size, timeout)
            return find()
