"""The hub's listener on the training IP: accepts who proves the run's token, once for each slot."""

from __future__ import annotations

import errno
import json
import os
import resource
import socket
from typing import Any, Callable, Dict, Iterator, Optional, Sequence

from ...protocol.ranks import Slot
from ...protocol.untrusted import Untrusted, parse_object
from ..runtime.event_loop import Loop
from ..runtime.sockets import candidates, is_same_proof
from ..runtime.stream import VerbError
from .channel import (
    NONCE_LENGTH,
    UNPROVEN_LINE,
    ChannelError,
    Handshake,
    LineSocket,
    SecureChannel,
    describe_os_error,
)
from .membership import read_bounds

HANDSHAKE_LIMIT = 5.0  # seconds to prove the token
SPARE_PENDING = 8  # connections at once that prove nothing yet, beyond one for each node
BACKLOG = 1024  # as many as the kernel allows; they come all at once
OWN_FILES = 256  # what an agent has open beside its peers' connections, with room
NO_FREE_FILE = (errno.EMFILE, errno.ENFILE)
RETRY_DELAY = 0.5  # seconds until somebody is let in again where no file is free
ACCEPTS_PER_TURN = 16  # connections taken in one turn, so that a flood leaves time for the rest


class Listener:
    """Hands over a channel for every peer that proved itself; whatever else knocks is bounded and forgotten."""

    def __init__(self, loop: Loop, spec: Dict[str, Any], token: bytes) -> None:
        self._loop = loop
        self._spec = spec
        self._token = token
        self._own_slot = Slot(int(spec.get("seat") or 0))
        self._bounds = read_bounds(spec)
        self._slot_count = self._bounds.slots
        self._on_channel: Callable[[SecureChannel], bool] = lambda _: False
        self._pending: Dict[PendingPeer, None] = {}  # the oldest first
        self._most_pending = self._slot_count + SPARE_PENDING
        self._limit = float(spec.get("guest_limit") or HANDSHAKE_LIMIT)
        allow_files(self._most_pending + OWN_FILES)
        address = spec["address"] if spec.get("restart") else spec["master_addr"]
        self._socket: Optional[socket.socket] = listen(address, spec.get("ports"))
        self.port = int(self._socket.getsockname()[1])

    def open(self, on_channel: Callable[[SecureChannel], bool]) -> None:
        """Begin to let in; who has knocked before is waiting."""
        self._on_channel = on_channel
        if self._socket is not None:
            self._loop.watch(self._socket.fileno(), self._accept)

    def close(self) -> None:
        """Let nobody in any more."""
        if self._socket is not None:
            self._loop.unwatch(self._socket.fileno())
            self._socket.close()
            self._socket = None
        for peer in list(self._pending):
            peer.reject()

    def _accept(self) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                conn = self._socket.accept()[0] if self._socket is not None else None
            except OSError as error:
                if error.errno in NO_FREE_FILE:
                    self._pause_accepting()
                return
            if conn is None:
                return
            if len(self._pending) >= self._most_pending:
                next(iter(self._pending)).reject()
            conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer = PendingPeer(self, conn)
            self._pending[peer] = None
            peer.send_nonce()

    def _pause_accepting(self) -> None:
        """Pause accepting: a waiting connection stays readable as long as no descriptor is free for it."""
        if self._socket is not None:
            self._loop.unwatch(self._socket.fileno())
            self._loop.after(RETRY_DELAY, f"door {id(self)}", self._resume_accepting)

    def _resume_accepting(self) -> None:
        if self._socket is not None:
            self._loop.watch(self._socket.fileno(), self._accept)

    def remove(self, peer: PendingPeer) -> None:
        """Forget a peer that has left, or has proved the token."""
        self._pending.pop(peer, None)

    def authenticate(self, peer: PendingPeer, answer: Untrusted) -> None:
        """Make a peer's connection a channel, or raise ChannelError."""
        number, node, nonce = (
            answer.integer("rank", 0, self._slot_count - 1),
            answer.text("node"),
            answer.text("nonce"),
        )
        if number is None or number == self._own_slot:
            raise ChannelError("no such rank")
        slot = Slot(number)
        if not self._bounds.is_name_of(slot, node) or len(nonce) != NONCE_LENGTH:
            raise ChannelError("no answer")
        handshake = Handshake(self._spec["run"], slot, node, peer.nonce, nonce)
        if not is_same_proof(answer.text("proof"), handshake.prove(self._token, "the peer is who it says")):
            raise ChannelError("not of this run")
        channel = SecureChannel(peer.line_socket, handshake, self._token, self._bounds, hub=True)
        proof = handshake.prove(self._token, "the hub is who it says")
        peer.line_socket.send(json.dumps({"proof": proof}).encode("ascii") + b"\n")
        if not self._on_channel(channel):
            raise ChannelError("that rank is here already")

    def start_timeout(self, peer: PendingPeer) -> None:
        """Reject a peer that takes too long."""
        self._loop.after(self._limit, peer.timer_name, peer.reject)

    def cancel_timeout(self, peer: PendingPeer) -> None:
        """Stop the timeout of a peer that was accepted, or is gone."""
        self._loop.cancel(peer.timer_name)

    def open_line_socket(self, conn: socket.socket, peer: PendingPeer) -> LineSocket:
        """Begin to read what a peer sends."""
        return LineSocket(self._loop, conn, peer.on_line, lambda _: peer.reject())


class PendingPeer:
    """A connection that has proved nothing yet."""

    def __init__(self, listener: Listener, conn: socket.socket) -> None:
        self._listener = listener
        self.nonce = os.urandom(16).hex()
        self.timer_name = f"pending peer {self.nonce}"
        self.line_socket = listener.open_line_socket(conn, self)

    def send_nonce(self) -> None:
        """Ask for a proof."""
        self._listener.start_timeout(self)
        self.line_socket.send(json.dumps({"nonce": self.nonce}).encode("ascii") + b"\n")

    def on_line(self, line: bytes) -> None:
        """Take the answer; a wrong one ends it (Link does, on ValueError)."""
        self._listener.authenticate(self, parse_object(line, UNPROVEN_LINE))
        self._listener.cancel_timeout(self)
        self._listener.remove(self)

    def reject(self) -> None:
        """End it."""
        self._listener.cancel_timeout(self)
        self._listener.remove(self)
        self.line_socket.close()


def allow_files(count: int) -> None:
    """Raise the soft limit of open files, often 1024, to what so many peers need; VerbError if the hard one forbids."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= count:
        return
    if hard != resource.RLIM_INFINITY and hard < count:
        why = f"this node allows {hard} open files, and {count} are needed (`nofile` in limits.conf)"
        raise VerbError("CC-NET-021", f"node 0 cannot listen for so many other nodes: {why}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def listen(address: str, ports: Optional[Sequence[int]]) -> socket.socket:
    """Listen on one address, on a port of `ports` (first, last) that is free, or on one that the kernel picks."""
    why = "every port is taken"
    for port in _ports(ports):
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            sock.bind((address, port))  # not reusable: the master's held port must count as taken
            sock.listen(BACKLOG)
        except OSError as error:
            sock.close()
            why = describe_os_error(error)
        else:
            sock.setblocking(False)
            return sock
    where = f"on {address}" + (f", ports {ports[0]}-{ports[1]}" if ports else "")
    raise VerbError("CC-NET-021", f"node 0 cannot listen {where} for the other nodes: {why}")


def _ports(ports: Optional[Sequence[int]]) -> Iterator[int]:
    if not ports:
        yield 0
    else:
        yield from candidates(ports, (0, 0), os.urandom(1)[0] / 256)
