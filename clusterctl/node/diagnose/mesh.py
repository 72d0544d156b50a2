"""The mesh test on this node, and one connection of it.

One connection of the proof on the wire: who are you, then SIZE bytes both ways at once, then a byte for "all came".

Both sides prove the token of this check before anything large is sent. What has not proved it may say one short line.

The proof on the wire: this node listens on its training address and calls others, as a training would.

The client's orders come over stdin, after the probe's facts:
{"mesh": "listen", "name", "addresses": {rail: address}, "token", "ports", "master"}
    -> {"listening": {"ports": {rail: port}, "master_port"}} or {"problem"}; rail "" is the training address
{"mesh": "call", "peers": [{"name", "address", "port", "door", "rail"}]} -> {"ways": [...]}, see Caller.
The end of stdin ends all, and the kernel does after ALARM seconds: no listener stays behind.
"""

from __future__ import annotations

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
from ..runtime.sockets import prove, same

if TYPE_CHECKING:
    from ..runtime.stream import Stream


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


CONNECT_LIMIT = 2.5  # seconds; the kernel answers, and asks again after 1 s
GREET_LIMIT = 4.0  # seconds for a process that may be slow
CARRY_LIMIT = 2.5  # seconds without a byte
BACKLOG = 128
SPARE_GUESTS = 16
LONGEST_NAME = 128  # characters
LONGEST_NONCE = 64
MASTER = "master"  # the door that stands for torchrun's: no bulk there


class Door:
    """A listening socket, and those who came in by it."""

    def __init__(self, loop: Loop, sock: socket.socket, badge: Badge) -> None:
        self._loop = loop
        self._sock = sock
        self._badge = badge
        self._guests: Dict[Guest, None] = {}  # that have proved nothing yet, the oldest first
        self._friends: Dict[Guest, None] = {}
        loop.watch(sock.fileno(), self._accept)

    def close(self) -> None:
        """Let nobody in, and let go of all."""
        self._loop.forget(self._sock.fileno())
        self._sock.close()
        for guest in (*self._guests, *self._friends):
            guest.talk.close()

    def _accept(self) -> None:
        try:
            conn = self._sock.accept()[0]
        except OSError:
            return
        if len(self._guests) >= BACKLOG + SPARE_GUESTS:
            next(iter(self._guests)).talk.fail("too many")
        guest = Guest(self, self._loop, conn, self._badge)
        self._guests[guest] = None
        guest.greet()

    def trust(self, guest: Guest) -> None:
        """He is of this check."""
        self._guests.pop(guest, None)
        self._friends[guest] = None

    def forget(self, guest: Guest) -> None:
        """He has left."""
        self._guests.pop(guest, None)
        self._friends.pop(guest, None)


class Guest:
    """The listener's end of a connection: asks for the proof, then takes and gives the bulk."""

    def __init__(self, door: Door, loop: Loop, conn: socket.socket, badge: Badge) -> None:
        self._door = door
        self._badge = badge
        self._nonce = os.urandom(16).hex()
        self.talk = Talk(loop, conn, self._hear, lambda _: door.forget(self))

    def greet(self) -> None:
        """Ask who he is."""
        self.talk.listen()
        self.talk.expect("no proof", GREET_LIMIT)
        self.talk.say(nonce=self._nonce)

    def _hear(self, words: Untrusted) -> None:
        caller, nonce = words.text("name", LONGEST_NAME), words.text("nonce", LONGEST_NONCE)
        about = (caller, self._badge.name, self._nonce, nonce)
        if not same(words.text("proof"), self._badge.prove("I call", *about)):
            self.talk.fail("a stranger")
            return
        self._door.trust(self)
        self.talk.expect("nothing", CARRY_LIMIT)
        seen = self.talk.conn.getpeername()[0]
        self.talk.say(proof=self._badge.prove("I listen", *about), seen=seen)
        if words.flag("bulk") and not self.talk.closed:
            self.talk.carry(self._count)

    def _count(self) -> None:
        if self.talk.got == SIZE:
            self.talk.acknowledge()
        elif self.talk.got > SIZE:
            self.talk.fail("more than was agreed")


