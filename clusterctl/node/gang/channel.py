"""Authenticated messages over a socket.

Proofs of a run's token, and lines that each carry one: how the agents of one gang know each other.

A line is `NUMBER PROOF MORE TEXT`: its number in this direction, HMAC-SHA256 over all the rest, `+` when the message
goes on in the next line or `.`, and a piece of the message's JSON. The keys differ by direction and connection, so a
line counts once, in its place, from one side: nothing can be replayed or reflected.

Lines over a socket that never wait for the other side, and sealed messages over those.

A channel hands over nothing but messages that `messages.py` has read: this is the one place where an agent takes in
what another agent has written.
"""

from __future__ import annotations

import hmac
import json
import os
import socket
import time
from hashlib import sha256
from typing import Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional

from ...protocol.untrusted import MalformedError, Untrusted, parse_object
from ..runtime.event_loop import Loop
from ..runtime.sockets import prove, same
from .membership import Bounds
from .messages import TO_HUB, TO_PEER, Message, Reader, read_message

LONGEST_LINE = 64 << 10
SEALED_PIECE = 48 << 10  # characters of a message in one line
LONGEST_MESSAGE = 4 << 20
NONCE = 32  # characters


class SealError(ValueError):
    """A line does not come from who it should come from, or is none."""


class Meeting(NamedTuple):
    """What both sides of one connection know when they prove the token to each other."""

    run: str
    rank: int
    node: str
    hub_nonce: str
    peer_nonce: str

    def prove(self, token: bytes, purpose: str) -> str:
        """Prove to know the token, for one purpose and this meeting only."""
        return prove(token, purpose, *self)


class Seal:
    """One direction of a connection."""

    def __init__(self, key: str) -> None:
        self._key = key.encode("ascii")
        self._count = 0
        self._pieces: List[str] = []
        self._length = 0

    def lines(self, text: str) -> Iterator[bytes]:
        """Render a message that is written as JSON."""
        pieces = [text[place : place + SEALED_PIECE] for place in range(0, len(text), SEALED_PIECE)]
        for place, piece in enumerate(pieces, 1):
            rest = f"{'.' if place == len(pieces) else '+'} {piece}"
            yield f"{self._count} {self._prove(rest)} {rest}\n".encode("ascii")
            self._count += 1

    def open(self, line: bytes) -> Optional[Untrusted]:
        """Return the message that this line completes; SealError unless it is the next line of the other side."""
        try:
            number, proof, rest = line.decode("ascii").split(" ", 2)
        except ValueError:
            raise SealError("it sent a line that is not sealed") from None
        if number != str(self._count) or not same(proof, self._prove(rest)):
            raise SealError("it sent a line that is not its next one")
        self._count += 1
        self._pieces.append(rest[2:])
        self._length += len(rest) - 2
        if self._length > LONGEST_MESSAGE or not rest[2:]:
            raise SealError("it sent a message without an end")
        if rest[:1] == "+":
            return None
        text, self._pieces, self._length = "".join(self._pieces), [], 0
        try:
            return parse_object(text.encode("ascii"), LONGEST_MESSAGE)
        except MalformedError as error:
            raise SealError(f"it sent a malformed message ({error})") from None

    def _prove(self, rest: str) -> str:
        return hmac.new(self._key, f"{self._count} {rest}".encode("ascii"), sha256).hexdigest()


PIECE = 1 << 14
MOST_UNSENT = 8 << 20  # bytes that the other side may leave unread before it counts as broken
SHORT_LINE = 1 << 10  # bytes of a line from somebody who has not proved anything
LONGEST_WHY = 200  # characters

Hear = Callable[[Message], None]
Left = Callable[[str], None]


