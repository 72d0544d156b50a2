"""Node-to-node transfer, shared homes."""

from __future__ import annotations

import secrets
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

Via = Literal["auto", "direct", "tree"]

FEWEST = 3  # nodes for which passing on can win
WORTH = 256_000_000  # bytes for all nodes together; below, the rounds cost more than they save
ENOUGH = (
    2  # takers that failed, before any had it, from which it follows that the nodes do not reach each other
)


PATIENCE, SLOWEST = (
    60.0,
    1e6,
)  # seconds, bytes a second: no longer does anybody wait for a node that is to give


class Closeable(Protocol):
    """A conversation that is kept open as long as its node is to give."""

    def close(self) -> None:
        """Hang up."""


@dataclass(frozen=True)
class Place:
    """Where a node can be reached by the others, and on which ports it may listen."""

    address: str
    ports: tuple[int, int] | None = None


@dataclass(frozen=True)
class Giver:
    """A node that has all contents, and the port where it gives them on."""

    node: str
    address: str
    port: int


@dataclass
class Passing:
    """Brings takers and givers together; used by one thread for each node, and closed when all have the code.

    `places` are the training addresses by node; with `auto` the code is passed on where that saves much sending.
    """

    via: Via
    places: Mapping[str, Place]
    notice: Callable[[str], None] = lambda _: None
    token: str = field(default_factory=lambda: secrets.token_hex(32), repr=False)

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        self._free: list[Giver] = []
        self._busy: dict[str, Giver] = {}  # by taker
        self._seed: str | None = None  # who is sent the contents by us, so that the others can wait for him
        self._kept: list[Closeable] = []
        self._failed = 0
        self._passed = False  # one node has had it from another

    def offer(self, node: str, size: int) -> dict[str, Any] | None:
        """Say where a node shall give contents on, of a tree of `size` bytes; None if it shall not."""
        if node not in self.places or not self._wins(size):
            return None
        place = self.places[node]
        return {"address": place.address, "ports": place.ports, "token": self.token}

    def find(self, node: str, size: int) -> Giver | None:
        """Wait for a giver of `size` bytes; None if they shall come from us."""
        if node not in self.places or not self._wins(size):
            return None
        deadline = time.monotonic() + PATIENCE + size / SLOWEST
        with self._changed:
            while not self._free:
                if self._is_vain or time.monotonic() > deadline:
                    return None
                if self._seed is None and not self._busy:
                    self._seed = node
                    return None
                self._changed.wait(deadline - time.monotonic())
            if self._is_vain:
                return None
            self._busy[node] = self._free.pop(0)
            return self._busy[node]

    def release(self, node: str, problem: str = "") -> None:
        """A taker has what it wanted, or says why not; a giver that failed is asked no more, and we send instead."""
        with self._changed:
            giver = self._busy.pop(node, None)
            if giver is not None and not problem:
                self._free.append(giver)
                self._passed = True
            if problem and self._seed is None:
                self._seed = node
            self._failed += bool(problem)
            self._changed.notify_all()
        if giver is not None and problem:
            self.notice(f"{node} could not take the code from {giver.node} ({problem}); it is sent from here")

    def join(self, node: str, port: int) -> None:
        """A node has all contents and gives them on."""
        with self._changed:
            if all(giver.node != node for giver in (*self._free, *self._busy.values())):
                self._free.insert(0, Giver(node, self.places[node].address, port))
            self._changed.notify_all()

    def leave(self, node: str) -> None:
        """A node is through, or has failed: nobody waits for it any more."""
        with self._changed:
            if self._seed == node:
                self._seed = None
            giver = self._busy.pop(node, None)
            if giver is not None:
                self._free.append(giver)
            self._changed.notify_all()

    def keep(self, session: Closeable) -> None:
        """Leave a conversation open until all have the code."""
        self._kept.append(session)

    def close(self) -> None:
        """Let the givers go: they listen no more."""
        while self._kept:
            with suppress(Exception):
                self._kept.pop().close()

    @property
    def _is_vain(self) -> bool:
        """Tell whether the nodes do not reach each other: then each is sent it from here, all at the same time."""
        return not self._passed and self._failed >= ENOUGH

    def _wins(self, size: int) -> bool:
        """Decide whether passing on beats sending `size` bytes to every node."""
        if self.via == "auto":
            return len(self.places) >= FEWEST and size * len(self.places) >= WORTH
        return self.via == "tree" and len(self.places) > 1


@dataclass
class _Turn:
    filled: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


class Turns:
    """Gives turns by the random id of the place; used by one thread for each node."""

    def __init__(self) -> None:
        self._turns: defaultdict[str, _Turn] = defaultdict(_Turn)
        self._lock = threading.Lock()

    @contextmanager
    def take(self, place: str) -> Iterator[None]:
        """Wait for the turn: the first goes alone, and when it is through all others go together.

        Whoever fails leaves the turn to the next; a place without an id is nobody else's.
        """
        with self._lock:
            turn = self._turns[place] if place else _Turn()
        with turn.lock:
            if not turn.filled:
                yield
                turn.filled = True
                return
        yield
