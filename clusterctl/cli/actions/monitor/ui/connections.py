"""Which connections of the page are open: those that have shown its token, and the few that have not, for seconds.

Every account of the machine can connect to 127.0.0.1. So a connection without the token takes no place of one that
has it, and the oldest of those without it makes room for the next: a browser sends its request at once.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from http.client import LineTooLong
from io import BufferedIOBase

MOST_CONNECTIONS = 64  # that have shown the token
MOST_UNPROVEN = 16
PROOF_LIMIT = 5.0  # seconds for the head of a request, however slowly it is sent
MOST_HEAD = 32 << 10  # bytes; a browser sends less than one


class Connections:
    """All that are open; a connection is closed only after `remove`, so no descriptor of another is ever cut."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._unproven: dict[socket.socket, float] = {}  # with the end of their time, the oldest first
        self._proven: set[socket.socket] = set()

    def add(self, connection: socket.socket) -> None:
        """Count a new one; of too many without the token the oldest is cut."""
        with self._lock:
            self._unproven[connection] = time.monotonic() + PROOF_LIMIT
            if len(self._unproven) > MOST_UNPROVEN:
                self._cut(next(iter(self._unproven)))

    def prove(self, connection: socket.socket) -> bool:
        """Count one among those that have shown the token; False if there are too many, or it was cut before."""
        with self._lock:
            if connection not in self._unproven or len(self._proven) >= MOST_CONNECTIONS:
                return False
            del self._unproven[connection]
            self._proven.add(connection)
            return True

    def cut_late(self) -> None:
        """Cut those whose time is over."""
        with self._lock:
            now = time.monotonic()
            for connection in [one for one, end in self._unproven.items() if end <= now]:
                self._cut(connection)

    def remove(self, connection: socket.socket) -> None:
        """Count it no longer: it is about to be closed."""
        with self._lock:
            self._unproven.pop(connection, None)
            self._proven.discard(connection)

    def _cut(self, connection: socket.socket) -> None:
        del self._unproven[connection]
        with suppress(OSError):  # it has gone by itself
            connection.shutdown(socket.SHUT_RDWR)  # its thread sees the end, and closes it


class Request(BufferedIOBase):
    """What a client sends, of which the lines of the head are limited together."""

    def __init__(self, file: BufferedIOBase) -> None:
        self._file, self._left = file, MOST_HEAD

    def readline(self, size: int | None = -1) -> bytes:
        """Read a line of the head; raises LineTooLong after too many bytes."""
        line = self._file.readline(self._left + 1 if size is None or size < 0 else min(size, self._left + 1))
        self._left -= len(line)
        if self._left < 0:
            raise LineTooLong("head")
        return line

    def read(self, size: int | None = -1) -> bytes:
        """Read the body."""
        return self._file.read(size)

    def close(self) -> None:
        """Close what is below."""
        self._file.close()
        super().close()