class Link:
    """One socket; whatever is wrong with it or with what it brings ends it with one call of `left`."""

    def __init__(self, loop: Loop, conn: socket.socket, take: Callable[[bytes], None], left: Left) -> None:
        self._loop = loop
        self._conn = conn
        self._take = take
        self._left = left
        self._longest = SHORT_LINE
        self._heard = bytearray()
        self._unsent = bytearray()
        self.closed = False
        self.last_seen = time.time()
        conn.setblocking(False)
        loop.watch(conn.fileno(), self._read)

    def trust(self, take: Callable[[bytes], None], left: Left) -> None:
        """Hand lines to somebody else from now on, and allow long ones."""
        self._take, self._left, self._longest = take, left, LONGEST_LINE

    def send(self, data: bytes) -> None:
        """Send as soon as the other side takes it."""
        if self.closed:
            return
        self._unsent += data
        self._write()
        if len(self._unsent) > MOST_UNSENT:
            self.fail("it does not read")

    def close(self) -> None:
        """End it without a word."""
        if not self.closed:
            self.closed = True
            self._loop.forget(self._conn.fileno())
            self._conn.close()

    def fail(self, why: str) -> None:
        """End it and say why."""
        if not self.closed:
            self.close()
            self._left(why)

    def _write(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: self._conn.send(memoryview(bytes(self._unsent[:PIECE])))]
        except BlockingIOError:
            self._loop.watch_room(self._conn.fileno(), self._write)
            return
        except OSError as error:
            self.fail(describe(error))
            return
        self._loop.forget_room(self._conn.fileno())

    def _read(self) -> None:
        try:
            piece = self._conn.recv(PIECE)
        except BlockingIOError:
            return
        except OSError as error:
            self.fail(describe(error))
            return
        self.last_seen = time.time()  # also if it has closed the connection: a node without power does not
        if not piece:
            self.fail("the connection ended")
            return
        self._heard += piece
        for line in self._lines():
            try:
                self._take(line)
            except ValueError as error:  # what came is wrong: SealError, MalformedError
                self.fail(str(error)[:LONGEST_WHY])
            except Exception as error:  # noqa: BLE001, RUF100 - an error of ours costs this connection, and no other
                self._loop.report(error)
                self.fail(f"what it sent led to an error here: {type(error).__name__}: {error}"[:LONGEST_WHY])
            if self.closed:
                return
        if len(self._heard) > self._longest:
            self.fail("it sent a line without an end")

    def _lines(self) -> Iterator[bytes]:
        while True:
            end = self._heard.find(b"\n", 0, self._longest + 1)
            if end < 0:
                return
            line = bytes(self._heard[:end])
            del self._heard[: end + 1]
            yield line


def write(kind: str, facts: Mapping[str, object]) -> str:
    """Write a message as JSON."""
    return json.dumps({"kind": kind, **facts})


class Channel:
    """Sealed messages to and from one agent that has proved the token; `quiet` counts our beats without a word."""

    def __init__(self, link: Link, meeting: Meeting, token: bytes, bounds: Bounds, *, hub: bool) -> None:
        to_peer, to_hub = (Seal(meeting.prove(token, f"the {who} speaks")) for who in ("hub", "peer"))
        self._out, self._in = (to_peer, to_hub) if hub else (to_hub, to_peer)
        self._link = link
        self._bounds = bounds
        self._readers: Dict[str, Reader] = TO_HUB if hub else TO_PEER
        self._hear: Optional[Hear] = None
        self.rank = meeting.rank
        self.node = meeting.node
        self.quiet = 0

    def open(self, hear: Hear, left: Left) -> None:
        """Begin to hear."""
        self._hear = hear
        self._link.trust(self._take, left)

    def send(self, kind: str, **facts: object) -> None:
        """Send a message."""
        self.send_text(write(kind, facts))

    def send_text(self, text: str) -> None:
        """Send a message that is written already, for whoever else it was."""
        for line in self._out.lines(text):
            self._link.send(line)

    def close(self) -> None:
        """End it without a word."""
        self._link.close()

    @property
    def closed(self) -> bool:
        """Whether it has ended."""
        return self._link.closed

    @property
    def last_seen(self) -> float:
        """Return when anything came from the other side, by our clock."""
        return self._link.last_seen

    def _take(self, line: bytes) -> None:
        told = self._in.open(line)
        self.quiet = 0
        if told is not None and self._hear is not None:
            self._hear(read_message(told, self._readers, self._bounds))


def describe(error: OSError) -> str:
    """Say in words what the system says."""
    return os.strerror(error.errno) if error.errno else str(error)
