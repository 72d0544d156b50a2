"""A network in memory with a clock that the test steps: TCP sockets, and a loop for each node, without any waiting.

`Network.replace_sockets` puts it in the place of `socket.socket`, `time.time`, `time.monotonic` and `os.urandom`, so
that the real code above runs on it: the same inputs give the same bytes at the same moments.
"""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

Callback = Callable[[], None]
EPOCH = 1_000_000.0  # what every clock shows in the beginning
FIRST_PORT = 40001
Address = tuple[str, int]


class MemorySocket:
    """As much of a TCP socket as the agents use; what is sent arrives at once, unless the way is cut."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._number = network.register(self)
        self.host = network.current_host
        self.name: Address = (self.host, 0)
        self.inbox = bytearray()
        self.other: MemorySocket | None = None
        self.queue: list[MemorySocket] = []  # connections that no one has accepted
        self.error = 0
        self.at_end = self.closed = self.connecting = False

    def fileno(self) -> int:
        """Return its number."""
        return self._number

    def setblocking(self, _: bool) -> None:
        """It never blocks."""

    def setsockopt(self, *_: Any) -> None:
        """There is nothing to tune."""

    def getsockopt(self, *_: Any) -> int:
        """Return how connecting failed; 0 if it did not."""
        return self.error

    def getsockname(self) -> Address:
        """Return address and port."""
        return self.name

    def bind(self, name: Address) -> None:
        """Take an address, and a port if none is named."""
        port = name[1] or self._network.next_port()
        if (name[0], port) in self._network.listening:
            raise OSError(errno.EADDRINUSE, "in use")
        self.name = (name[0], port)

    def listen(self, _: int) -> None:
        """Wait for connections."""
        self._network.listening[self.name] = self

    def connect(self, name: Address) -> None:
        """Connect; known when the socket can be written to."""
        self.connecting = True
        listener = self._network.listening.get(name)
        is_filtered = listener is None and name[0] in self._network.filtered
        if is_filtered or not self._network.is_open(self.host, name[0]):
            raise BlockingIOError
        if listener is None:
            self.error = errno.ECONNREFUSED
            raise BlockingIOError
        far = MemorySocket(self._network)
        far.host, far.other, self.other = listener.host, self, far
        listener.queue.append(far)
        raise BlockingIOError

    def accept(self) -> tuple[MemorySocket, Address]:
        """Take the next connection."""
        if not self.queue:
            raise BlockingIOError
        return self.queue.pop(0), ("", 0)

    def send(self, data: memoryview) -> int:
        """Send all of it."""
        content = bytes(data)
        if self.other is not None and self.other.host in self._network.resetting:
            raise OSError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        if self.other is not None and self._network.is_open(self.host, self.other.host):
            self.other.inbox += content
        return len(content)

    def recv(self, size: int) -> bytes:
        """Read what is there, or fail as connecting did."""
        if self.error:
            raise OSError(self.error, os.strerror(self.error))
        if not self.inbox and not self.at_end:
            raise BlockingIOError
        chunk = bytes(self.inbox[:size])
        del self.inbox[:size]
        return chunk

    def close(self) -> None:
        """End it; the other side notices, unless the way is cut."""
        if self.closed:
            return
        self.closed = True
        self._network.forget(self)
        if self.other is not None and self._network.is_open(self.host, self.other.host):
            self.other.at_end = True

    @property
    def is_readable(self) -> bool:
        """Whether there is something to read or to accept, or the end, or connecting has failed."""
        return bool(self.inbox or self.at_end or self.queue or self.error)

    @property
    def is_writable(self) -> bool:
        """Whether connecting has come to an end."""
        return bool(not self.connecting or self.error or self.other is not None)


class Network:
    """All sockets, the ways between hosts, and the clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.current_host = ""
        self.clock_offsets: dict[str, float] = {}
        self.listening: dict[Address, MemorySocket] = {}
        self.sockets: dict[int, MemorySocket] = {}
        self.apart: set[str] = set()  # hosts that reach each other, and no others
        self.cut_pairs: list[set[str]] = []  # two hosts each that do not reach each other
        self.filtered: set[str] = (
            set()
        )  # hosts with a firewall that drops new connections to ports on which nothing listens
        self.resetting: set[str] = set()  # hosts to which sending fails
        self._numbers, self._ports, self._chance = count(1000), count(FIRST_PORT), count()

    def register(self, sock: MemorySocket) -> int:
        """Give a socket its number."""
        number = next(self._numbers)
        self.sockets[number] = sock
        return number

    def forget(self, sock: MemorySocket) -> None:
        """Forget one that is closed."""
        self.sockets.pop(sock.fileno(), None)
        if self.listening.get(sock.name) is sock:
            del self.listening[sock.name]

    def next_port(self) -> int:
        """Return a port that was never used."""
        return next(self._ports)

    def is_open(self, one: str, other: str) -> bool:
        """Return whether anything gets from one host to another."""
        return (one in self.apart) == (other in self.apart) and {one, other} not in self.cut_pairs

    def read_clock(self) -> float:
        """Return what the clock of the current host shows."""
        return EPOCH + self.now + self.clock_offsets.get(self.current_host, 0.0)

    @contextmanager
    def replace_sockets(self) -> Iterator[None]:
        """Let all code use this network and its clock."""
        saved: tuple[Any, ...] = (socket.socket, time.time, time.monotonic, os.urandom)
        names = (socket, "socket"), (time, "time"), (time, "monotonic"), (os, "urandom")
        ours: tuple[Callable[..., Any], ...] = (
            lambda *_, **__: MemorySocket(self),
            self.read_clock,
            lambda: self.now,
            lambda size: next(self._chance).to_bytes(size, "big"),
        )
        try:
            for (module, name), function in zip(names, ours, strict=True):
                setattr(module, name, function)
            yield
        finally:
            for (module, name), function in zip(names, saved, strict=True):
                setattr(module, name, function)


