"""The agent's side of its dialogue with the client that starts the run."""

from __future__ import annotations

import os
import socket
from typing import Any, Callable, Dict

from .loop import Loop
from .wire import Stream

PATIENCE = 5.0  # seconds for a relay that does not read
Orders = Callable[[Dict[str, Any]], None]


class Client:
    """Tells the client what happens, for as long as it is there, and hands over its orders."""

    def __init__(self, loop: Loop, descriptor: int, orders: Orders, left: Callable[[], None]) -> None:
        self._loop = loop
        self._socket = socket.socket(fileno=descriptor)
        self._stream = Stream(descriptor, descriptor)
        self._stream.patience = PATIENCE
        self._orders = orders
        self._left = left
        self.here = True
        loop.watch(descriptor, self._read)

    def tell(self, event: str, **facts: Any) -> None:
        """Send an event; a client that is gone misses it."""
        if self.here:
            try:
                self._stream.send({"event": event, **facts})
            except BrokenPipeError:
                self.close()
                self._left()

    def close(self) -> None:
        """End the dialogue."""
        if self.here:
            self.here = False
            self._loop.forget(self._stream.fileno())
            self._socket.close()

    def _read(self) -> None:
        for header, _ in self._stream.arrived():
            self._orders(header)
            if not self.here:
                return
        if self._stream.ended:
            self.close()
            self._left()


def tail_of(path: str, limit: int = 4096) -> str:
    """Return the end of a text file; empty if there is none."""
    try:
        with open(path, "rb") as source:
            size = source.seek(0, os.SEEK_END)
            source.seek(max(0, size - limit))
            return source.read().decode("utf-8", "replace")
    except OSError:
        return ""
