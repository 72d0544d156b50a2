"""The mesh test on this node, and one connection of it.

One connection of the proof on the wire: who are you, then SIZE bytes both ways at once, then a byte for "all came".

Both sides prove the token of this check before anything large is sent. What has not proved it may say one short line.

The proof on the wire: this node listens on its training address and calls others, as a training would.

The client's orders come over stdin, after the probe's facts:
{"mesh": "listen", "name", "addresses": {rail: address}, "token", "ports", "master"}
    -> {"listening": {"ports": {rail: port}, "master_port"}} or {"problem", "taken"}; rail "" is the training address,
       "taken": no port of "ports" is free for the master
{"mesh": "call", "peers": [{"name", "address", "port", "door", "rail"}]} -> {"ways": [...]}, see Caller.
The end of stdin ends all, and the kernel does after ALARM seconds: no listener stays behind.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import struct
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional

from ...protocol.untrusted import MalformedError, Untrusted, parse_object
from ..runtime.event_loop import Loop
from ..runtime.sockets import is_same_proof, prove

if TYPE_CHECKING:
    from ..runtime.stream import Stream


SIZE = 256 << 10  # bytes each way: far more than one packet, so that a path that drops large ones shows
BLOCK = bytes(32 << 10)
LONGEST_LINE = 1 << 10
LONGEST_BULK = 10.0  # seconds for the bulk both ways, also where a byte comes now and then
ALL_RECEIVED = b"!"
WRONG_PEER = "somebody else answers there"
TCP_INFO_SIZE = 192
# Where struct tcp_info has them (linux/tcp.h); the kernel only ever appends to it.
LOST_OFFSET, RTT_OFFSET, ACKED_OFFSET, LEAST_RTT_OFFSET = 100, 68, 120, 148


class Credentials:
    """Who we are in this check, and the token that only its nodes know."""

    def __init__(self, name: str, token: bytes) -> None:
        self.name = name
        self._token = token

    def prove(self, purpose: str, caller: str, listener: str, *nonces: str) -> str:
        """Prove to know the token, for one purpose and one connection."""
        return prove(self._token, purpose, caller, listener, *nonces)


class MeshConnection:
    """Lines and then bulk over a socket that never waits; whatever goes wrong ends it with one call of `on_close`."""

    def __init__(
        self,
        loop: Loop,
        conn: socket.socket,
        on_line: Callable[[Untrusted], None],
        on_close: Callable[[str], None],
    ) -> None:
        self.conn = conn
        self.closed = False
        self.received = 0  # bytes of bulk
        self._loop = loop
        self._on_line = on_line
        self._on_close = on_close
        self._timer_name = "talk %s" % os.urandom(8).hex()
        self._timeout = ("", 0.0)
        self._buffer = bytearray()
        self._unsent = bytearray()
        self._bulk_left = 0  # bytes of it that are still to be sent
        self._trailer = b""  # what stands behind it
        self._on_bulk: Optional[Callable[[], None]] = None
        conn.setblocking(False)

    def start_reading(self) -> None:
        """Begin to hear."""
        self.conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._loop.watch(self.conn.fileno(), self._read)

    def set_timeout(self, missing: str, seconds: float) -> None:
        """End it after so long without the next line, or once there is bulk when nothing moves for so long."""
        self._timeout = (missing, seconds)
        self._restart_timeout()

    def send_line(self, **fields: object) -> None:
        """Send a line."""
        self._unsent += json.dumps(fields).encode("ascii") + b"\n"
        self._write()

    def send_bulk(self, on_bulk: Callable[[], None]) -> None:
        """Send the bulk; from here on bytes are counted, and `on_bulk` hears of each change."""
        self._on_bulk = on_bulk
        self._bulk_left = SIZE
        late = "no end of the data within %g s" % LONGEST_BULK
        self._loop.after(LONGEST_BULK, self._timer_name + " carry", lambda: self.fail(late))
        self._write()

    def acknowledge(self) -> None:
        """Say that all came, behind our own bulk."""
        self._trailer = ALL_RECEIVED
        self._write()

    def fail(self, why: str) -> None:
        """Say why, while there is still something to measure, and end it."""
        if not self.closed:
            self._on_close(why)
            self.close()

    def close(self) -> None:
        """End it."""
        if not self.closed:
            self.closed = True
            self._loop.cancel(self._timer_name)
            self._loop.cancel(self._timer_name + " carry")
            self._loop.unwatch(self.conn.fileno())
            self.conn.close()

    def _restart_timeout(self) -> None:
        missing, seconds = self._timeout
        self._loop.after(seconds, self._timer_name, lambda: self.fail("%s within %g s" % (missing, seconds)))

    def _count_progress(self) -> None:
        """Count a byte as a sign of life; not before the bulk, or one now and then would hold us for ever."""
        if self._on_bulk is not None:
            self._restart_timeout()

    def _write(self) -> None:
        """Send lines, bulk, and what stands behind the bulk, as far as there is room."""
        try:
            while not self.closed and (self._unsent or self._bulk_left or self._trailer):
                self._send_some()
                self._count_progress()
        except BlockingIOError:
            self._loop.watch_writable(self.conn.fileno(), self._write)
            return
        except OSError as error:
            self.fail(describe_os_error(error))
            return
        if not self.closed:
            self._loop.unwatch_writable(self.conn.fileno())

    def _send_some(self) -> None:
        if self._unsent:
            del self._unsent[: self.conn.send(bytes(self._unsent))]
        elif self._bulk_left:
            self._bulk_left -= self.conn.send(BLOCK[: self._bulk_left])
        else:
            self._trailer = self._trailer[self.conn.send(self._trailer) :]

    def _read(self) -> None:
        try:
            chunk = self.conn.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError as error:
            self.fail(describe_os_error(error))
            return
        if not chunk:
            self.fail("the other side closed the connection")
            return
        self._count_progress()
        if self._on_bulk is None:
            chunk = self._read_lines(chunk)
        if self._on_bulk is not None and chunk and not self.closed:
            self.received += len(chunk)
            self._on_bulk()

    def _read_lines(self, chunk: bytes) -> bytes:
        """Hand over lines until one of them begins the bulk; gives what belongs to that."""
        self._buffer += chunk
        while self._on_bulk is None and not self.closed:
            line, newline, rest = bytes(self._buffer).partition(b"\n")
            if len(line) > LONGEST_LINE:
                self.fail(WRONG_PEER)
            if not newline or self.closed:
                return b""
            self._buffer = bytearray(rest)
            try:
                self._on_line(parse_object(line, LONGEST_LINE))
            except MalformedError:
                self.fail(WRONG_PEER)
            except OSError as error:  # it has left meanwhile
                self.fail(describe_os_error(error))
        return bytes(self._buffer)


def read_tcp_info(conn: socket.socket) -> Dict[str, Any]:
    """Tell what the kernel knows of a connection: segment size, round trips in microseconds, packets sent again."""
    stats: Dict[str, Any] = {}
    try:
        stats["mss"] = conn.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
        info = conn.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_SIZE)
    except OSError:
        return stats
    for name, offset, field_format in (
        ("rtt", RTT_OFFSET, "=I"),
        ("lost", LOST_OFFSET, "=I"),
        ("acked", ACKED_OFFSET, "=Q"),
        ("least_rtt", LEAST_RTT_OFFSET, "=I"),
    ):
        if len(info) >= offset + struct.calcsize(field_format):
            stats[name] = struct.unpack_from(field_format, info, offset)[0]
    return stats


def describe_os_error(error: OSError) -> str:
    """Say in words what the system says."""
    return os.strerror(error.errno) if error.errno else str(error)


CONNECT_LIMIT = 2.5  # seconds; the kernel answers, and asks again after 1 s
HANDSHAKE_LIMIT = 4.0  # seconds for a process that may be slow
BULK_LIMIT = 2.5  # seconds without a byte
BACKLOG = 128
SPARE_PENDING = 16
LONGEST_NAME = 128  # characters
LONGEST_NONCE = 64
MASTER = "master"  # the door that stands for torchrun's: no bulk there


class MeshListener:
    """A listening socket, and those who came in by it."""

    def __init__(self, loop: Loop, sock: socket.socket, credentials: Credentials) -> None:
        self._loop = loop
        self._sock = sock
        self._credentials = credentials
        self._pending: Dict[IncomingConnection, None] = {}  # that have proved nothing yet, the oldest first
        self._trusted: Dict[IncomingConnection, None] = {}
        loop.watch(sock.fileno(), self._accept)

    def close(self) -> None:
        """Let nobody in, and let go of all."""
        self._loop.unwatch(self._sock.fileno())
        self._sock.close()
        for connection in (*self._pending, *self._trusted):
            connection.connection.close()

    def _accept(self) -> None:
        try:
            conn = self._sock.accept()[0]
        except OSError:
            return
        if len(self._pending) >= BACKLOG + SPARE_PENDING:
            next(iter(self._pending)).connection.fail("too many")
        connection = IncomingConnection(self, self._loop, conn, self._credentials)
        self._pending[connection] = None
        connection.send_nonce()

    def trust(self, connection: IncomingConnection) -> None:
        """He is of this check."""
        self._pending.pop(connection, None)
        self._trusted[connection] = None

    def remove(self, connection: IncomingConnection) -> None:
        """He has left."""
        self._pending.pop(connection, None)
        self._trusted.pop(connection, None)


class IncomingConnection:
    """The listener's end of a connection: asks for the proof, then takes and gives the bulk."""

    def __init__(
        self, listener: MeshListener, loop: Loop, conn: socket.socket, credentials: Credentials
    ) -> None:
        self._listener = listener
        self._credentials = credentials
        self._nonce = os.urandom(16).hex()
        self.connection = MeshConnection(loop, conn, self._on_proof, lambda _: listener.remove(self))

    def send_nonce(self) -> None:
        """Ask who he is."""
        self.connection.start_reading()
        self.connection.set_timeout("no proof", HANDSHAKE_LIMIT)
        self.connection.send_line(nonce=self._nonce)

    def _on_proof(self, message: Untrusted) -> None:
        caller, nonce = message.text("name", LONGEST_NAME), message.text("nonce", LONGEST_NONCE)
        identity = (caller, self._credentials.name, self._nonce, nonce)
        if not is_same_proof(message.text("proof"), self._credentials.prove("I call", *identity)):
            self.connection.fail("a stranger")
            return
        self._listener.trust(self)
        self.connection.set_timeout("nothing", BULK_LIMIT)
        address = self.connection.conn.getpeername()[0]
        self.connection.send_line(proof=self._credentials.prove("I listen", *identity), seen=address)
        if message.flag("bulk") and not self.connection.closed:
            self.connection.send_bulk(self._on_bulk)

    def _on_bulk(self) -> None:
        if self.connection.received == SIZE:
            self.connection.acknowledge()
        elif self.connection.received > SIZE:
            self.connection.fail("more than was agreed")


