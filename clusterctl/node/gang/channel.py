"""Authenticated messages over a socket, and its two ends: a peer's connector, and the hub's listener.

Each end proves the run's token to the other; then every line carries a proof. The connector tries again until a
deadline, the listener accepts one connection for each slot.

A line is `NUMBER PROOF MORE TEXT`: its number in this direction, HMAC-SHA256 over all the rest, `+` when the message
goes on in the next line or `.`, and a piece of the message's JSON. The keys differ by direction and connection, so a
line counts once, in its place, from one side: nothing can be replayed or reflected.

A channel hands over nothing but messages that `protocol/messages/gang.py` has read: this is the one place where an
agent takes in what another agent has written.
"""

from __future__ import annotations

import hmac
import resource
import socket
import time
from hashlib import sha256
from typing import TYPE_CHECKING, Callable, Dict, Iterator, List, NamedTuple, Optional

from ...protocol.messages.gang import TO_HUB, TO_PEER, Bounds, Form, Message, read_message
from ...protocol.ranks import Slot
from ...protocol.untrusted import MalformedError, Untrusted, parse_object
from ..runtime.connections import (
    AuthenticatingCaller,
    AuthenticatingListener,
    ChannelError,
    LineSocket,
    OnClose,
    describe_os_error,
    is_same_proof,
    listen,
    port_range,
    prove,
    read_nonce,
)
from ..runtime.event_loop import Loop
from ..runtime.stream import VerbError
from .limits import read_bounds

if TYPE_CHECKING:
    from ...protocol.messages.files import Spec
    from ...protocol.messages.network import HandshakeLine
    from ..runtime.connections import HandshakeAnswer


MAX_LINE = 64 << 10  # bytes
SIGNED_PIECE = 48 << 10  # characters of a message in one line
MAX_MESSAGE = 4 << 20  # bytes
JOIN_LIMIT = 10.0  # seconds to reach the hub, which may be busy with others
TRY_LIMIT = 5.0  # seconds of one try, up to the hub's welcome
RETRY_PAUSE = 0.2
TIMER = "join"
HANDSHAKE_LIMIT = 5.0  # seconds to prove the token
SPARE_PENDING = 8  # connections at once that prove nothing yet, beyond one for each node
OWN_FILES = 256  # what an agent has open beside its peers' connections, with room


class Handshake(NamedTuple):
    """What both sides of one connection know when they prove the token to each other."""

    run_id: str
    slot: Slot
    node: str
    hub_nonce: str
    peer_nonce: str

    def prove(self, token: bytes, purpose: str) -> str:
        """Prove to know the token, for one purpose and this meeting only."""
        return prove(token, purpose, *self)


class SignedLines:
    """One direction of a connection."""

    def __init__(self, key: str) -> None:
        self._key = key.encode("ascii")
        self._count = 0
        self._pieces: List[str] = []
        self._length = 0

    def sign(self, text: str) -> Iterator[bytes]:
        """Render a message that is written as JSON."""
        pieces = [text[position : position + SIGNED_PIECE] for position in range(0, len(text), SIGNED_PIECE)]
        for position, piece in enumerate(pieces, 1):
            payload = f"{'.' if position == len(pieces) else '+'} {piece}"
            yield f"{self._count} {self._hmac(payload)} {payload}\n".encode("ascii")
            self._count += 1

    def verify(self, line: bytes) -> Optional[Untrusted]:
        """Return the message that this line completes; ChannelError unless it is the next line of the other side."""
        try:
            number, proof, payload = line.decode("ascii").split(" ", 2)
        except ValueError:
            raise ChannelError("it sent an unauthenticated line") from None
        if number != str(self._count) or not is_same_proof(proof, self._hmac(payload)):
            raise ChannelError("it sent a line out of sequence")
        self._count += 1
        self._pieces.append(payload[2:])
        self._length += len(payload) - 2
        if self._length > MAX_MESSAGE or not payload[2:]:
            raise ChannelError("it sent an endless message")
        if payload[:1] == "+":
            return None
        text, self._pieces, self._length = "".join(self._pieces), [], 0
        try:
            return parse_object(text.encode("ascii"), MAX_MESSAGE)
        except MalformedError as error:
            raise ChannelError(f"it sent a malformed message ({error})") from None

    def _hmac(self, payload: str) -> str:
        return hmac.new(self._key, f"{self._count} {payload}".encode("ascii"), sha256).hexdigest()


