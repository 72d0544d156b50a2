"""The connection to the client that started the run: orders come in, events go out, until GO."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, Callable, Dict

from ..runtime.event_loop import Loop
from ..runtime.stream import Stream

if TYPE_CHECKING:
    from ...protocol.messages.agent import AnyEventFacts, EventName

SEND_TIMEOUT = 5.0  # seconds for a relay that does not read
OnOrder = Callable[[Dict[str, Any]], None]


class Client:
    """Tells the client what happens, for as long as it is there, and hands over its orders."""

    def __init__(self, loop: Loop, descriptor: int, on_order: OnOrder, on_left: Callable[[], None]) -> None:
        self._loop = loop
        self._socket = socket.socket(fileno=descriptor)
        self._stream = Stream(descriptor, descriptor)
        self._stream.send_timeout = SEND_TIMEOUT
        self._on_order = on_order
        self._on_left = on_left
        self.connected = True
        loop.watch(descriptor, self._read)

    def send_event(self, event: EventName, facts: AnyEventFacts) -> None:
        """Send an event; a client that is gone misses it."""
        if self.connected:
            try:
                self._stream.send({"event": event, **facts})
            except BrokenPipeError:
                self.close()
                self._on_left()

    def close(self) -> None:
        """End the dialogue."""
        if self.connected:
            self.connected = False
            self._loop.unwatch(self._stream.fileno())
            self._socket.close()

    def _read(self) -> None:
        for header, _ in self._stream.read_available():
            self._on_order(header)
            if not self.connected:
                return
        if self._stream.ended:
            self.close()
            self._on_left()
