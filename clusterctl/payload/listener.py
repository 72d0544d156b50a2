"""Node 0's master port, from holding it to seeing torchrun listen on it."""

from __future__ import annotations

import socket
import time
from typing import Callable, Optional, Sequence

from .loop import Loop
from .ports import hold_port, owns_listener, port_of

LOOK = 0.02
PATIENCE = 120.0  # seconds in which torchrun must listen


class Listener:
    """Holds a port, then waits until exactly one process listens there."""

    def __init__(self, loop: Loop, ports: Optional[Sequence[int]]) -> None:
        self._loop = loop
        self._holder: Optional[socket.socket] = hold_port(ports)
        self.port = port_of(self._holder)
        self.waiting = False

    def wait_for(self, pid: int, port: int, done: Callable[[bool], None]) -> None:
        """Call `done` once the process listens on the port, or with False if it does not come to that."""
        self.waiting = True
        deadline = time.monotonic() + PATIENCE

        def look() -> None:
            if owns_listener(pid, port):
                self.finish()
                done(True)
            elif time.monotonic() > deadline:
                self.finish()
                done(False)
            else:
                self._loop.after(LOOK, "listen", look)

        self._loop.after(0, "listen", look)

    def finish(self) -> None:
        """Let go of the port."""
        self.waiting = False
        self._loop.drop("listen")
        if self._holder is not None:
            self._holder.close()
            self._holder = None
