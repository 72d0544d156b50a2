"""A server on loopback for tests: every visitor is met in a thread of its own."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress


class LoopbackServer:
    """Listens until `close`; each connection is handed to `meet` and closed after it, whatever the socket received."""

    def __init__(self, meet: Callable[[socket.socket], None], address: str = "127.0.0.1") -> None:
        self._meet = meet
        self._socket = socket.create_server((address, 0))
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Let no one in any more."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # a thread waits in accept
        self._socket.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                visitor, _ = self._socket.accept()
                threading.Thread(target=self._attend, args=[visitor], daemon=True).start()

    def _attend(self, visitor: socket.socket) -> None:
        with suppress(OSError, EOFError), visitor:
            self._meet(visitor)