OnMessage = Callable[[Message], None]


class SecureChannel:
    """Authenticated messages to and from one agent; `unanswered_beats` counts our beats since its last message."""

    def __init__(
        self, line_socket: LineSocket, handshake: Handshake, token: bytes, bounds: Bounds, *, hub: bool
    ) -> None:
        to_peer, to_hub = (
            SignedLines(handshake.prove(token, f"the {role} speaks")) for role in ("hub", "peer")
        )
        self._out, self._in = (to_peer, to_hub) if hub else (to_hub, to_peer)
        self._line_socket = line_socket
        self._bounds = bounds
        self._readers: Dict[str, Form] = TO_HUB if hub else TO_PEER
        self._on_message: Optional[OnMessage] = None
        self.slot = handshake.slot
        self.node = handshake.node
        self.unanswered_beats = 0

    def open(self, on_message: OnMessage, on_close: OnClose) -> None:
        """Begin to receive."""
        self._on_message = on_message
        self._line_socket.trust(self._on_line, on_close, MAX_LINE)

    def send(self, text: str) -> None:
        """Send a message that `render_message` has written."""
        for line in self._out.sign(text):
            self._line_socket.send(line)

    def close(self) -> None:
        """Close it without a message."""
        self._line_socket.close()

    @property
    def closed(self) -> bool:
        """Whether it has ended."""
        return self._line_socket.closed

    @property
    def last_seen(self) -> float:
        """Return when anything came from the other side, by our clock."""
        return self._line_socket.last_seen

    def _on_line(self, line: bytes) -> None:
        message = self._in.verify(line)
        self.unanswered_beats = 0
        if message is not None and self._on_message is not None:
            self._on_message(read_message(message, self._readers, self._bounds))


class Connector:
    """Hands over a channel for each try in which the hub proved itself, and reports when the last one has failed."""

    def __init__(
        self,
        loop: Loop,
        spec: Spec,
        token: bytes,
        slot: Slot,
        on_channel: Callable[[SecureChannel], None],
        on_unreachable: Callable[[str], None],
    ) -> None:
        self._loop, self._spec, self._token, self._slot = loop, spec, token, slot
        self._on_channel, self._on_unreachable = on_channel, on_unreachable
        self._address, self.port, self._deadline = "", 0, 0.0
        self._caller: Optional[AuthenticatingCaller] = None
        self._handshake: Optional[Handshake] = None
        self._proven = False

    def connect(self, address: str, port: int) -> None:
        """Try until it is stopped, or the deadline has come."""
        self._address, self.port = address, port
        self._deadline = time.monotonic() + float(self._spec.get("join_limit") or JOIN_LIMIT)
        self._try()

    def stop(self) -> None:
        """Try no more: the hub has welcomed us, or its welcome is not needed."""
        self._loop.cancel(TIMER)
        if self._caller is not None and not self._proven:
            self._caller.line_socket.close()

    def _try(self) -> None:
        loop, source = self._loop, str(self._spec.get("address") or "")
        loop.after(TRY_LIMIT, TIMER, lambda: self._on_failed("no answer"))
        self._proven = False
        self._caller = AuthenticatingCaller(loop, self._answer, self._on_proven, self._on_failed)
        self._caller.connect((self._address, self.port), source, (TRY_LIMIT, TRY_LIMIT))

    def _answer(self, hub_nonce: str, own_nonce: str) -> HandshakeAnswer:
        spec, token = self._spec, self._token
        handshake = Handshake(spec["run"], self._slot, str(spec["node"]), hub_nonce, own_nonce)
        self._handshake = handshake
        proof = handshake.prove(token, "the peer is who it says")
        fields: HandshakeLine = {
            "slot": self._slot,
            "node": handshake.node,
            "nonce": own_nonce,
            "proof": proof,
        }
        return fields, handshake.prove(token, "the hub is who it says")

    def _on_proven(self, line_socket: LineSocket, _: Untrusted) -> None:
        assert self._handshake is not None
        self._proven = True
        bounds, token = read_bounds(self._spec), self._token
        self._on_channel(SecureChannel(line_socket, self._handshake, token, bounds, hub=False))

    def _on_failed(self, why: str) -> None:
        """Try again, or report why not."""
        self._loop.cancel(TIMER)
        if self._caller is not None:
            self._caller.line_socket.close()
        if time.monotonic() + RETRY_PAUSE < self._deadline:
            self._loop.after(RETRY_PAUSE, TIMER, self._try)
        else:
            self._on_unreachable(why)


