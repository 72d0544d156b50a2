"""Authenticated messages over a socket.

Proofs of a run's token, and lines that each carry one: how the agents of one gang know each other.

A line is `NUMBER PROOF MORE TEXT`: its number in this direction, HMAC-SHA256 over all the rest, `+` when the message
goes on in the next line or `.`, and a piece of the message's JSON. The keys differ by direction and connection, so a
line counts once, in its place, from one side: nothing can be replayed or reflected.

A channel hands over nothing but messages that `protocol/messages/gang.py` has read: this is the one place where an
agent takes in what another agent has written.
"""

from __future__ import annotations

import hmac
from hashlib import sha256
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional

from ...protocol.messages.gang import TO_HUB, TO_PEER, Bounds, Form, Message, read_message, render_message
from ...protocol.ranks import Slot
from ...protocol.untrusted import MalformedError, Untrusted, parse_object
from ..runtime.connections import ChannelError, LineSocket, OnClose, is_same_proof, prove

LONGEST_LINE = 64 << 10
SIGNED_PIECE = 48 << 10  # characters of a message in one line
LONGEST_MESSAGE = 4 << 20


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
        if self._length > LONGEST_MESSAGE or not payload[2:]:
            raise ChannelError("it sent an endless message")
        if payload[:1] == "+":
            return None
        text, self._pieces, self._length = "".join(self._pieces), [], 0
        try:
            return parse_object(text.encode("ascii"), LONGEST_MESSAGE)
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
        self._line_socket.trust(self._on_line, on_close, LONGEST_LINE)

    def send(self, message: Message, attempt: Optional[int] = None) -> None:
        """Send a message."""
        self.send_text(render_message(message, attempt))

    def send_text(self, text: str) -> None:
        """Send a message that is rendered already, as for other members."""
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