class Caller:
    """The calling end; its `report` tells of the way from here to a peer, and back.

    {"peer", "door", "rail", "step": "connect" | "greet" | "carry" | "done", "error", "stranger", "connect": seconds,
    "seconds": to the end of the bulk, "got": bytes of it, "own" and "seen": our address here and there, and what
    `measure` tells}
    """

    def __init__(
        self, loop: Loop, badge: Badge, address: str, peer: Dict[str, Any], told: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._badge = badge
        self._address = address
        self._peer = peer
        self._told = told
        self._nonce = os.urandom(16).hex()
        self._about = (badge.name, str(peer["name"]))
        self._greeting = ""
        self._began = time.monotonic()
        self._facts: Dict[str, Any] = {"step": "connect", "error": None, "stranger": False, "own": address}
        self._talk: Optional[Talk] = None
        self.report: Optional[Dict[str, Any]] = None

    def begin(self) -> None:
        """Connect from our training address."""
        conn = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._talk = Talk(self._loop, conn, self._hear, self._end)
        try:
            conn.bind((self._address, 0))
            conn.connect((self._peer["address"], self._peer["port"]))
        except BlockingIOError:
            pass
        except OSError as error:
            self._talk.fail(describe(error))
            return
        self._talk.expect("no answer", CONNECT_LIMIT)
        self._loop.watch_room(conn.fileno(), self._connected)

    def close(self) -> None:
        """Let go of it."""
        if self._talk is not None:
            self._talk.close()

    def _connected(self) -> None:
        talk = self._talk
        if talk is None:
            return
        self._loop.forget(talk.conn.fileno())
        number = talk.conn.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            talk.fail(os.strerror(number))
            return
        self._facts.update(step="greet", connect=self._passed())
        talk.expect("it connects, but nobody answers", GREET_LIMIT)
        talk.listen()

    def _hear(self, words: Untrusted) -> None:
        """Prove to the listener who we are, then hear his proof."""
        talk = self._talk
        if talk is None:
            return
        if not self._greeting:
            self._greeting = words.text("nonce", LONGEST_NONCE)
            if not self._greeting:
                talk.fail(STRANGER)
                return
            talk.expect("it connects, but does not prove who it is", GREET_LIMIT)
            about = (*self._about, self._greeting, self._nonce)
            proof = self._badge.prove("I call", *about)
            talk.say(
                name=self._badge.name, nonce=self._nonce, proof=proof, bulk=self._peer.get("door") != MASTER
            )
            return
        about = (*self._about, self._greeting, self._nonce)
        if not same(words.text("proof"), self._badge.prove("I listen", *about)):
            talk.fail(STRANGER)
            return
        self._facts.update(step="carry", seen=words.text("seen", LONGEST_NONCE))
        if self._peer.get("door") == MASTER:
            self._finish()
        else:
            talk.expect("no byte", CARRY_LIMIT)
            talk.carry(self._count)

    def _count(self) -> None:
        if self._talk is not None and self._talk.got > SIZE:  # with the byte for "all came"
            self._finish()

    def _finish(self) -> None:
        self._facts["step"] = "done"
        self._end(None)

    def _end(self, why: Optional[str]) -> None:
        talk = self._talk
        if self.report is not None or talk is None:
            return
        stranger = why == STRANGER
        facts = {**self._facts, **measure(talk.conn)} if not talk.closed else self._facts
        self.report = {
            **facts,
            "peer": self._peer["name"],
            "door": self._peer.get("door"),
            "rail": self._peer.get("rail", ""),
            "error": why,
            "stranger": stranger,
            "seconds": self._passed(),
            "got": min(talk.got, SIZE),
        }
        talk.close()
        self._told()

    def _passed(self) -> float:
        return round(time.monotonic() - self._began, 6)


ORDER_LIMIT = 60  # seconds for the first order: the slowest node's probe comes before it; nothing listens yet
ALARM = 30  # seconds from the first order to the end of this process, whatever happens
MAIN = ""  # the rail of the training address
PATIENCE = 5.0  # seconds for a client that does not read


def serve(stream: Stream) -> None:
    """Take part in one proof, as far as the client wants it."""
    try:
        frame = stream.receive(ORDER_LIMIT)
    except TimeoutError:
        return
    if frame is not None and frame[0].get("mesh") == "listen":
        signal.alarm(min(ALARM, int(frame[0].get("alarm") or ALARM)))  # its default is to end the process
        stream.patience = PATIENCE
        Mesh(stream, frame[0]).run()
        signal.alarm(0)


class Mesh:
    """This node's part: its doors, its calls, and the client's orders."""

    def __init__(self, stream: Stream, order: Dict[str, Any]) -> None:
        self._loop = Loop()
        self._stream = stream
        self._addresses: Dict[str, str] = order["addresses"]
        self._badge = Badge(str(order["name"]), bytes.fromhex(order["token"]))
        self._order = order
        self._doors: List[Door] = []
        self._calls: List[Caller] = []
        self._calling = False

    def run(self) -> None:
        """Serve until the client has enough."""
        try:
            self._stream.send(self._listen())
            self._loop.watch(self._stream.fileno(), self._obey)
            self._obey()
            self._loop.run()
        finally:
            for call in self._calls:
                call.close()
            for door in self._doors:
                door.close()

    def _listen(self) -> Dict[str, Any]:
        """Listen on the training address, and on those of further NICs as far as that can be done."""
        try:
            ports = {MAIN: self._open(listen(self._addresses[MAIN], [0]))}
            told: Dict[str, Any] = {"ports": ports}
            if self._order.get("master"):
                from ..runtime.sockets import candidates, ephemeral_range  # node 0's part alone

                free = candidates(self._order.get("ports"), ephemeral_range(), os.urandom(1)[0] / 256)
                told["master_port"] = self._open(listen(self._addresses[MAIN], free))
        except OSError as error:
            return {"problem": describe(error)}
        for rail in self._addresses.keys() - {MAIN}:
            with suppress(OSError):
                ports[rail] = self._open(listen(self._addresses[rail], [0]))
        return {"listening": told}

    def _open(self, sock: socket.socket) -> int:
        self._doors.append(Door(self._loop, sock, self._badge))
        return int(sock.getsockname()[1])

    def _obey(self) -> None:
        for order, _ in self._stream.arrived():
            if order.get("mesh") == "call":
                self._call(order["peers"])
        if self._stream.ended:
            self._loop.stop()

    def _call(self, peers: List[Dict[str, Any]]) -> None:
        self._calls = [
            Caller(self._loop, self._badge, self._addresses[peer.get("rail", MAIN)], peer, self._tell)
            for peer in peers
        ]
        for call in self._calls:
            call.begin()
        self._calling = True
        self._tell()

    def _tell(self) -> None:
        """Report when the last call has ended; those who call us may still be at it."""
        if self._calling and all(call.report is not None for call in self._calls):
            self._calling = False
            self._stream.send({"ways": [call.report for call in self._calls]})


def listen(address: str, ports: Any) -> socket.socket:
    """Listen on one address, on the first of the ports that is free; 0 lets the kernel pick."""
    refusal = OSError("every port is taken")
    for port in ports:
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            sock.bind((address, port))
            sock.listen(BACKLOG)
        except OSError as error:
            sock.close()
            refusal = error
        else:
            sock.setblocking(False)
            return sock
    raise refusal
