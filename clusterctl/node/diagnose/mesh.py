"""The mesh test on this node: it listens on its training address and calls others, as a training would.

A connection of it is proofs of the token, SIZE bytes both ways, a byte for "all came". The client's orders, and the
answers, come and go after the probe's facts: see protocol/messages/network.py. The end of stdin ends all, and the
kernel does after ALARM seconds: no listener stays behind.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
import struct
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Union, cast

from ...protocol.messages.checks import DONE, MAIN_RAIL, MASTER, MeshPath, MeshPorts
from ...protocol.messages.record import to_json
from ...protocol.untrusted import Untrusted
from ..runtime.connections import (
    UNPROVEN_LINE,
    AuthenticatingCaller,
    AuthenticatingListener,
    ChannelError,
    LineSocket,
    describe_os_error,
    is_same_proof,
    listen,
    prove,
    read_nonce,
)
from ..runtime.event_loop import Loop

if TYPE_CHECKING:
    from ...protocol.messages.network import (
        HandshakeLine,
        MeshCallOrder,
        MeshListen,
        MeshPeer,
        MeshProblem,
    )
    from ...protocol.messages.verbs import PlainNodeFrame
    from ..runtime.connections import HandshakeAnswer
    from ..runtime.stream import Stream


SIZE = 256 << 10  # bytes each way: far more than one packet, so that a path that drops large ones shows
MAX_BULK = 10.0  # seconds for the bulk both ways, also where a byte comes now and then
ALL_RECEIVED = b"!"
WRONG_PEER = "another program answers there"
TCP_INFO_SIZE = 192
# Where struct tcp_info has them (linux/tcp.h); the kernel only ever appends to it.
LOST_OFFSET, RTT_OFFSET, ACKED_OFFSET, MIN_RTT_OFFSET = 100, 68, 120, 148
CONNECT_LIMIT = 2.5  # seconds; the kernel answers, and asks again after 1 s
HANDSHAKE_LIMIT = 4.0  # seconds for a process that may be slow
BULK_LIMIT = 2.5  # seconds without a byte
MAX_PENDING = 144  # that have proved nothing yet
MAX_NAME = 128  # characters
ORDER_LIMIT = 60  # seconds for the first order: the slowest node's probe comes before it; nothing listens yet
ALARM_SECONDS = 30  # seconds from the first order to the end of this process, whatever happens
CLIENT_TIMEOUT = 5.0  # seconds for a client that does not read


class Credentials:
    """The name of this node in the check, and the token that only its nodes know."""

    def __init__(self, name: str, token: bytes) -> None:
        self.name = name
        self._token = token

    def prove(self, purpose: str, caller: str, listener: str, *nonces: str) -> str:
        """Prove to know the token, for one purpose and one connection."""
        return prove(self._token, purpose, caller, listener, *nonces)


def read_tcp_info(conn: socket.socket) -> Dict[str, Any]:
    """Read what the kernel knows of a connection; an older one knows less."""
    stats: Dict[str, Any] = {}
    try:
        stats["mss"] = conn.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
        info = conn.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_SIZE)
        (stats["rtt"],) = struct.unpack_from("=I", info, RTT_OFFSET)
        (stats["lost"],) = struct.unpack_from("=I", info, LOST_OFFSET)
        (stats["acked"],) = struct.unpack_from("=Q", info, ACKED_OFFSET)
        (stats["least_rtt"],) = struct.unpack_from("=I", info, MIN_RTT_OFFSET)
    except (OSError, struct.error):
        pass
    return stats


class Bulk:
    """SIZE bytes both ways at once over a proven connection; `on_bytes` is called for each change of `received`."""

    def __init__(self, loop: Loop, line_socket: LineSocket, on_bytes: Callable[[], None]) -> None:
        self.received = 0
        self._on_bytes = on_bytes
        late = f"the data did not arrive within {MAX_BULK:g} s"
        loop.after(MAX_BULK, f"bulk {id(self)}", lambda: line_socket.fail(late))
        line_socket.set_timeout("no byte", BULK_LIMIT, idle=True)
        line_socket.receive_bytes(self._count)
        line_socket.send(bytes(SIZE))

    def _count(self, piece: bytes) -> None:
        self.received += len(piece)
        self._on_bytes()


class MeshListener:
    """The called end: takes and gives the bulk with everybody who proves the token."""

    def __init__(self, loop: Loop, sock: socket.socket, credentials: Credentials) -> None:
        self._loop = loop
        self._credentials = credentials
        self._trusted: Dict[LineSocket, None] = {}
        self._listener = AuthenticatingListener(loop, sock, MAX_PENDING, HANDSHAKE_LIMIT, self._on_answer)
        self._listener.open()

    def close(self) -> None:
        """Close the listener and all connections."""
        self._listener.close()
        for line_socket in list(self._trusted):
            line_socket.close()

    def _on_answer(self, line_socket: LineSocket, nonce: str, answer: Untrusted) -> None:
        """Accept a caller that proves the token; one at the master's port needs nothing more."""
        identity = (
            answer.text("name", MAX_NAME),
            self._credentials.name,
            nonce,
            read_nonce(answer),
        )
        if not is_same_proof(answer.text("proof"), self._credentials.prove("I call", *identity)):
            raise ChannelError("a stranger")
        self._trusted[line_socket] = None
        line_socket.trust(_refuse, lambda _: self._trusted.pop(line_socket, None), UNPROVEN_LINE)
        line_socket.set_timeout("nothing", BULK_LIMIT)
        proof = self._credentials.prove("I listen", *identity)
        answered: HandshakeLine = {"proof": proof, "seen": _peer_address(line_socket.conn)}
        line_socket.send_line(answered)
        if answer.flag("bulk") and not line_socket.closed:
            self._exchange_bulk(line_socket)

    def _exchange_bulk(self, line_socket: LineSocket) -> None:
        def on_bytes() -> None:
            if bulk.received == SIZE:
                line_socket.send(ALL_RECEIVED)
            elif bulk.received > SIZE:
                line_socket.fail("more data than agreed")

        bulk = Bulk(self._loop, line_socket, on_bytes)


