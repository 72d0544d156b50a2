"""A program whose output goes into files must not fill the disk with it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO

from clusterctl.runs.limits import WATCHDOG

MOST_SAID = 1 << 20  # bytes, when it is looked at
LOOK_EVERY = 0.5  # seconds


class Flood:
    """Looks at files as they grow; `seen` tells whether one grew far too large, and the program was stopped."""

    def __init__(self, files: Sequence[IO[bytes]], stop: Callable[[], None]) -> None:
        self.seen = False
        self._files, self._stop = files, stop
        self._over = False
        self._alarm = WATCHDOG.set(LOOK_EVERY, self._look)

    def _look(self) -> None:
        with suppress(OSError, ValueError):  # they are just being closed
            if self._over:
                return
            if any(os.fstat(file.fileno()).st_size > MOST_SAID for file in self._files):
                self.seen = True
                self._stop()
            else:
                self._alarm = WATCHDOG.set(LOOK_EVERY, self._look)

    def end(self) -> None:
        """Look no more."""
        self._over = True
        WATCHDOG.cancel(self._alarm)


@contextmanager
def no_flood(files: Sequence[IO[bytes]], stop: Callable[[], None]) -> Iterator[Flood]:
    """Call `stop` if one of the files grows far too large within the block."""
    flood = Flood(files, stop)
    try:
        yield flood
    finally:
        flood.end()
