"""A verb that works for long: its answers, and beats in between that report progress.

They also show that the client has left, for whom alone much of the work is.
"""

from __future__ import annotations

import errno
import threading
from typing import TYPE_CHECKING

from ...protocol.frames import BEAT_INTERVAL
from .stream import Stream

if TYPE_CHECKING:
    from ...protocol.messages.verbs import Beat, NodeFrame


class Heartbeat:
    """The node's half of the conversation; a thread reports that the work goes on."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.steps = 0
        self.taken, self.waited = 0, 0.0
        self._client_left = False
        self._send_lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def send(self, frame: NodeFrame, body: bytes = b"") -> None:
        """Send a frame between two beats."""
        with self._send_lock:
            self.stream.answer(frame, body)

    def step(self) -> None:
        """Count a piece of work."""
        self.steps += 1

    def step_for_client(self) -> None:
        """Count a piece of work that has no use without the client; BrokenPipeError if that has left."""
        self.step()
        if self._client_left:
            raise BrokenPipeError(errno.EPIPE, "the client left")

    def _beat(self) -> None:
        count = 0
        try:
            while not self._stopped.wait(BEAT_INTERVAL):
                count += 1
                beat: Beat = {"beat": count, "steps": self.steps}
                if self.taken or self.waited:
                    beat["taken"], beat["waited"] = self.taken, int(self.waited)
                self.send(beat)
        except BrokenPipeError:
            self._client_left = True
