"""The hub's listener on the training IP: accepts who proves the run's token, once for each slot."""

from __future__ import annotations

import resource
import socket
from typing import TYPE_CHECKING, Callable

from ...protocol.ranks import Slot
from ...protocol.untrusted import Untrusted
from ..runtime.connections import (
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
from .membership import read_bounds

if TYPE_CHECKING:
    from ...protocol.messages.files import Spec


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
