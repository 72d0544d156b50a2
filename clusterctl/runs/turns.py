"""Whose turn it is to fill a work directory that several nodes share, so that what one was sent the others find."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class _Turn:
    filled: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


class Turns:
    """Gives turns by the random id of the place; used by one thread for each node."""

    def __init__(self) -> None:
        self._turns: defaultdict[str, _Turn] = defaultdict(_Turn)
        self._lock = threading.Lock()

    @contextmanager
    def take(self, place: str) -> Iterator[None]:
        """Wait for the turn: the first goes alone, and when it is through all others go together.

        Whoever fails leaves the turn to the next; a place without an id is nobody else's.
        """
        with self._lock:
            turn = self._turns[place] if place else _Turn()
        with turn.lock:
            if not turn.filled:
                yield
                turn.filled = True
                return
        yield
