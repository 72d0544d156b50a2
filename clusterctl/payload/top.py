"""The verb `top`: how busy a node is, told every few seconds for as long as the client listens; it leaves nothing.

request {"interval": seconds}
node    {"sample": {...}} every interval, the first one at once; {"beat": n} at least every 2 s in between
client  {"beat": n}; one that says nothing for CLIENT_LIMIT seconds counts as gone
"""

from __future__ import annotations

import select
import time
from typing import Any, Dict

from .gauges import Gauges
from .gpu_gauges import GpuGauges
from .wire import Stream

BEAT = 2.0
FIRST = 0.4  # seconds over which the first rates are measured
CLIENT_LIMIT = 60.0


def run(request: Dict[str, Any], stream: Stream) -> None:
    """Send samples until the client leaves."""
    stream.patience = CLIENT_LIMIT
    Top(stream, max(0.2, float(request["interval"]))).run()


class Top:
    """One client, and what it is told."""

    def __init__(self, stream: Stream, interval: float) -> None:
        self._stream, self._interval = stream, interval
        self._gauges, self._gpus = Gauges(), GpuGauges(interval)
        self._heard = self._sent = time.monotonic()
        self._poller = select.poll()
        self._poller.register(stream, select.POLLIN)

    def run(self) -> None:
        """Send a sample, wait, and so on."""
        for _ in self._stream.arrived():
            pass
        self._gpus.begin()
        try:
            there = self._wait(FIRST)
            while there:
                self._send({"sample": {**self._gauges.sample(), **self._gpus.latest()}})
                there = self._wait(self._interval)
        finally:
            self._gpus.end()

    def _send(self, header: Dict[str, Any]) -> None:
        self._stream.send(header)
        self._sent = time.monotonic()

    def _wait(self, seconds: float) -> bool:
        """Let time pass, with beats; False if the client has left or says nothing any more."""
        until = time.monotonic() + seconds
        while not self._stream.ended and time.monotonic() - self._heard < CLIENT_LIMIT:
            now = time.monotonic()
            if now >= until:
                return True
            if now - self._sent >= BEAT:
                self._send({"beat": int(now)})
            if self._poller.poll(min(until - now, BEAT) * 1000):
                for _ in self._stream.arrived():
                    self._heard = time.monotonic()
        return False
