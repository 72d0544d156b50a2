"""The connections of the page: who may stay, who is cut, and whose account is at the other end."""

from __future__ import annotations

import hmac
import os
import socket
import sys
import threading
import time
from contextlib import suppress
from http.client import LineTooLong
from io import BufferedIOBase
from pathlib import Path

MAX_CONNECTIONS = 64  # that have shown the token
MAX_UNPROVEN = 16
PROOF_LIMIT = 5.0  # seconds for the head of a request, however slowly it is sent
MAX_HEAD = 32 << 10  # bytes; a browser sends less than one
CONNECTIONS = ("/proc/net/tcp", "/proc/net/tcp6")


class Connections:
    """The open connections: those that have shown the token, and the few that have not, for seconds.

    Every account of the machine can connect to 127.0.0.1. So a connection without the token takes no place of one that
    has it, and the oldest of those without it makes room for the next: a browser sends its request at once.
    A connection is closed only after `remove`, so no descriptor of another is ever cut.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._unproven: dict[socket.socket, float] = {}  # with the end of their time, the oldest first
        self._proven: set[socket.socket] = set()

    def add(self, connection: socket.socket) -> None:
        """Count a new one; of too many without the token the oldest is cut."""
        with self._lock:
            self._unproven[connection] = time.monotonic() + PROOF_LIMIT
            if len(self._unproven) > MAX_UNPROVEN:
                self._cut(next(iter(self._unproven)))

    def prove(self, connection: socket.socket) -> bool:
        """Count one among those that have shown the token; False if there are too many, or it was cut before."""
        with self._lock:
            if connection not in self._unproven or len(self._proven) >= MAX_CONNECTIONS:
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
        self._file, self._left = file, MAX_HEAD

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


def is_same(secret: str, text: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(secret.encode(), text.encode("utf-8", "replace"))


def list_connections() -> str:
    """Read which connections this machine has; empty where it does not report that."""
    texts = []
    for name in CONNECTIONS:
        with suppress(OSError):
            texts.append(Path(name).read_text(encoding="ascii"))
    return "".join(texts)


def find_owners(table: str, client: tuple[str, int], port: int) -> set[int]:
    """Return the accounts at the other end of a connection to `port` here; none if it is not in the table."""
    here, there = (
        f"{int.from_bytes(socket.inet_aton(address), sys.byteorder):08X}:{number:04X}"
        for address, number in (("127.0.0.1", port), client)
    )
    # an address of version 6 may end with one of version 4
    rows = [line.split() for line in table.splitlines()]
    return {int(row[7]) for row in rows if len(row) > 7 and row[1].endswith(there) and row[2].endswith(here)}


def is_own_connection(owners: set[int]) -> bool:
    """Return whether a connection is known to be of this account, or of root; one that is in no table is not."""
    return bool(owners) and owners <= {0, os.getuid()}
