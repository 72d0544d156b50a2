"""What is free on this machine's disk, divided among nodes that all send at once."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from clusterctl.errors import LocalSystemError, NodeError
from clusterctl.plans.sync.manifest import render_megabytes

CLOSE_LIMIT = 2.0  # seconds in which those who write remember what has arrived
HONOURED = 30.0  # seconds in which what a node has announced is kept free for it, whatever has arrived
HONOURED_RATE = 3600.0  # seconds: after that, only if all would have arrived in this time at its rate
WAIT_TICK = 1.0  # seconds


@dataclass
class Claim:
    """What a node has announced and not sent yet."""

    remaining: int
    began: float
    received: int = 0
    firm: bool = True

    def is_honoured(self, now: float) -> bool:
        """Return whether it counts against others: an announcement alone keeps none of them out for good."""
        elapsed = now - self.began
        on_time = self.remaining * elapsed <= HONOURED_RATE * self.received
        return self.firm and (elapsed <= HONOURED or on_time)


class DiskBudget:
    """What is free below a directory, less what is expected; used by many threads."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._clock = folder, clock
        self._claims: list[Claim] = []
        self._writers = 0
        self._changed = threading.Condition()
        self._closed = False
        self._refusal: LocalSystemError | None = None

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Count as one who writes."""
        with self._changed:
            self._writers += 1
        try:
            yield
        finally:
            with self._changed:
                self._writers -= 1
                self._changed.notify_all()

    @contextmanager
    def expecting(
        self, size: int, on_wait: Callable[[], object] = lambda: None
    ) -> Iterator[Callable[[int], None]]:
        """Keep so many bytes free; gives what is to be called with each number of bytes before they are written.

        Waits for others that are getting on. NodeError if there is no room, or if another has got what was not sent
        in time; LocalSystemError once the budget is closed.
        """
        with self._changed:
            while not self._fits(size):
                on_wait()
                self._changed.wait(WAIT_TICK)
            claim = Claim(size, self._clock())
            self._claims.append(claim)
        try:
            yield lambda count: self._on_bytes(claim, count)
        finally:
            with self._changed:
                self._claims.remove(claim)
                self._changed.notify_all()

    def _fits(self, size: int) -> bool:
        """Return whether a node can begin now; those who announced much and sent little then take what is left."""
        self.check_open()
        free, now = self._measure(), self._clock()
        if size > free:
            raise self._no_room(size, free)
        honoured = [claim for claim in self._claims if claim.is_honoured(now)]
        if size > free - sum(claim.remaining for claim in honoured):
            return False
        if size > free - sum(claim.remaining for claim in self._claims):
            for claim in self._claims:
                claim.firm = any(claim is other for other in honoured)
        return True

    def _on_bytes(self, claim: Claim, count: int) -> None:
        with self._changed:
            self.check_open()
            if not claim.firm:
                free = self._measure() - sum(other.remaining for other in self._claims if other.firm)
                if count > free:
                    raise self._no_room(claim.remaining, free)
            claim.remaining -= count
            claim.received += count

    def _measure(self) -> int:
        return shutil.disk_usage(self._folder).free

    def _no_room(self, size: int, free: int) -> NodeError:
        missing = render_megabytes(size - max(0, free))
        return NodeError(
            "CC-PULL-002", "room", size=render_megabytes(size), missing=missing, folder=self._folder
        )

    def check_open(self) -> None:
        """Raise LocalSystemError once the budget is closed."""
        if self._closed:
            raise self._refusal or LocalSystemError("CC-PULL-002", "interrupted")

    def close(self, refusal: LocalSystemError | None = None) -> None:
        """Stop all threads; without a refusal, wait until those that write have saved their state."""
        with self._changed:
            self._closed, self._refusal = True, self._refusal or refusal
            self._changed.notify_all()
            if refusal is None:
                self._changed.wait_for(lambda: self._writers == 0, CLOSE_LIMIT)
