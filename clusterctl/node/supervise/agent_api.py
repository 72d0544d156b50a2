"""What attempt, startup and hooks see of the agent; client link."""

from __future__ import annotations

import socket
from typing import Any, Callable, Dict, List, Protocol

from ..gang.membership import Facts, Gang
from ..logs.recorder import Logbook
from ..runtime.event_loop import Loop
from ..runtime.stream import Stream
from ..state.locks import Claim
from ..state.run_record import Record

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


class Host(Protocol):
    """The agent, as an attempt sees it."""

    rundir: str
    spec: Dict[str, Any]  # the run's, as it was given
    loop: Loop
    record: Record
    client: Client
    claim: Claim
    logbook: Logbook
    gang: Gang

    def count_time(self) -> None:
        """Begin the job's time limit, if it has not begun yet."""

    def attempt_ended(self, part: Facts, left: List[Facts]) -> None:
        """Nothing of the attempt runs any more but what could not be ended."""
