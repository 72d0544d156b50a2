"""The two ends of a connection of the proof on the wire: a door with its guests, and a caller."""

from __future__ import annotations

import os
import socket
import time
from typing import Any, Callable, Dict, Optional

from ..protocol.untrusted import Untrusted
from .loop import Loop
from .mesh_talk import SIZE, STRANGER, Badge, Talk, describe, measure
from .proof import same

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
