"""What has come into a store so far: one thread adds to it, and others send on meanwhile what they see here."""

from __future__ import annotations

import threading
from typing import Collection, Dict, List, NamedTuple, Tuple


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

    def forget(self, missing: Collection[str]) -> None:
        """Note that contents which were here are not any more."""
        with self._changed:
            self._whole = ["" if sha in missing else sha for sha in self._whole]
            for sha in missing:
                self._paths.pop(sha, None)

    def wait(self, pending: Collection[str], after: int, timeout: float) -> Tuple[List[str], List[str], int]:
        """Wait for one of some contents to be whole, of those after the first `after`, or for a part of one.

        Returns those that are whole, those of which a part is here, and the count of all that have become whole.
        """

        def find() -> Tuple[List[str], List[str]]:
            whole = dict.fromkeys(sha for sha in self._whole[after:] if sha in pending)
            return list(whole), [sha for sha in self._unfinished if sha in pending]

        with self._changed:
            self._changed.wait_for(lambda: any(find()), timeout)
            return (*find(), len(self._whole))

    def wait_for_more(self, sha: str, seen: Progress, size: int, timeout: float) -> Progress:
        """Wait until there is more than `seen` of a content of this size, or another file."""

        def find() -> Progress:
            sent_on = min(self._unfinished.get(sha, size), size - (sha in self._unfinished))
            return Progress(self._paths[sha], sent_on) if sha in self._paths else Progress("", 0)

        with self._changed:
            self._changed.wait_for(lambda: find().path != seen.path or find().size > seen.size, timeout)
            return find()
