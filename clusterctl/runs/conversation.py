"""The client's half of a verb that works for long: the node's answers, and the beats in between."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from clusterctl.errors import ClusterctlError
from clusterctl.protocol.untrusted import Untrusted

START = 90.0  # seconds until the first word; the interpreter may come from a cold network home
SILENCE = 20.0  # seconds; after that the node says something every 2 s
STALL = 300.0  # seconds without a step of work on the node, which may copy a large file to a slow disk
LONGEST = 4 * 3600.0  # seconds for one answer, whatever work is told of: a terabyte is hashed in less

Frame = tuple[Untrusted, bytes]


class Talk(Protocol):
    """What is needed of a session: frames both ways; what the node reports as wrong is raised by either."""

    def send(self, header: Mapping[str, Any], body: bytes = b"") -> None:
        """Send a frame."""

    def receive(self, timeout: float) -> Frame | None:
        """Wait for a frame; None at the end of the conversation."""


class Listener:
    """Hears the answers of one node; what it raises when there are no more is the verb's own error."""

    def __init__(
        self,
        talk: Talk,
        *,
        hung_up: Callable[[], ClusterctlError],
        stalled: Callable[[str], ClusterctlError],
        first: float = START,
    ) -> None:
        self._talk = talk
        self._hung_up = hung_up
        self._stalled = stalled
        self._limit = first

    def answer(self) -> Frame:
        """Wait for an answer; the node's beats are heard, and must tell of progress."""
        steps: int | None = None
        began = since = time.monotonic()
        while True:
            frame = self._talk.receive(self._limit)
            self._limit = SILENCE
            if frame is None:
                raise self._hung_up()
            header = frame[0]
            if "beat" not in header:
                return frame
            now = time.monotonic()
            if header.integer("steps") != steps:
                steps, since = header.integer("steps"), now
            elif now - since > STALL:
                raise self._stalled(f"nothing moved on the node for {STALL:.0f} s")
            if now - began > LONGEST:
                raise self._stalled(f"no answer came for {LONGEST / 3600:.0f} h")