class SteppedLoop:
    """The event loop of one node: its moments come when the test orders it."""

    def __init__(self, network: Network, host: str) -> None:
        self.network, self.host = network, host
        self.moments: dict[str, tuple[float, Callback]] = {}
        self.errors: list[Exception] = []
        self._readers: dict[int, Callback] = {}
        self._writers: dict[int, Callback] = {}

    def watch(self, descriptor: int, callback: Callback) -> None:
        """Call back whenever there is something to read."""
        self._readers[descriptor] = callback

    def watch_writable(self, descriptor: int, callback: Callback) -> None:
        """Call back as long as it can be written to."""
        self._writers[descriptor] = callback

    def unwatch_writable(self, descriptor: int) -> None:
        """Watch for nothing but reading."""
        self._writers.pop(descriptor, None)

    def unwatch(self, descriptor: int) -> None:
        """Stop watching."""
        self._readers.pop(descriptor, None)
        self._writers.pop(descriptor, None)

    def after(self, seconds: float, name: str, callback: Callback) -> None:
        """Call back once, later; replaces what was set under the name."""
        self.moments[name] = (round(self.network.now + max(0.0, seconds), 6), callback)

    def cancel(self, name: str) -> None:
        """Forget a moment."""
        self.moments.pop(name, None)

    def report(self, error: Exception) -> None:
        """Keep an error that should not be."""
        self.errors.append(error)

    def next_moment(self) -> tuple[float, str] | None:
        """Return the next moment and its name."""
        return min(((moment, name) for name, (moment, _) in self.moments.items()), default=None)

    def call(self, callback: Callback) -> None:
        """Run something on this node."""
        self.network.current_host = self.host
        callback()

    def run_moment(self, name: str) -> None:
        """Run what was set under a name."""
        self.call(self.moments.pop(name)[1])

    def serve(self) -> bool:
        """Call back for every socket that is ready; returns whether any was."""
        served = False
        for number in sorted({*self._readers, *self._writers}):
            sock = self.network.sockets.get(number)
            for callbacks, is_ready in ((self._writers, "is_writable"), (self._readers, "is_readable")):
                if sock is not None and number in callbacks and getattr(sock, is_ready):
                    self.call(callbacks[number])
                    served = True
        return served
