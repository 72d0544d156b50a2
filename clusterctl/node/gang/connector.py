"""A peer's way to the hub: connect from the training IP, prove the token to each other, try again until a deadline."""

from __future__ import annotations

import json
import os
import socket
import time
from typing import Callable, Optional

from ...protocol.ranks import Slot
from ...protocol.untrusted import parse_object
from ..runtime.connections import is_same_proof
from .channel import (
    NONCE_LENGTH,
    UNPROVEN_LINE,
    ChannelError,
    Handshake,
    LineSocket,
    SecureChannel,
    describe_os_error,
)
from .membership import GangContext, read_bounds

JOIN_LIMIT = 10.0  # seconds to reach the hub, which may be busy with others
TRY_LIMIT = 5.0  # seconds of one try, up to the hub's welcome
RETRY_PAUSE = 0.2
TIMER = "join"


class Connector:
    """Hands over a channel for each try that came to one, and reports when all tries were in vain."""

    def __init__(
        self,
        context: GangContext,
        slot: Slot,
        on_channel: Callable[[SecureChannel], None],
        on_unreachable: Callable[[str], None],
    ) -> None:
        self._context, self._slot = context, slot
        self._on_channel, self._on_unreachable = on_channel, on_unreachable
        self._address, self.port, self._deadline = "", 0, 0.0
        self._conn: Optional[socket.socket] = None
        self._line_socket: Optional[LineSocket] = None
        self._handshake: Optional[Handshake] = None

    def connect(self, address: str, port: int) -> None:
        """Try until it is stopped, or the deadline has come."""
        self._address, self.port = address, port
        self._deadline = time.monotonic() + float(self._context.spec.get("join_limit") or JOIN_LIMIT)
        self._try()

    def stop(self) -> None:
        """Try no more: the hub has welcomed us, or nobody waits for it."""
        self._context.loop.cancel(TIMER)
        if self._conn is not None:
            self._context.loop.unwatch(self._conn.fileno())
            self._conn.close()
        self._conn = None

    def _try(self) -> None:
        spec, loop = self._context.spec, self._context.loop
        loop.after(TRY_LIMIT, TIMER, lambda: self._on_failed("no answer"))
        conn = self._conn = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        conn.setblocking(False)
        try:
            if spec.get("address"):
                conn.bind((spec["address"], 0))
            conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            conn.connect((self._address, self.port))
        except BlockingIOError:
            pass
        except OSError as error:
            self._on_failed(describe_os_error(error))
            return
        loop.watch_writable(conn.fileno(), self._on_connected)

    def _on_connected(self) -> None:
        if self._conn is None:
            return
        self._context.loop.unwatch(self._conn.fileno())
        number = self._conn.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            self._on_failed(os.strerror(number))
            return
        conn, self._conn = self._conn, None
        self._line_socket = LineSocket(self._context.loop, conn, self._on_line, self._on_failed)

    def _on_line(self, line: bytes) -> None:
        """Take the hub's question, then its proof."""
        message, context = parse_object(line, UNPROVEN_LINE), self._context
        if self._line_socket is None:
            raise ChannelError("not the hub of this run")
        if self._handshake is None:
            nonce, node = message.text("nonce"), str(context.spec["node"])
            if len(nonce) != NONCE_LENGTH:
                raise ChannelError("not the hub of this run")
            self._handshake = Handshake(context.spec["run"], self._slot, node, nonce, os.urandom(16).hex())
            proof = self._handshake.prove(context.token, "the peer is who it says")
            identity = {"rank": self._slot, "node": node, "nonce": self._handshake.peer_nonce}
            self._line_socket.send(json.dumps({**identity, "proof": proof}).encode("ascii") + b"\n")
        elif is_same_proof(
            message.text("proof"), self._handshake.prove(context.token, "the hub is who it says")
        ):
            bounds = read_bounds(context.spec)
            channel = SecureChannel(self._line_socket, self._handshake, context.token, bounds, hub=False)
            self._on_channel(channel)
        else:
            raise ChannelError("it does not know the token of this run")

    def _on_failed(self, why: str) -> None:
        """Try again, or say what is in the way."""
        self.stop()
        if self._line_socket is not None:
            self._line_socket.close()
        self._line_socket, self._handshake = None, None
        if time.monotonic() + RETRY_PAUSE < self._deadline:
            self._context.loop.after(RETRY_PAUSE, TIMER, self._try)
        else:
            self._on_unreachable(why)