class Caller:
    """The calling end; its `report` tells of the way from here to a peer, and back.

    {"peer", "door", "rail", "step": "connect" | "greet" | "carry" | "done", "error", "stranger", "connect": seconds,
    "seconds": to the end of the bulk, "got": bytes of it, "own" and "seen": our address here and there, and what
    `read_tcp_info` tells}
    """

    def __init__(
        self,
        loop: Loop,
        credentials: Credentials,
        address: str,
        peer: Dict[str, Any],
        on_report: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._credentials = credentials
        self._address = address
        self._peer = peer
        self._on_report = on_report
        self._nonce = os.urandom(16).hex()
        self._names = (credentials.name, str(peer["name"]))
        self._listener_nonce = ""
        self._began = time.monotonic()
        self._facts: Dict[str, Any] = {"step": "connect", "error": None, "stranger": False, "own": address}
        self._connection: Optional[MeshConnection] = None
        self.report: Optional[Dict[str, Any]] = None

    def start(self) -> None:
        """Connect from our training address."""
        conn = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._connection = MeshConnection(self._loop, conn, self._on_line, self._report_end)
        try:
            conn.bind((self._address, 0))
            conn.connect((self._peer["address"], self._peer["port"]))
        except BlockingIOError:
            pass
        except OSError as error:
            self._connection.fail(describe_os_error(error))
            return
        self._connection.set_timeout("no answer", CONNECT_LIMIT)
        self._loop.watch_writable(conn.fileno(), self._on_connected)

    def close(self) -> None:
        """Let go of it."""
        if self._connection is not None:
            self._connection.close()

    def _on_connected(self) -> None:
        connection = self._connection
        if connection is None:
            return
        self._loop.unwatch(connection.conn.fileno())
        number = connection.conn.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            connection.fail(os.strerror(number))
            return
        self._facts.update(step="greet", connect=self._elapsed())
        connection.set_timeout("it connects, but nobody answers", HANDSHAKE_LIMIT)
        connection.start_reading()

    def _on_line(self, message: Untrusted) -> None:
        """Prove to the listener who we are, then hear his proof."""
        connection = self._connection
        if connection is None:
            return
        if not self._listener_nonce:
            self._listener_nonce = message.text("nonce", LONGEST_NONCE)
            if not self._listener_nonce:
                connection.fail(WRONG_PEER)
                return
            connection.set_timeout("it connects, but does not prove who it is", HANDSHAKE_LIMIT)
            identity = (*self._names, self._listener_nonce, self._nonce)
            proof = self._credentials.prove("I call", *identity)
            connection.send_line(
                name=self._credentials.name,
                nonce=self._nonce,
                proof=proof,
                bulk=self._peer.get("door") != MASTER,
            )
            return
        identity = (*self._names, self._listener_nonce, self._nonce)
        if not is_same_proof(message.text("proof"), self._credentials.prove("I listen", *identity)):
            connection.fail(WRONG_PEER)
            return
        self._facts.update(step="carry", seen=message.text("seen", LONGEST_NONCE))
        if self._peer.get("door") == MASTER:
            self._finish()
        else:
            connection.set_timeout("no byte", BULK_LIMIT)
            connection.send_bulk(self._on_bulk)

    def _on_bulk(self) -> None:
        if self._connection is not None and self._connection.received > SIZE:  # with the byte for "all came"
            self._finish()

    def _finish(self) -> None:
        self._facts["step"] = "done"
        self._report_end(None)

    def _report_end(self, why: Optional[str]) -> None:
        connection = self._connection
        if self.report is not None or connection is None:
            return
        stranger = why == WRONG_PEER
        facts = {**self._facts, **read_tcp_info(connection.conn)} if not connection.closed else self._facts
        self.report = {
            **facts,
            "peer": self._peer["name"],
            "door": self._peer.get("door"),
            "rail": self._peer.get("rail", ""),
            "error": why,
            "stranger": stranger,
            "seconds": self._elapsed(),
            "got": min(connection.received, SIZE),
        }
        connection.close()
        self._on_report()

    def _elapsed(self) -> float:
        return round(time.monotonic() - self._began, 6)


ORDER_LIMIT = 60  # seconds for the first order: the slowest node's probe comes before it; nothing listens yet
ALARM_SECONDS = 30  # seconds from the first order to the end of this process, whatever happens
MAIN_RAIL = ""  # the rail of the training address
CLIENT_TIMEOUT = 5.0  # seconds for a client that does not read


def serve(stream: Stream) -> None:
    """Take part in one proof, as far as the client wants it."""
    try:
        frame = stream.receive(ORDER_LIMIT)
    except TimeoutError:
        return
    if frame is not None and frame[0].get("mesh") == "listen":
        # its default is to end the process
        signal.alarm(min(ALARM_SECONDS, int(frame[0].get("alarm") or ALARM_SECONDS)))
        stream.send_timeout = CLIENT_TIMEOUT
        Mesh(stream, frame[0]).run()
        signal.alarm(0)


class Mesh:
    """This node's part: its doors, its calls, and the client's orders."""

    def __init__(self, stream: Stream, order: Dict[str, Any]) -> None:
        self._loop = Loop()
        self._stream = stream
        self._addresses: Dict[str, str] = order["addresses"]
        self._credentials = Credentials(str(order["name"]), bytes.fromhex(order["token"]))
        self._order = order
        self._listeners: List[MeshListener] = []
        self._callers: List[Caller] = []
        self._calling = False

    def run(self) -> None:
        """Serve until the client has enough."""
        try:
            self._stream.send(self._listen())
            self._loop.watch(self._stream.fileno(), self._on_orders)
            self._on_orders()
            self._loop.run()
        finally:
            for caller in self._callers:
                caller.close()
            for listener in self._listeners:
                listener.close()

    def _listen(self) -> Dict[str, Any]:
        """Listen on the training address, and on those of further NICs as far as that can be done."""
        try:
            ports = {MAIN_RAIL: self._add_listener(listen(self._addresses[MAIN_RAIL], [0]))}
            listening: Dict[str, Any] = {"ports": ports}
            if self._order.get("master"):
                from ..runtime.sockets import candidates, ephemeral_range  # node 0's part alone

                free = candidates(self._order.get("ports"), ephemeral_range(), os.urandom(1)[0] / 256)
                listening["master_port"] = self._add_listener(self._listen_as_master(list(free)))
        except PortsTaken as error:
            return {"problem": str(error), "taken": True}
        except OSError as error:
            return {"problem": describe_os_error(error)}
        for rail in self._addresses.keys() - {MAIN_RAIL}:
            with suppress(OSError):
                ports[rail] = self._add_listener(listen(self._addresses[rail], [0]))
        return {"listening": listening}

    def _listen_as_master(self, ports: List[int]) -> socket.socket:
        try:
            return listen(self._addresses[MAIN_RAIL], ports)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or not self._order.get("ports"):
                raise
            first, last = self._order["ports"]
            raise PortsTaken(f"all of `ports: {first}-{last}` are in use") from None

    def _add_listener(self, sock: socket.socket) -> int:
        self._listeners.append(MeshListener(self._loop, sock, self._credentials))
        return int(sock.getsockname()[1])

    def _on_orders(self) -> None:
        for order, _ in self._stream.read_available():
            if order.get("mesh") == "call":
                self._start_callers(order["peers"])
        if self._stream.ended:
            self._loop.stop()

    def _start_callers(self, peers: List[Dict[str, Any]]) -> None:
        self._callers = [
            Caller(
                self._loop,
                self._credentials,
                self._addresses[peer.get("rail", MAIN_RAIL)],
                peer,
                self._report,
            )
            for peer in peers
        ]
        for caller in self._callers:
            caller.start()
        self._calling = True
        self._report()

    def _report(self) -> None:
        """Report when the last call has ended; those who call us may still be at it."""
        if self._calling and all(caller.report is not None for caller in self._callers):
            self._calling = False
            self._stream.send({"ways": [caller.report for caller in self._callers]})


class PortsTaken(Exception):
    """No port of the inventory's range is free."""


def listen(address: str, ports: Any) -> socket.socket:
    """Listen on one address, on the first of the ports that is free; 0 lets the kernel pick."""
    last_error = OSError("every port is taken")
    for port in ports:
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            sock.bind((address, port))
            sock.listen(BACKLOG)
        except OSError as error:
            sock.close()
            last_error = error
        else:
            sock.setblocking(False)
            return sock
    raise last_error
