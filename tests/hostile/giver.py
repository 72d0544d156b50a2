"""A hostile giver and a hostile taker of code: both know the transfer's token, and then do what a test wants."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable
from typing import Any

from clusterctl.node.runtime.connections import prove
from clusterctl.protocol.frames import encode_frame

NONCE = "0" * 32
Deed = Callable[[socket.socket], None]


class Giver:
    """Listens as a node that has all contents; `deed` is what it does once the taker has proved the token."""

    def __init__(self, token: str, deed: Deed) -> None:
        self._token, self._deed = token.encode(), deed
        self._door = socket.create_server(("127.0.0.1", 0))
        self.where = {"address": "127.0.0.1", "port": self._door.getsockname()[1], "token": token, "index": 1}
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            taker = self._door.accept()[0]
            with taker, contextlib.suppress(OSError):
                taker.settimeout(60)
                send_line(taker, {"nonce": NONCE})
                nonces = NONCE, read_line(taker)["nonce"]
                send_line(taker, {"proof": prove(self._token, "I give", *nonces)})
                taker.recv(1 << 16)  # what is wanted
                self._deed(taker)

    def close(self) -> None:
        """Listen no more, and wait until the deed is done or the taker has gone."""
        with contextlib.suppress(OSError):
            self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()
        self._thread.join(60)


def knock(port: int, token: str) -> socket.socket:
    """Come to a giver as a taker that knows the token; the rest is up to the test."""
    conn = socket.create_connection(("127.0.0.1", port), 10)
    conn.settimeout(60)
    nonces = read_line(conn)["nonce"], NONCE
    send_line(conn, {"nonce": NONCE, "proof": prove(token.encode(), "I take", *nonces)})
    assert read_line(conn) == {"proof": prove(token.encode(), "I give", *nonces)}
    return conn


def send_line(conn: socket.socket, message: Any) -> None:
    """Send a line of JSON."""
    conn.sendall(json.dumps(message).encode() + b"\n")


def read_line(conn: socket.socket) -> Any:
    """Read a line of JSON, and no byte more."""
    line = b""
    while not line.endswith(b"\n"):
        piece = conn.recv(1)
        if not piece:
            raise ConnectionError("the other side has left")
        line += piece
    return json.loads(line)


def send(conn: socket.socket, header: Any, body: bytes = b"") -> None:
    """Send a frame, with any header."""
    conn.sendall(encode_frame(header, body))
