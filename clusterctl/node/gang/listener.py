"""The hub's door: listens on the training IP, and lets in who proves the run's token, once for each rank."""

from __future__ import annotations

import errno
import json
import os
import resource
import socket
from typing import Any, Callable, Dict, Iterator, Optional, Sequence

from ...protocol.untrusted import Untrusted, parse_object
from ..runtime.event_loop import Loop
from ..runtime.sockets import candidates, same
from ..runtime.stream import VerbError
from .channel import NONCE, SHORT_LINE, Channel, Link, Meeting, SealError, describe
from .membership import bounds_of

GUEST_LIMIT = 5.0  # seconds to prove the token
SPARE_GUESTS = 8  # connections at once that prove nothing yet, beyond one for each node
BACKLOG = 1024  # as many as the kernel allows; they come all at once
OWN_FILES = 256  # what an agent has open beside its peers' connections, with room
NO_FILE = (errno.EMFILE, errno.ENFILE)
REST = 0.5  # seconds until somebody is let in again where no file is free
AT_ONCE = 16  # connections taken in one turn, so that a flood leaves time for the rest


class Door:
    """Hands over a channel for every peer that proved itself; whatever else knocks is bounded and forgotten."""

    def __init__(self, loop: Loop, spec: Dict[str, Any], token: bytes) -> None:
        self._loop = loop
        self._spec = spec
        self._token = token
        self._here = int(spec.get("seat") or 0)
        self._bounds = bounds_of(spec)
        self._seats = self._bounds.seats
        self._admit: Callable[[Channel], bool] = lambda _: False
        self._guests: Dict[Guest, None] = {}  # the oldest first
        self._most = self._seats + SPARE_GUESTS
        self._limit = float(spec.get("guest_limit") or GUEST_LIMIT)
        allow_files(self._most + OWN_FILES)
        address = spec["address"] if spec.get("restart") else spec["master_addr"]
        self._socket: Optional[socket.socket] = listen(address, spec.get("ports"))
        self.port = int(self._socket.getsockname()[1])

    def open(self, admit: Callable[[Channel], bool]) -> None:
        """Begin to let in; who has knocked before is waiting."""
        self._admit = admit
        if self._socket is not None:
            self._loop.watch(self._socket.fileno(), self._accept)

    def close(self) -> None:
        """Let nobody in any more."""
        if self._socket is not None:
            self._loop.forget(self._socket.fileno())
            self._socket.close()
            self._socket = None
        for guest in list(self._guests):
            guest.dismiss()

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            try:
                conn = self._socket.accept()[0] if self._socket is not None else None
            except OSError as error:
                if error.errno in NO_FILE:
                    self._rest()
                return
            if conn is None:
                return
            if len(self._guests) >= self._most:
                next(iter(self._guests)).dismiss()
            conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            guest = Guest(self, conn)
            self._guests[guest] = None
            guest.greet()

    def _rest(self) -> None:
        """Look away for a moment: who knocks stays readable as long as no file is free for it."""
        if self._socket is not None:
            self._loop.forget(self._socket.fileno())
            self._loop.after(REST, f"door {id(self)}", self._look_again)

    def _look_again(self) -> None:
        if self._socket is not None:
            self._loop.watch(self._socket.fileno(), self._accept)

    def forget(self, guest: Guest) -> None:
        """A guest has left, or is none any more."""
        self._guests.pop(guest, None)

    def examine(self, guest: Guest, answer: Untrusted) -> None:
        """Let a guest in, or raise SealError."""
        rank, node, nonce = (
            answer.integer("rank", 0, self._seats - 1),
            answer.text("node"),
            answer.text("nonce"),
        )
        if rank is None or rank == self._here:
            raise SealError("no such rank")
        if not self._bounds.is_name_of(rank, node) or len(nonce) != NONCE:
            raise SealError("no answer")
        meeting = Meeting(self._spec["run"], rank, node, guest.nonce, nonce)
        if not same(answer.text("proof"), meeting.prove(self._token, "the peer is who it says")):
            raise SealError("not of this run")
        channel = Channel(guest.link, meeting, self._token, self._bounds, hub=True)
        proof = meeting.prove(self._token, "the hub is who it says")
        guest.link.send(json.dumps({"proof": proof}).encode("ascii") + b"\n")
        if not self._admit(channel):
            raise SealError("that rank is here already")

    def watch(self, guest: Guest) -> None:
        """Dismiss a guest that takes too long."""
        self._loop.after(self._limit, guest.name, guest.dismiss)

    def unwatch(self, guest: Guest) -> None:
        """It is let in, or gone."""
        self._loop.drop(guest.name)

    def link(self, conn: socket.socket, guest: Guest) -> Link:
        """Begin to hear a guest."""
        return Link(self._loop, conn, guest.take, lambda _: guest.dismiss())


class Guest:
    """A connection that has proved nothing yet."""

    def __init__(self, door: Door, conn: socket.socket) -> None:
        self._door = door
        self.nonce = os.urandom(16).hex()
        self.name = f"guest {self.nonce}"
        self.link = door.link(conn, self)

    def greet(self) -> None:
        """Ask for a proof."""
        self._door.watch(self)
        self.link.send(json.dumps({"nonce": self.nonce}).encode("ascii") + b"\n")

    def take(self, line: bytes) -> None:
        """Take the answer; a wrong one ends it (Link does, on ValueError)."""
        self._door.examine(self, parse_object(line, SHORT_LINE))
        self._door.unwatch(self)
        self._door.forget(self)

    def dismiss(self) -> None:
        """End it."""
        self._door.unwatch(self)
        self._door.forget(self)
        self.link.close()


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
        door = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            door.bind((address, port))  # not reusable: the master's held port must count as taken
            door.listen(BACKLOG)
        except OSError as error:
            door.close()
            why = describe(error)
        else:
            door.setblocking(False)
            return door
    where = f"on {address}" + (f", ports {ports[0]}-{ports[1]}" if ports else "")
    raise VerbError("CC-NET-021", f"node 0 cannot listen {where} for the other nodes: {why}")


def _ports(ports: Optional[Sequence[int]]) -> Iterator[int]:
    if not ports:
        yield 0
    else:
        yield from candidates(ports, (0, 0), os.urandom(1)[0] / 256)
