"""What attempt, startup and hooks see of the agent; client link."""

from __future__ import annotations

import socket
from typing import Any, Callable, Dict, List, Protocol

from ..gang.membership import Gang, JsonObject
from ..logs.recorder import LogRecorder
from ..runtime.event_loop import Loop
from ..runtime.stream import Stream
from ..state.locks import NodeLocks
from ..state.run_record import Record

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

    def send_event(self, event: str, **facts: Any) -> None:
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


class AgentApi(Protocol):
    """The agent, as an attempt sees it."""

    rundir: str
    spec: Dict[str, Any]  # the run's, as it was given
    loop: Loop
    record: Record
    client: Client
    locks: NodeLocks
    log_recorder: LogRecorder
    gang: Gang

    def start_time_limit(self) -> None:
        """Begin the job's time limit, if it has not begun yet."""

    def on_attempt_ended(self, part: JsonObject, leftovers: List[JsonObject]) -> None:
        """Nothing of the attempt runs any more but what could not be ended."""
