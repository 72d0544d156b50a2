"""Connections between nodes on which nothing counts before both sides have proved that they know a secret.

listener {"nonce"}                   a line of JSON each; what else stands in them, and what each proof covers beside
caller   {"nonce", "proof", ...}     the two nonces, is for the users to say: the gang, the mesh test, the transfer of
listener {"proof", ...}              code

A listener bounds who has proved nothing yet: in number, in time, and in bytes. Both ends hand over a `LineSocket`.
"""

from __future__ import annotations

import errno
import hmac
import json
import os
import socket
import time
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional, Sequence, Tuple

from ...protocol.untrusted import Untrusted, parse_object
from .event_loop import Loop

if TYPE_CHECKING:
    from ...protocol.messages.network import HandshakeLine

    HandshakeAnswer = Tuple[HandshakeLine, str]  # our line, and the proof that has to come back

NONCE_LENGTH = 32  # characters
UNPROVEN_LINE = 1 << 10  # bytes of a line before the other side has proved the token
CHUNK = 1 << 14
MAX_UNSENT = 8 << 20  # bytes that the other side may leave unread before it counts as broken
MAX_WHY = 200  # characters
BACKLOG = 1024  # as many as the kernel allows; they come all at once
NO_FREE_FILE = (errno.EMFILE, errno.ENFILE)
CLOSED_BY_PEER = (
    errno.ECONNRESET,
    errno.EPIPE,
)  # its kernel answers so: the node lives, a process there is gone
RETRY_DELAY = 0.5  # seconds until connections are accepted again where no file is free
ACCEPTS_PER_TURN = 16  # connections taken in one turn, so that a flood leaves time for the rest

OnClose = Callable[[str], None]
OnAnswer = Callable[["LineSocket", str, Untrusted], None]


class ChannelError(ValueError):
    """What came does not come from who it should come from, or is nothing that it would send."""


def prove(token: bytes, *context: object) -> str:
    """Prove to know the token; the words are the purpose and the occasion."""
    return hmac.new(token, json.dumps(context).encode("utf-8"), sha256).hexdigest()


def is_same_proof(received: Any, expected: str) -> bool:
    """Compare a proof that was received with the right one, in constant time."""
    return isinstance(received, str) and hmac.compare_digest(
        received.encode("utf-8", "replace"), expected.encode("utf-8")
    )


