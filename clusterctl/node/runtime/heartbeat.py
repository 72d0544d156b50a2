"""A verb that works for long: its answers, and beats in between that tell of progress."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any, Dict, Optional, Type

from .stream import Stream

BEAT_EVERY = 2.0


class Voice:
    """The node's half of the conversation; a thread of its own tells that the work goes on."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.steps = 0
        self._one_at_a_time = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> Voice:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self._over.set()
        self._thread.join()

    def send(self, header: Dict[str, Any], body: bytes = b"") -> None:
        """Send a frame between two beats."""
        with self._one_at_a_time:
            self.stream.send(header, body)

    def step(self) -> None:
        """Count a piece of work."""
        self.steps += 1

    def _beat(self) -> None:
        count = 0
        while not self._over.wait(BEAT_EVERY):
            count += 1
            try:
                self.send({"beat": count, "steps": self.steps})
            except BrokenPipeError:
                return
