"""The verb `top`: how busy a node is, every few seconds for as long as the client is connected; it leaves nothing.

request {"interval": seconds}
node    {"sample": {...}} every interval, the first one at once; {"beat": n} at least every 2 s in between
client  {"beat": n}; one that sends nothing for CLIENT_LIMIT seconds counts as gone
"""

from __future__ import annotations

import select
import time
from typing import TYPE_CHECKING

from ....protocol.frames import BEAT_INTERVAL
from ....protocol.messages.record import to_json
from ...probe.utilization import GpuSampler, UtilizationSampler
from ...runtime.stream import Stream

if TYPE_CHECKING:
    from ....protocol.messages.verbs import TopRequest

FIRST_INTERVAL = 0.4  # seconds over which the first rates are measured
CLIENT_LIMIT = 60.0


def run(request: TopRequest, stream: Stream) -> None:
    """Send samples until the client leaves."""
    stream.send_timeout = CLIENT_LIMIT
    UtilizationStream(stream, max(0.2, float(request["interval"]))).run()


class UtilizationStream:
    """One client, and what is sent to it."""

    def __init__(self, stream: Stream, interval: float) -> None:
        self._stream, self._interval = stream, interval
        self._sampler, self._gpu_sampler = UtilizationSampler(), GpuSampler(interval)
        self._last_received = time.monotonic()
        self._poller = select.poll()
        self._poller.register(stream, select.POLLIN)

    def run(self) -> None:
        """Send a sample, wait, and so on."""
        for _ in self._stream.read_available():
            pass
        self._gpu_sampler.start()
        try:
            is_connected = self._wait(FIRST_INTERVAL)
            while is_connected:
                self._stream.answer(
                    {"sample": to_json(self._sampler.sample().replace(**vars(self._gpu_sampler.latest())))}
                )
                is_connected = self._wait(self._interval)
        finally:
            self._gpu_sampler.stop()

    def _wait(self, seconds: float) -> bool:
        """Wait, and send beats; False if the client has left or sends nothing any more."""
        deadline = time.monotonic() + seconds
        while not self._stream.ended and time.monotonic() - self._last_received < CLIENT_LIMIT:
            now = time.monotonic()
            if now >= deadline:
                return True
            self._stream.beat()
            if self._poller.poll(min(deadline - now, BEAT_INTERVAL) * 1000):
                for _ in self._stream.read_available():
                    self._last_received = time.monotonic()
        return False
