"""A hostile member of a gang: it knows the run's token, proves itself as the protocol asks, and sends what it likes.

`Peer` goes to a hub, `Hub` waits for peers. Both answer beats, so that no one calls them silent, and do nothing else.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

from loopback import LoopbackServer

from clusterctl.node.gang.channel import MAX_LINE, Handshake, SignedLines

What = dict[str, Any] | str


class Line:
    """A sealed connection on which anything can be reported."""

    def __init__(self, conn: socket.socket, meeting: Handshake, token: bytes, *, hub: bool) -> None:
        to_peer, to_hub = (SignedLines(meeting.prove(token, f"the {who} speaks")) for who in ("hub", "peer"))
        self._out, self._in = (to_peer, to_hub) if hub else (to_hub, to_peer)
        self._conn = conn
        self._one_at_a_time = threading.Lock()
        self.seat = meeting.slot

    def say(self, what: What) -> None:
        """Send a message, or any text in its place; who has hung up misses it."""
        text = what if isinstance(what, str) else json.dumps(what)
        with self._one_at_a_time, contextlib.suppress(OSError):
            for line in self._out.sign(text):
                self._conn.sendall(line)

    def heard(self) -> Iterator[dict[str, Any]]:
        """Give what the other side reports, until it hangs up."""
        rest = b""
        with contextlib.suppress(OSError):
            while piece := self._conn.recv(MAX_LINE):
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    told = self._in.verify(line)
                    if told is not None:
                        yield told._values  # type: ignore[misc]  # the test looks at what was really sent

    def hang_up(self) -> None:
        """End it."""
        with contextlib.suppress(OSError):
            self._conn.shutdown(socket.SHUT_RDWR)
        self._conn.close()


class Peer:
    """Comes to a hub in the place of one of the run's nodes."""

    def __init__(self, run: str, token: str, seat: int, node: str) -> None:
        self._run, self._token, self._seat, self._node = run, token.encode(), seat, node
        self.lines: list[Line] = []
        self.heard: list[dict[str, Any]] = []

    def join(self, port: int, address: str = "127.0.0.1") -> Line:
        """Go to a hub and prove the token; from then on beats are answered."""
        conn = socket.create_connection((address, port), 10)
        asked = json.loads(_read_line(conn))["nonce"]
        meeting = Handshake(self._run, self._seat, self._node, asked, os.urandom(16).hex())
        proof = meeting.prove(self._token, "the peer is who it says")
        about = {"slot": self._seat, "node": self._node, "nonce": meeting.peer_nonce, "proof": proof}
        conn.sendall(json.dumps(about).encode() + b"\n")
        assert json.loads(_read_line(conn))["proof"] == meeting.prove(self._token, "the hub is who it says")
        conn.settimeout(None)
        line = Line(conn, meeting, self._token, hub=False)
        self.lines.append(line)
        threading.Thread(target=self._attend, args=(line,), daemon=True).start()
        return line

    def say(self, what: What) -> None:
        """Say something to the last hub."""
        self.lines[-1].say(what)

    def has_heard(self, kind: str) -> bool:
        """Return whether a message of this kind has come."""
        return any(message.get("kind") == kind for message in self.heard)

    def _attend(self, line: Line) -> None:
        for message in line.heard():
            if message.get("kind") == "beat":
                line.say({"kind": "beat", "at": message["at"], "time": time.time()})
                continue
            self.heard.append(message)

    def close(self) -> None:
        """Hang up."""
        for line in self.lines:
            line.hang_up()


class Hub:
    """Waits for peers as node 0 does, and welcomes them."""

    def __init__(self, run: str, token: str) -> None:
        self._run, self._token = run, token.encode()
        self.lines: dict[int, Line] = {}
        self._door = LoopbackServer(self._attend, "127.0.0.1")
        self.port = self._door.port

    def _attend(self, conn: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError, KeyError):
            nonce = os.urandom(16).hex()
            conn.sendall(json.dumps({"nonce": nonce}).encode() + b"\n")
            answer = json.loads(_read_line(conn))
            meeting = Handshake(self._run, answer["slot"], answer["node"], nonce, answer["nonce"])
            conn.sendall(
                json.dumps({"proof": meeting.prove(self._token, "the hub is who it says")}).encode() + b"\n"
            )
            line = self.lines[meeting.slot] = Line(conn, meeting, self._token, hub=True)
            threading.Thread(target=self._beat, args=(line,), daemon=True).start()
            line.say({"kind": "welcome"})
            for _ in line.heard():
                pass  # what the peers report is read, and not used

    def _beat(self, line: Line) -> None:
        while self.lines.get(line.seat) is line:
            line.say({"kind": "beat", "at": time.time()})
            time.sleep(0.2)

    def say(self, what: What) -> None:
        """Say something to everybody who is here."""
        for line in list(self.lines.values()):
            line.say(what)

    def close(self) -> None:
        """Hang up on all."""
        self._door.close()
        lines, self.lines = self.lines, {}
        for line in lines.values():
            line.hang_up()


def _read_line(conn: socket.socket) -> bytes:
    line = b""
    while not line.endswith(b"\n") and (piece := conn.recv(1)):
        line += piece
    return line
