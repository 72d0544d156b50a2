"""One thread that waits for descriptors and for moments, and sleeps otherwise."""

from __future__ import annotations

import select
import time
from typing import Callable, Dict, Tuple

Callback = Callable[[], None]


class Loop:
    """Calls back when a descriptor is readable or a moment has come, until `stopped`."""

    def __init__(self) -> None:
        self.stopped = False
        self._poller = select.poll()
        self._readers: Dict[int, Callback] = {}
        self._moments: Dict[str, Tuple[float, Callback]] = {}

    def watch(self, descriptor: int, callback: Callback) -> None:
        """Call back whenever the descriptor is readable or at its end."""
        self._readers[descriptor] = callback
        self._poller.register(descriptor, select.POLLIN)

    def forget(self, descriptor: int) -> None:
        """Stop watching; do so before closing."""
        if self._readers.pop(descriptor, None) is not None:
            self._poller.unregister(descriptor)

    def after(self, seconds: float, name: str, callback: Callback) -> None:
        """Call back once, later; replaces what was set under the name."""
        self._moments[name] = (time.monotonic() + max(0.0, seconds), callback)

    def drop(self, name: str) -> None:
        """Forget a moment."""
        self._moments.pop(name, None)

    def stop(self) -> None:
        """Return from `run` after this turn."""
        self.stopped = True

    def run(self) -> None:
        """Serve until stopped."""
        while not self.stopped:
            self._turn()

    def _turn(self) -> None:
        for descriptor, _ in self._poller.poll(self._wait() * 1000):
            reader = self._readers.get(descriptor)
            if reader is not None:
                reader()
        now = time.monotonic()
        for name in [name for name, (moment, _) in self._moments.items() if moment <= now]:
            _, callback = self._moments.pop(name, (0.0, _nothing))
            callback()

    def _wait(self) -> float:
        if not self._moments:
            return 3600.0
        return max(0.0, min(moment for moment, _ in self._moments.values()) - time.monotonic())


def _nothing() -> None:
    """Stand for a moment that another callback dropped."""
