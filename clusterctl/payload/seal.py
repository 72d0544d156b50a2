"""Proofs of a run's token, and lines that each carry one: how the agents of one gang know each other.

A line is `NUMBER PROOF MORE TEXT`: its number in this direction, HMAC-SHA256 over all the rest, `+` when the message
goes on in the next line or `.`, and a piece of the message's JSON. The keys differ by direction and connection, so a
line counts once, in its place, from one side: nothing can be replayed or reflected.
"""

from __future__ import annotations

import hmac
import json
from hashlib import sha256
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

from .proof import prove, same

LONGEST_LINE = 64 << 10
PIECE = 48 << 10  # characters of a message in one line
LONGEST_MESSAGE = 4 << 20

Message = Dict[str, Any]


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

    def lines(self, text: str) -> Iterator[bytes]:
        """Render a message that is written as JSON."""
        pieces = [text[place : place + PIECE] for place in range(0, len(text), PIECE)]
        for place, piece in enumerate(pieces, 1):
            rest = f"{'.' if place == len(pieces) else '+'} {piece}"
            yield f"{self._count} {self._prove(rest)} {rest}\n".encode("ascii")
            self._count += 1

    def open(self, line: bytes) -> Optional[Message]:
        """Return the message that this line completes; SealError unless it is the next line of the other side."""
        try:
            number, proof, rest = line.decode("ascii").split(" ", 2)
        except ValueError:
            raise SealError("not a sealed line") from None
        if number != str(self._count) or not same(proof, self._prove(rest)):
            raise SealError("a line that the other side did not write, or not here")
        self._count += 1
        self._pieces.append(rest[2:])
        if sum(map(len, self._pieces)) > LONGEST_MESSAGE:
            raise SealError("a message without an end")
        if rest[:1] == "+":
            return None
        text, self._pieces = "".join(self._pieces), []
        message = json.loads(text)
        if not isinstance(message, dict):
            raise SealError("not a message")
        return message

    def _prove(self, rest: str) -> str:
        return hmac.new(self._key, f"{self._count} {rest}".encode("ascii"), sha256).hexdigest()
