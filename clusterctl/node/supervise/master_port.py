"""A port for torchrun, held until it is used; then whether torchrun listens there."""

from __future__ import annotations

import socket
import time
from typing import Callable, Optional, Sequence

from ..runtime.event_loop import Loop
from ..runtime.sockets import hold_port, owns_listener, port_of

POLL_INTERVAL = 0.02
LISTEN_LIMIT = 120.0  # seconds in which torchrun must listen


class MasterPort:
    """Holds a port, then waits until exactly one process listens there."""

    def __init__(self, loop: Loop, ports: Optional[Sequence[int]]) -> None:
        self._loop = loop
        self._holder: Optional[socket.socket] = hold_port(ports)
        self.port = port_of(self._holder)

    def wait_for(self, pid: int, port: int, on_done: Callable[[bool], None]) -> None:
        """Call `on_done` once the process listens on the port, or with False if it does not come to that."""
        deadline = time.monotonic() + LISTEN_LIMIT

        def poll() -> None:
            if owns_listener(pid, port):
                self.release()
                on_done(True)
            elif time.monotonic() > deadline:
                self.release()
                on_done(False)
            else:
                self._loop.after(POLL_INTERVAL, "listen", poll)

        self._loop.after(0, "listen", poll)

    def release(self) -> None:
        """Let go of the port."""
        self._loop.cancel("listen")
        if self._holder is not None:
            self._holder.close()
            self._holder = None