def _refuse(_: bytes) -> None:
    raise ChannelError("more data than agreed")


def _peer_address(conn: socket.socket) -> str:
    try:
        return str(conn.getpeername()[0])
    except OSError as error:  # it has left meanwhile
        raise ChannelError(describe_os_error(error)) from None


class Caller:
    """The calling end; its `report` has what is known of the path from here to a peer, and back."""

    def __init__(
        self,
        loop: Loop,
        credentials: Credentials,
        address: str,
        peer: MeshPeer,
        on_report: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._credentials = credentials
        self._address = address
        self._peer = peer
        self._on_report = on_report
        self._began = 0.0
        self._seen: Optional[str] = None  # our address there
        self._step: Optional[str] = None  # once the other side has proved the token
        self._bulk: Optional[Bulk] = None
        self._caller = AuthenticatingCaller(loop, self._answer, self._on_proven, self._report_end)
        self.report: Optional[MeshPath] = None

    def start(self) -> None:
        """Connect from our training address."""
        self._began = time.monotonic()
        target = (self._peer["address"], self._peer["port"])
        self._caller.connect(target, self._address, (CONNECT_LIMIT, HANDSHAKE_LIMIT))

    def close(self) -> None:
        """Close the connection."""
        self._caller.line_socket.close()

    def _answer(self, listener_nonce: str, own_nonce: str) -> HandshakeAnswer:
        """Prove to the listener who we are."""
        name = self._credentials.name
        identity = (name, str(self._peer["name"]), listener_nonce, own_nonce)
        proof = self._credentials.prove("I call", *identity)
        bulk = self._peer["listener"] != MASTER  # the listener that stands for torchrun's: no bulk there
        fields: HandshakeLine = {"name": name, "nonce": own_nonce, "proof": proof, "bulk": bulk}
        return fields, self._credentials.prove("I listen", *identity)

    def _on_proven(self, line_socket: LineSocket, message: Untrusted) -> None:
        self._step = "transfer"
        self._seen = message.text("seen", MAX_NAME)
        if self._peer["listener"] == MASTER:
            self._finish()
        else:
            self._bulk = Bulk(self._loop, line_socket, self._on_bytes)

    def _on_bytes(self) -> None:
        if self._bulk is not None and self._bulk.received > SIZE:  # with the byte for "all came"
            self._finish()

    def _finish(self) -> None:
        self._step = DONE
        self._report_end(None)
        self.close()

    def _report_end(self, why: Optional[str]) -> None:
        """Write the report, while the kernel still knows the connection."""
        if self.report is not None:
            return
        caller, unproven = self._caller, self._caller.line_socket.malformed
        began, connected = self._began, caller.connected_at
        self.report = MeshPath(
            error=WRONG_PEER if unproven else why,
            unproven=unproven,
            own=self._address,
            step=self._step or ("connect" if connected is None else "greet"),
            peer=self._peer["name"],
            listener=self._peer["listener"],
            rail=self._peer["rail"],
            connect=None if connected is None else round(connected - began, 6),
            seconds=round(time.monotonic() - began, 6),
            got=min(self._bulk.received, SIZE) if self._bulk is not None else 0,
            seen=self._seen,
            **read_tcp_info(caller.line_socket.conn),
        )
        self._on_report()


def serve(stream: Stream) -> None:
    """Take part in one proof, as far as the client wants it."""
    try:
        frame = stream.receive(ORDER_LIMIT)
    except TimeoutError:
        return
    order = cast("MeshListen", frame[0] if frame is not None else {})
    if order.get("mesh") == "listen":
        # its default is to end the process
        signal.alarm(min(ALARM_SECONDS, int(order.get("alarm") or ALARM_SECONDS)))
        stream.send_timeout = CLIENT_TIMEOUT
        try:
            Mesh(stream, order).run()
        finally:
            signal.alarm(0)  # the process may serve another verb


class Mesh:
    """This node's part: its listeners, its calls, and the client's orders."""

    def __init__(self, stream: Stream, order: MeshListen) -> None:
        self._loop = Loop()
        self._stream = stream
        self._addresses = order["addresses"]
        self._credentials = Credentials(str(order["name"]), bytes.fromhex(order["token"]))
        self._order = order
        self._listeners: List[MeshListener] = []
        self._callers: List[Caller] = []
        self._calling = False

    def run(self) -> None:
        """Serve until the client has enough."""
        try:
            self._stream.answer(self._listen())
            self._loop.watch(self._stream.fileno(), self._on_orders)
            self._on_orders()
            self._loop.run()
        finally:
            for caller in self._callers:
                caller.close()
            for listener in self._listeners:
                listener.close()

    def _listen(self) -> Union[PlainNodeFrame, MeshProblem]:
        """Listen on the training address, and on those of further NICs as far as that can be done."""
        try:
            ports = {MAIN_RAIL: self._add_listener(listen(self._addresses[MAIN_RAIL], [0]))}
            master_port = None
            if self._order["master"]:
                from ..runtime.ports import candidates, ephemeral_range  # node 0's part alone

                free = candidates(self._order["ports"], ephemeral_range(), os.urandom(1)[0] / 256)
                master_port = self._add_listener(self._listen_as_master(tuple(free)))
        except PortsTaken as error:
            return {"problem": str(error), "taken": True}
        except OSError as error:
            return {"problem": describe_os_error(error)}
        for rail in self._addresses.keys() - {MAIN_RAIL}:
            with suppress(OSError):
                ports[rail] = self._add_listener(listen(self._addresses[rail], [0]))
        return {"listening": to_json(MeshPorts(ports=ports, master_port=master_port))}

    def _listen_as_master(self, ports: Sequence[int]) -> socket.socket:
        try:
            return listen(self._addresses[MAIN_RAIL], ports)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or not self._order["ports"]:
                raise
            first, last = self._order["ports"]
            raise PortsTaken(f"all of `ports: {first}-{last}` are in use") from None

    def _add_listener(self, sock: socket.socket) -> int:
        self._listeners.append(MeshListener(self._loop, sock, self._credentials))
        return int(sock.getsockname()[1])

    def _on_orders(self) -> None:
        for frame, _ in self._stream.read_available():
            order = cast("MeshCallOrder", frame)
            if order.get("mesh") == "call":
                self._start_callers(order["peers"])
        if self._stream.ended:
            self._loop.stop()

    def _start_callers(self, peers: List[MeshPeer]) -> None:
        self._callers = [
            Caller(
                self._loop,
                self._credentials,
                self._addresses[peer["rail"]],
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
            self._stream.answer({"paths": to_json([caller.report for caller in self._callers])})


class PortsTaken(Exception):
    """No port of the inventory's range is free."""
