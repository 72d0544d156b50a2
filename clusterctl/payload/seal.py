"""Proofs of a run's token, and lines that each carry one: how the agents of one gang know each other.

A line is `NUMBER PROOF MORE TEXT`: its number in this direction, HMAC-SHA256 over all the rest, `+` when the message
goes on in the next line or `.`, and a piece of the message's JSON. The keys differ by direction and connection, so a
line counts once, in its place, from one side: nothing can be replayed or reflected.
"""

from __future__ import annotations

import hmac
from hashlib import sha256
from typing import Iterator, List, NamedTuple, Optional

from ..protocol.untrusted import MalformedError, Untrusted, parse_object
from .proof import prove, same

LONGEST_LINE = 64 << 10
PIECE = 48 << 10  # characters of a message in one line
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
        pieces = [text[place : place + PIECE] for place in range(0, len(text), PIECE)]
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
