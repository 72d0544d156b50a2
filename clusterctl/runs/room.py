"""The disk here, shared by all nodes that send: is there room, and does everybody go on?"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clusterctl.errors import NodeError, SystemRefusal
from clusterctl.plans.tree import megabytes

FAREWELL = 2.0  # seconds in which those who write remember what has arrived


class Room:
    """What is free below a directory, less what is expected; used by many threads."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._free = self._measured = shutil.disk_usage(place).free
        self._writers = 0
        self._changed = threading.Condition()
        self._closed = False
        self._refusal: SystemRefusal | None = None

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Count as one who writes."""
        with self._changed:
            self._writers += 1
        try:
            yield
        finally:
            with self._changed:
                self._writers -= 1
                self._changed.notify_all()

    def reserve(self, size: int) -> bool:
        """Take so many bytes; False if others have announced too many to begin now, NodeError if they never fit.

        What a node announces keeps nobody out for good: once the others are through, what they really brought counts.
        """
        with self._changed:
            if size > self._measured:
                lacking = megabytes(size - self._measured)
                raise NodeError(
                    f"{megabytes(size)} to bring, {lacking} more than are free at {self._place}",
                    code="CC-PULL-002",
                    fix="make room, or give a DIR on another disk",
                )
            if size > self._free:
                return False
            self._free -= size
            return True

    def measure(self) -> None:
        """Look again what is free; nobody is writing now."""
        with self._changed:
            self._free = self._measured = shutil.disk_usage(self._place).free

    def check(self) -> None:
        """Raise SystemRefusal once the room is closed."""
        if self._closed:
            raise self._refusal or SystemRefusal("interrupted", code="CC-PULL-002")

    def close(self, refusal: SystemRefusal | None = None) -> None:
        """Let nobody go on; without a refusal, wait until those who write have remembered what they have."""
        with self._changed:
            self._closed, self._refusal = True, self._refusal or refusal
            if refusal is None:
                self._changed.wait_for(lambda: self._writers == 0, FAREWELL)