class Listener:
    """Hands over a channel for every peer that proved itself."""

    def __init__(self, loop: Loop, spec: Spec, token: bytes) -> None:
        self._run_id = spec["run"]
        self._token = token
        self._own_slot = Slot(int(spec.get("slot") or 0))
        self._bounds = read_bounds(spec)
        self._on_channel: Callable[[SecureChannel], bool] = lambda _: False
        most_pending = self._bounds.slots + SPARE_PENDING
        allow_files(most_pending + OWN_FILES)
        limit = float(spec.get("handshake_limit") or HANDSHAKE_LIMIT)
        self._listener = AuthenticatingListener(
            loop, listen_for_peers(spec), most_pending, limit, self._authenticate
        )
        self.port = self._listener.port

    def open(self, on_channel: Callable[[SecureChannel], bool]) -> None:
        """Begin to accept; earlier connections are waiting."""
        self._on_channel = on_channel
        self._listener.open()

    def close(self) -> None:
        """Accept no more connections."""
        self._listener.close()

    def _authenticate(self, line_socket: LineSocket, nonce: str, answer: Untrusted) -> None:
        """Make a peer's connection a channel, or raise ChannelError."""
        number, node = answer.integer("slot", 0, self._bounds.slots - 1), answer.text("node")
        if number is None or number == self._own_slot:
            raise ChannelError("no such slot")
        slot = Slot(number)
        if not self._bounds.is_name_of(slot, node):
            raise ChannelError("not the node name of this slot")
        handshake = Handshake(self._run_id, slot, node, nonce, read_nonce(answer))
        if not is_same_proof(answer.text("proof"), handshake.prove(self._token, "the peer is who it says")):
            raise ChannelError("not of this run")
        channel = SecureChannel(line_socket, handshake, self._token, self._bounds, hub=True)
        line_socket.send_line({"proof": handshake.prove(self._token, "the hub is who it says")})
        if not self._on_channel(channel):
            raise ChannelError("this slot is already connected")


def allow_files(count: int) -> None:
    """Raise the soft limit of open files, often 1024, to what so many peers need; VerbError if the hard one forbids."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= count:
        return
    if hard != resource.RLIM_INFINITY and hard < count:
        why = f"this node allows {hard} open files, and {count} are needed (`nofile` in limits.conf)"
        raise VerbError("CC-NET-021", f"node 0 cannot listen for so many other nodes: {why}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def listen_for_peers(spec: Spec) -> socket.socket:
    """Listen on the training address; VerbError if that cannot be, or all of the inventory's ports are in use."""
    address, ports = spec["address"] if spec.get("restart") else spec["master_addr"], spec.get("ports")
    try:
        return listen(str(address), port_range(ports))
    except OSError as error:
        where = f"on {address}" + (f", ports {ports[0]}-{ports[1]}" if ports else "")
        why = describe_os_error(error)
        raise VerbError("CC-NET-021", f"node 0 cannot listen {where} for the other nodes: {why}") from None
