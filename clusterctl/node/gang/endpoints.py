"""The two ends of a connection in a gang, on the training IP: a peer's connector, and the hub's listener.

Each proves the run's token to the other. The connector tries again until a deadline, the listener accepts one
connection for each slot.
"""

from __future__ import annotations

import resource
import socket
import time
from typing import TYPE_CHECKING, Callable, Optional

from ...protocol.ranks import Slot
from ...protocol.untrusted import Untrusted
from ..runtime.connections import (
    AuthenticatingCaller,
    AuthenticatingListener,
    ChannelError,
    LineSocket,
    describe_os_error,
    is_same_proof,
    listen,
    port_range,
    read_nonce,
)
from ..runtime.event_loop import Loop
from ..runtime.stream import VerbError
from .channel import Handshake, SecureChannel
from .membership import GangContext, read_bounds

if TYPE_CHECKING:
    from ...protocol.messages.files import Spec
    from ...protocol.messages.network import HandshakeLine
    from ..runtime.connections import HandshakeAnswer

JOIN_LIMIT = 10.0  # seconds to reach the hub, which may be busy with others
TRY_LIMIT = 5.0  # seconds of one try, up to the hub's welcome
RETRY_PAUSE = 0.2
TIMER = "join"


class Connector:
    """Hands over a channel for each try in which the hub proved itself, and reports when the last one has failed."""

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
        self._caller: Optional[AuthenticatingCaller] = None
        self._handshake: Optional[Handshake] = None
        self._proven = False

    def connect(self, address: str, port: int) -> None:
        """Try until it is stopped, or the deadline has come."""
        self._address, self.port = address, port
        self._deadline = time.monotonic() + float(self._context.spec.get("join_limit") or JOIN_LIMIT)
        self._try()

    def stop(self) -> None:
        """Try no more: the hub has welcomed us, or its welcome is not needed."""
        self._context.loop.cancel(TIMER)
        if self._caller is not None and not self._proven:
            self._caller.line_socket.close()

    def _try(self) -> None:
        loop, source = self._context.loop, str(self._context.spec.get("address") or "")
        loop.after(TRY_LIMIT, TIMER, lambda: self._on_failed("no answer"))
        self._proven = False
        self._caller = AuthenticatingCaller(loop, self._answer, self._on_proven, self._on_failed)
        self._caller.connect((self._address, self.port), source, (TRY_LIMIT, TRY_LIMIT))

    def _answer(self, hub_nonce: str, own_nonce: str) -> HandshakeAnswer:
        spec, token = self._context.spec, self._context.token
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
        bounds, token = read_bounds(self._context.spec), self._context.token
        self._on_channel(SecureChannel(line_socket, self._handshake, token, bounds, hub=False))

    def _on_failed(self, why: str) -> None:
        """Try again, or report why not."""
        self._context.loop.cancel(TIMER)
        if self._caller is not None:
            self._caller.line_socket.close()
        if time.monotonic() + RETRY_PAUSE < self._deadline:
            self._context.loop.after(RETRY_PAUSE, TIMER, self._try)
        else:
            self._on_unreachable(why)


HANDSHAKE_LIMIT = 5.0  # seconds to prove the token
SPARE_PENDING = 8  # connections at once that prove nothing yet, beyond one for each node
OWN_FILES = 256  # what an agent has open beside its peers' connections, with room


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
