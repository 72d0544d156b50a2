"""One connection of the proof on the wire: who are you, then SIZE bytes both ways at once, then a byte for "all came".

Both sides prove the token of this check before anything large is sent. What has not proved it may say one short line.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from typing import Any, Callable, Dict, Optional

from ..protocol.untrusted import MalformedError, Untrusted, parse_object
from .loop import Loop
from .proof import prove

SIZE = 256 << 10  # bytes each way: far more than one packet, so that a path that drops large ones shows
BLOCK = bytes(32 << 10)
LONGEST_LINE = 1 << 10
LONGEST_CARRY = 10.0  # seconds for the bulk both ways, also where a byte comes now and then
ALL_CAME = b"!"
STRANGER = "somebody else answers there"
TCP_INFO_SIZE = 192
# Where struct tcp_info has them (linux/tcp.h); the kernel only ever appends to it.
LOST_AT, RTT_AT, ACKED_AT, LEAST_RTT_AT = 100, 68, 120, 148


class Badge:
    """Who we are in this check, and the token that only its nodes know."""

    def __init__(self, name: str, token: bytes) -> None:
        self.name = name
        self._token = token

    def prove(self, purpose: str, caller: str, listener: str, *nonces: str) -> str:
        """Prove to know the token, for one purpose and one connection."""
        return prove(self._token, purpose, caller, listener, *nonces)


class Talk:
    """Lines and then bulk over a socket that never waits; whatever goes wrong ends it with one call of `left`."""

    def __init__(
        self,
        loop: Loop,
        conn: socket.socket,
        hear: Callable[[Untrusted], None],
        left: Callable[[str], None],
    ) -> None:
        self.conn = conn
        self.closed = False
        self.got = 0  # bytes of bulk
        self._loop = loop
        self._hear = hear
        self._left = left
        self._name = "talk %s" % os.urandom(8).hex()
        self._limit = ("", 0.0)
        self._heard = bytearray()
        self._unsent = bytearray()
        self._bulk = 0  # bytes of it that are still to be sent
        self._last = b""  # what stands behind it
        self._carried: Optional[Callable[[], None]] = None
        conn.setblocking(False)

    def listen(self) -> None:
        """Begin to hear."""
        self.conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._loop.watch(self.conn.fileno(), self._read)

    def expect(self, what: str, seconds: float) -> None:
        """End it after so long without the next line, or once there is bulk when nothing moves for so long."""
        self._limit = (what, seconds)
        self._moved()

    def say(self, **words: object) -> None:
        """Send a line."""
        self._unsent += json.dumps(words).encode("ascii") + b"\n"
        self._write()

    def carry(self, carried: Callable[[], None]) -> None:
        """Send the bulk; from here on bytes are counted, and `carried` hears of each change."""
        self._carried = carried
        self._bulk = SIZE
        late = "no end of the data within %g s" % LONGEST_CARRY
        self._loop.after(LONGEST_CARRY, self._name + " carry", lambda: self.fail(late))
        self._write()

    def acknowledge(self) -> None:
        """Say that all came, behind our own bulk."""
        self._last = ALL_CAME
        self._write()

    def fail(self, why: str) -> None:
        """Say why, while there is still something to measure, and end it."""
        if not self.closed:
            self._left(why)
            self.close()

    def close(self) -> None:
        """End it."""
        if not self.closed:
            self.closed = True
            self._loop.drop(self._name)
            self._loop.drop(self._name + " carry")
            self._loop.forget(self.conn.fileno())
            self.conn.close()

    def _moved(self) -> None:
        what, seconds = self._limit
        self._loop.after(seconds, self._name, lambda: self.fail("%s within %g s" % (what, seconds)))

    def _progress(self) -> None:
        """Count a byte as a sign of life; not before the bulk, or one now and then would hold us for ever."""
        if self._carried is not None:
            self._moved()

    def _write(self) -> None:
        """Send lines, bulk, and what stands behind the bulk, as far as there is room."""
        try:
            while not self.closed and (self._unsent or self._bulk or self._last):
                self._send_some()
                self._progress()
        except BlockingIOError:
            self._loop.watch_room(self.conn.fileno(), self._write)
            return
        except OSError as error:
            self.fail(describe(error))
            return
        if not self.closed:
            self._loop.forget_room(self.conn.fileno())

    def _send_some(self) -> None:
        if self._unsent:
            del self._unsent[: self.conn.send(bytes(self._unsent))]
        elif self._bulk:
            self._bulk -= self.conn.send(BLOCK[: self._bulk])
        else:
            self._last = self._last[self.conn.send(self._last) :]

    def _read(self) -> None:
        try:
            piece = self.conn.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError as error:
            self.fail(describe(error))
            return
        if not piece:
            self.fail("the other side closed the connection")
            return
        self._progress()
        if self._carried is None:
            piece = self._read_lines(piece)
        if self._carried is not None and piece and not self.closed:
            self.got += len(piece)
            self._carried()

    def _read_lines(self, piece: bytes) -> bytes:
        """Hand over lines until one of them begins the bulk; gives what belongs to that."""
        self._heard += piece
        while self._carried is None and not self.closed:
            line, newline, rest = bytes(self._heard).partition(b"\n")
            if len(line) > LONGEST_LINE:
                self.fail(STRANGER)
            if not newline or self.closed:
                return b""
            self._heard = bytearray(rest)
            try:
                self._hear(parse_object(line, LONGEST_LINE))
            except MalformedError:
                self.fail(STRANGER)
            except OSError as error:  # it has left meanwhile
                self.fail(describe(error))
        return bytes(self._heard)


def measure(conn: socket.socket) -> Dict[str, Any]:
    """Tell what the kernel knows of a connection: segment size, round trips in microseconds, packets sent again."""
    told: Dict[str, Any] = {}
    try:
        told["mss"] = conn.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
        info = conn.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_SIZE)
    except OSError:
        return told
    for name, place, form in (
        ("rtt", RTT_AT, "=I"),
        ("lost", LOST_AT, "=I"),
        ("acked", ACKED_AT, "=Q"),
        ("least_rtt", LEAST_RTT_AT, "=I"),
    ):
        if len(info) >= place + struct.calcsize(form):
            told[name] = struct.unpack_from(form, info, place)[0]
    return told


def describe(error: OSError) -> str:
    """Say in words what the system says."""
    return os.strerror(error.errno) if error.errno else str(error)
