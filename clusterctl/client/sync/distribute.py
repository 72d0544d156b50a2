"""Node-to-node transfer, shared homes."""

from __future__ import annotations

import secrets
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from clusterctl.node_texts import translate_node_text
from clusterctl.translation import tr

if TYPE_CHECKING:
    from clusterctl.client.rpc.session import Session
    from clusterctl.protocol.messages.verbs import Offer

Via = Literal["auto", "direct", "tree"]

MIN_NODES = 3  # nodes for which passing on can win
MIN_TOTAL_BYTES = 256_000_000  # bytes for all nodes together; below, the rounds cost more than they save
# receivers that failed, before any had it, from which it follows that the nodes do not reach each other
MAX_FAILURES = 2


# seconds, bytes a second: no longer does anybody wait for a node that is to give
BASE_WAIT_LIMIT, MIN_TRANSFER_RATE = 60.0, 1e6


@dataclass(frozen=True)
class TransferAddress:
    """Where a node can be reached by the others, and on which ports it may listen."""

    address: str
    ports: tuple[int, int] | None = None


@dataclass(frozen=True)
class Provider:
    """A node that has all contents, and the port where it gives them on."""

    node: str
    address: str
    port: int


@dataclass
class Distribution:
    """Assigns providers to receivers; used by one thread for each node, and closed when all have the code.

    `addresses` are the training addresses by node; with `auto` the code is passed on where that saves much sending.
    """

    via: Via
    addresses: Mapping[str, TransferAddress]
    notice: Callable[[str], None] = lambda _: None
    token: str = field(default_factory=lambda: secrets.token_hex(32), repr=False)

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        self._idle: list[Provider] = []
        self._busy: dict[str, Provider] = {}  # by receiver
        # who is sent the contents by us, so that the others can wait for him
        self._first_receiver: str | None = None
        self._open_sessions: list[Session] = []
        self._failures = 0
        self._any_succeeded = False  # one node has had it from another

    def offer(self, node: str, size: int) -> Offer | None:
        """Return where a node is to provide contents, of a tree of `size` bytes; None if it is not."""
        if node not in self.addresses or not self._is_worthwhile(size):
            return None
        address = self.addresses[node]
        return {"address": address.address, "ports": address.ports, "token": self.token}

    def wait_for_provider(self, node: str, size: int) -> Provider | None:
        """Wait for a provider of `size` bytes; None if they are to come from us."""
        if node not in self.addresses or not self._is_worthwhile(size):
            return None
        deadline = time.monotonic() + BASE_WAIT_LIMIT + size / MIN_TRANSFER_RATE
        with self._changed:
            while not self._idle:
                if self._should_give_up or time.monotonic() > deadline:
                    return None
                if self._first_receiver is None and not self._busy:
                    self._first_receiver = node
                    return None
                self._changed.wait(deadline - time.monotonic())
            if self._should_give_up:
                return None
            self._busy[node] = self._idle.pop(0)
            return self._busy[node]

    def release(self, node: str, problem: str = "") -> None:
        """A receiver has what it wanted, or reports why not; a provider that failed is dropped, and we send instead."""
        with self._changed:
            provider = self._busy.pop(node, None)
            if provider is not None and not problem:
                self._idle.append(provider)
                self._any_succeeded = True
            if problem and self._first_receiver is None:
                self._first_receiver = node
            self._failures += bool(problem)
            self._changed.notify_all()
        if provider is not None and problem:
            self.notice(
                tr(
                    "{node} could not fetch the code from {provider} ({problem}); it is sent from this machine",
                    node=node,
                    provider=provider.node,
                    problem=translate_node_text(problem),
                )
            )

    def add_provider(self, node: str, port: int) -> None:
        """A node has all contents and gives them on."""
        with self._changed:
            if all(provider.node != node for provider in (*self._idle, *self._busy.values())):
                self._idle.insert(0, Provider(node, self.addresses[node].address, port))
            self._changed.notify_all()

    def remove_node(self, node: str) -> None:
        """A node is done, or has failed: no other waits for it any more."""
        with self._changed:
            if self._first_receiver == node:
                self._first_receiver = None
            provider = self._busy.pop(node, None)
            if provider is not None:
                self._idle.append(provider)
            self._changed.notify_all()

    def keep_open(self, session: Session) -> None:
        """Leave a conversation open until all have the code."""
        self._open_sessions.append(session)

    def close(self) -> None:
        """Stop the providers: they close their listeners."""
        while self._open_sessions:
            with suppress(Exception):
                self._open_sessions.pop().close()

    @property
    def _should_give_up(self) -> bool:
        """Return whether the nodes do not reach each other: then each is sent it from here, all at the same time."""
        return not self._any_succeeded and self._failures >= MAX_FAILURES

    def _is_worthwhile(self, size: int) -> bool:
        """Decide whether passing on beats sending `size` bytes to every node."""
        if self.via == "auto":
            return len(self.addresses) >= MIN_NODES and size * len(self.addresses) >= MIN_TOTAL_BYTES
        return self.via == "tree" and len(self.addresses) > 1


@dataclass
class _HomeLock:
    filled: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


class SharedHomeLocks:
    """Gives turns by the random id of the place; used by one thread for each node."""

    def __init__(self) -> None:
        self._locks: defaultdict[str, _HomeLock] = defaultdict(_HomeLock)
        self._lock = threading.Lock()

    @contextmanager
    def acquire(self, workdir_id: str) -> Iterator[None]:
        """Wait for the turn: the first goes alone, and when it is through all others go together.

        One that fails passes the turn to the next; a work directory without an id is not shared.
        """
        with self._lock:
            entry = self._locks[workdir_id] if workdir_id else _HomeLock()
        with entry.lock:
            if not entry.filled:
                yield
                entry.filled = True
                return
        yield