def make_nonce() -> str:
    """Make what no connection had before."""
    return os.urandom(NONCE_LENGTH // 2).hex()


def read_nonce(message: Untrusted) -> str:
    """Read the other side's nonce; ChannelError if it is none."""
    nonce = message.text("nonce")
    if len(nonce) != NONCE_LENGTH:
        raise ChannelError("it sent no nonce")
    return nonce


def describe_os_error(error: OSError) -> str:
    """Return the system's text for an error."""
    return os.strerror(error.errno) if error.errno else str(error)


def port_range(ports: Optional[Sequence[int]]) -> Sequence[int]:
    """Return the ports of a pair (first, last); 0, for any that is free, where there is no pair."""
    return range(ports[0], ports[1] + 1) if ports else (0,)


def listen(address: str, ports: Sequence[int]) -> socket.socket:
    """Listen on one address, on the first free port, tried from any of them on; OSError if all are taken."""
    start, problem = os.urandom(1)[0] * len(ports) // 256, OSError("every port is taken")
    for port in (*ports[start:], *ports[:start]):
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            sock.bind((address, port))  # not reusable: the master's held port must count as taken
            sock.listen(BACKLOG)
        except OSError as error:
            sock.close()
            problem = error
        else:
            sock.setblocking(False)
            return sock
    raise problem


class LineSocket:
    """One socket that never waits; whatever is wrong with it or with what it receives ends it, by one `on_close`."""

    def __init__(
        self, loop: Loop, conn: socket.socket, on_line: Callable[[bytes], None], on_close: OnClose
    ) -> None:
        self.conn = conn
        self.closed = False
        self.malformed = False  # whether what came was the reason for its end
        self.last_seen = time.time()
        self._loop = loop
        self._on_line = on_line
        self._on_bytes: Optional[Callable[[bytes], None]] = None
        self._on_close = on_close
        self._longest_line = UNPROVEN_LINE
        self._buffer = bytearray()
        self._unsent = bytearray()
        self._idle_limit: Optional[Callable[[], None]] = None
        conn.setblocking(False)
        loop.watch(conn.fileno(), self._read)

    def trust(self, on_line: Callable[[bytes], None], on_close: OnClose, longest_line: int) -> None:
        """Hand lines to another callback from now on, and allow long ones."""
        self._on_line, self._on_close, self._longest_line = on_line, on_close, longest_line

    def receive_bytes(self, on_bytes: Callable[[bytes], None]) -> None:
        """Hand over what comes as it comes from now on: no lines any more."""
        self._on_bytes = on_bytes

    def set_timeout(self, missing: str, seconds: float, *, idle: bool = False) -> None:
        """End it after so long, unless this is set again; with `idle` every byte either way restarts it."""

        def restart() -> None:
            self._loop.after(seconds, self._timer, lambda: self.fail(f"{missing} within {seconds:g} s"))

        self._idle_limit = restart if idle else None
        restart()

    def clear_timeout(self) -> None:
        """Set no limit any more."""
        self._idle_limit = None
        self._loop.cancel(self._timer)

    def send_line(self, fields: HandshakeLine) -> None:
        """Send an object as a line of JSON."""
        self.send(json.dumps(fields).encode("ascii") + b"\n")

    def send(self, data: bytes = b"") -> None:
        """Send this and what is unsent, now and as soon as the other side takes more."""
        if self.closed:
            return
        self._unsent += data
        try:
            while self._unsent:
                del self._unsent[: self.conn.send(memoryview(bytes(self._unsent[:CHUNK])))]
                self._count_progress()
        except BlockingIOError:
            self._loop.watch_writable(self.conn.fileno(), self.send)
        except OSError as error:
            self._fail_with(error)
        else:
            self._loop.unwatch_writable(self.conn.fileno())
        if len(self._unsent) > MAX_UNSENT:
            self.fail("it does not read")

    def detach(self) -> socket.socket:
        """Return the socket away; ChannelError if bytes would be lost, which no correct program has sent yet."""
        if self._buffer or self._unsent:
            raise ChannelError("it sent more than requested")
        self._unwatch()
        return self.conn

    def close(self) -> None:
        """Close it without a message."""
        if not self.closed:
            self._unwatch()
            self.conn.close()

    def fail(self, why: str) -> None:
        """Close it and report why, while the kernel still knows the connection."""
        if not self.closed:
            self._unwatch()
            try:
                self._on_close(why)
            finally:
                self.conn.close()

    @property
    def _timer(self) -> str:
        return f"line socket {id(self)}"

    def _unwatch(self) -> None:
        self.closed = True
        self.clear_timeout()
        self._loop.unwatch(self.conn.fileno())

    def _count_progress(self) -> None:
        if self._idle_limit is not None:
            self._idle_limit()

    def _fail_with(self, error: OSError) -> None:
        """End it; a closed end with something unread in it is reported by an error, and is a sign of life too."""
        if error.errno in CLOSED_BY_PEER:
            self.last_seen = time.time()
        self.fail(describe_os_error(error))

    def _read(self) -> None:
        try:
            chunk = self.conn.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError as error:
            self._fail_with(error)
            return
        self.last_seen = time.time()  # also if it has closed the connection: a node without power does not
        if not chunk:
            self.fail("the connection ended")
            return
        self._count_progress()
        self._buffer += chunk
        try:
            self._hand_over()
        except ValueError as error:  # what came is wrong: ChannelError, MalformedError
            self.malformed = True
            self.fail(str(error)[:MAX_WHY])
        except Exception as error:  # noqa: BLE001, RUF100 - an error of ours costs this connection, and no other
            self._loop.report(error)
            self.fail(f"what it sent caused an error here: {type(error).__name__}: {error}"[:MAX_WHY])

    def _hand_over(self) -> None:
        while self._buffer and not self.closed:
            end = len(self._buffer) if self._on_bytes else self._buffer.find(b"\n", 0, self._longest_line + 1)
            if end < 0:
                if len(self._buffer) > self._longest_line:
                    raise ChannelError("it sent an endless line")
                return
            piece = bytes(self._buffer[:end])
            del self._buffer[: end + 1]
            (self._on_bytes or self._on_line)(piece)


class AuthenticatingListener:
    """Asks every connection for a proof; whatever else comes is limited and dropped."""

    def __init__(
        self, loop: Loop, sock: socket.socket, most_pending: int, time_limit: float, on_answer: OnAnswer
    ) -> None:
        """`on_answer` gets a connection, its nonce and its answer: it takes it over, or raises ChannelError."""
        self.port = int(sock.getsockname()[1])
        self._loop = loop
        self._socket: Optional[socket.socket] = sock
        self._most_pending = most_pending
        self._time_limit = time_limit
        self._on_answer = on_answer
        self._pending: Dict[LineSocket, None] = {}  # that have proved nothing yet, the oldest first

    def open(self) -> None:
        """Begin to accept; earlier connections are waiting."""
        if self._socket is not None:
            self._loop.watch(self._socket.fileno(), self._accept)

    def close(self) -> None:
        """Accept no more connections."""
        if self._socket is not None:
            self._loop.unwatch(self._socket.fileno())
            self._socket.close()
            self._socket = None
        for line_socket in list(self._pending):
            self._reject(line_socket)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            if self._socket is None:
                return
            try:
                conn = self._socket.accept()[0]
            except OSError as error:
                if (
                    error.errno in NO_FREE_FILE
                ):  # who waits keeps the listener readable for as long as that lasts
                    self._loop.unwatch(self._socket.fileno())
                    self._loop.after(RETRY_DELAY, f"listener {id(self)}", self.open)
                return
            if len(self._pending) >= self._most_pending:
                self._reject(next(iter(self._pending)))
            conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._send_nonce(conn, make_nonce())

    def _send_nonce(self, conn: socket.socket, nonce: str) -> None:
        def on_line(line: bytes) -> None:
            answer = parse_object(line, UNPROVEN_LINE)
            line_socket.clear_timeout()
            self._pending.pop(line_socket, None)
            self._on_answer(line_socket, nonce, answer)

        line_socket = LineSocket(self._loop, conn, on_line, lambda _: self._reject(line_socket))
        self._pending[line_socket] = None
        line_socket.set_timeout("no proof", self._time_limit)
        line_socket.send_line({"nonce": nonce})

    def _reject(self, line_socket: LineSocket) -> None:
        self._pending.pop(line_socket, None)
        line_socket.close()


class AuthenticatingCaller:
    """The calling end: connects, answers the listener's nonce, and takes its proof."""

    def __init__(
        self,
        loop: Loop,
        answer: Callable[[str, str], HandshakeAnswer],
        on_proven: Callable[[LineSocket, Untrusted], None],
        on_close: OnClose,
    ) -> None:
        """`answer` gets the listener's nonce and ours; it gives our line, and the proof that has to come back."""
        self._loop = loop
        self._answer = answer
        self._on_proven = on_proven
        self._expected_proof = ""
        self._handshake_limit = 0.0
        self.connected_at: Optional[float] = None  # by the monotonic clock
        conn = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.line_socket = LineSocket(loop, conn, self._on_line, on_close)

    def connect(self, target: Tuple[str, int], source: str, limits: Tuple[float, float]) -> None:
        """Connect, from one address if that is given, within the first limit; the second is for each line."""
        conn, self._handshake_limit = self.line_socket.conn, limits[1]
        self.line_socket.set_timeout("no answer", limits[0])
        self._loop.watch_writable(conn.fileno(), self._on_connected)
        try:
            if source:
                conn.bind((source, 0))
            conn.connect(target)
        except BlockingIOError:
            pass
        except OSError as error:
            self.line_socket.fail(describe_os_error(error))

    def _on_connected(self) -> None:
        if self.connected_at is None:
            self.connected_at = time.monotonic()
            self._loop.unwatch_writable(self.line_socket.conn.fileno())
            self.line_socket.set_timeout("it accepts connections but does not answer", self._handshake_limit)

    def _on_line(self, line: bytes) -> None:
        self._on_connected()  # the line may be here before the turn in which that is noticed
        message = parse_object(line, UNPROVEN_LINE)
        if not self._expected_proof:
            fields, self._expected_proof = self._answer(read_nonce(message), make_nonce())
            self.line_socket.set_timeout(
                "it accepts connections but fails authentication", self._handshake_limit
            )
            self.line_socket.send_line(fields)
        elif is_same_proof(message.text("proof"), self._expected_proof):
            self.line_socket.clear_timeout()
            self._on_proven(self.line_socket, message)
        else:
            raise ChannelError("it does not have the token of this run")
