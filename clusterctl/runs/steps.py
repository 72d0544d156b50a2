"""What each node is at just now: noted by the threads that work for it, read by whoever shows it."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """What a node is at, and since when by `time.monotonic`."""

    what: str
    since: float


class Steps:
    """The newest step of every node that has begun; safe to use from many threads."""

    def __init__(self) -> None:
        self._steps: dict[str, Step] = {}

    def note(self, node: str, what: str) -> None:
        """Note what a node is at from now on."""
        self._steps[node] = Step(what, time.monotonic())

    def find(self, node: str) -> Step | None:
        """Give a node's step; None before its first."""
        return self._steps.get(node)
