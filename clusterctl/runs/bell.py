"""A descriptor that wakes a reader, rung from another thread.

paramiko has one of its own, but closes its two ends before it notes that they are closed. What arrives in that
moment is rung on a closed descriptor, and the error ends the whole connection with every session on it; or on one
that has been taken for something else meanwhile, and a stray byte goes there.
"""

from __future__ import annotations

import os
import threading
import weakref
from dataclasses import dataclass


class Bell:
    """Readable while any of its cords is pulled."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        self._lock = threading.Lock()
        self._pulled: set[str] = set()
        self._closed = False

    def fileno(self) -> int:
        """Return the descriptor to wait for."""
        return self._reader

    def cord(self, name: str) -> Cord:
        """Give one of the things that ring it."""
        return Cord(self, name)

    def pull(self, name: str) -> None:
        """Ring, unless it rings."""
        with self._lock:
            if not self._closed and not self._pulled:
                os.write(self._writer, b"*")
            self._pulled.add(name)

    def let_go(self, name: str) -> None:
        """Be quiet when this was the last cord pulled."""
        with self._lock:
            last = self._pulled == {name}
            self._pulled.discard(name)
            if last and not self._closed:
                os.read(self._reader, 1)

    def close(self) -> None:
        """Release both ends; ringing does nothing from here on."""
        with self._lock:
            if not self._closed:
                self._closed = True
                os.close(self._reader)
                os.close(self._writer)


@dataclass(frozen=True)
class Cord:
    """What paramiko takes for an event: set while there is something to read."""

    bell: Bell
    name: str

    def set(self) -> None:
        """Tell that there is something, or that no more will come."""
        self.bell.pull(self.name)

    def clear(self) -> None:
        """Tell that there is nothing."""
        self.bell.let_go(self.name)


def hang(owner: object) -> Bell:
    """Make a bell that is released with its owner at the latest."""
    bell = Bell()
    weakref.finalize(owner, bell.close)
    return bell
