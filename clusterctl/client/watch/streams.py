"""One long conversation per node: opened in threads of their own, read in one loop, opened again where it broke."""

from __future__ import annotations

import random
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

from clusterctl.client.rpc import tasks
from clusterctl.client.rpc.cluster import Cluster, Outcome, run_on
from clusterctl.client.rpc.session import Interpreter, Session
from clusterctl.errors import ClusterctlError, ConnectError, ConnectionLost, HostKeyError, NodeError
from clusterctl.interrupts import INTERRUPTS
from clusterctl.plans.facts.utilization import parse_sample
from clusterctl.protocol.frames import SILENCE_LIMIT
from clusterctl.protocol.messages.facts import Sample
from clusterctl.protocol.untrusted import MalformedError, Untrusted
from clusterctl.specs.inventory.model import Node

PAUSES = (
    1.0,
    30.0,
)  # seconds before a node that stopped sending samples is tried again, at first and at most
HEARTBEAT_INTERVAL = 5.0
CHECK_INTERVAL = 1.0
MAX_BARREN = 6  # streams in a row of a node that break soon and send nothing new
BARREN_AGE = 60.0  # seconds after which a stream that breaks was none of these: a quiet run only beats
BARREN_CODE = "CC-RUN-037"
PROCESS_DIED_CODE = "CC-RUN-003"  # the stream's process on the node was killed: worth another try

T = TypeVar("T")


@dataclass(frozen=True)
class StreamEnd:
    """A node's stream has ended; `error` is the reason if it was cut."""

    node: str
    error: ClusterctlError | None


class Streams(Generic[T]):
    """The streams of some nodes; `parse` makes of each frame what `updates` gives."""

    def __init__(
        self,
        nodes: Sequence[Node],
        open_session: Callable[[Node, bool], Session],
        parse: Callable[[str, Untrusted, bytes], Iterable[T]],
        *,
        pauses: tuple[float, float],
        is_new: Callable[[T], bool] = lambda _: True,
    ) -> None:
        """`open_session` is called in a thread, with whether the node's connection may look alive and be dead.

        `pauses` are the seconds before a stream is opened again the first time, and at most. `is_new` is whether an
        update is more than what any stream begins with.
        """
        self._nodes = {node.name: node for node in nodes}
        self._open_session, self._parse = open_session, parse
        self._first_pause, self._longest_pause = pauses
        self._is_new = is_new
        self._opened: deque[Outcome[Session]] = deque()
        self._sessions: dict[str, Session] = {}
        self._unread: set[str] = set()
        self._closed = False
        self._last_beat = self._last_check = time.monotonic()
        self._wakeup_writer, self._wakeup_reader = socket.socketpair()
        self._wakeup_reader.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wakeup_reader, selectors.EVENT_READ, None)
        self.last_received: dict[str, float] = {}  # when each node last sent anything, beats included
        self.tries: dict[str, int] = {}  # how often in a row each node's stream failed
        self._barren: dict[str, int] = {}  # how often in a row it broke soon without anything new
        self._opened_at: dict[str, float] = {}

    def open_all(self) -> None:
        """Open every node's stream."""
        for node in self._nodes.values():
            self._start_opening(node, 0.0, stale=False)

    def reopen(self, name: str, error: ClusterctlError | None) -> None:
        """Open a stream again after a pause that grows."""
        tries = self.tries[name] = self.tries.get(name, 0) + 1
        longest = min(self._longest_pause, self._first_pause * 2.0 ** min(tries - 1, 20))
        stale = isinstance(error, (ConnectError, ConnectionLost)) or is_barren(error)
        self._start_opening(self._nodes[name], longest * random.uniform(0.5, 1.0), stale=stale)

    def add(self, name: str, session: Session) -> None:
        """Begin to read a node's stream."""
        self._sessions[name] = session
        self._opened_at[name] = time.monotonic()
        self._barren[name] = self._barren.get(name, 0) + 1
        self._selector.register(session, selectors.EVENT_READ, name)

    @property
    def open(self) -> bool:
        """Return whether any stream is still open."""
        return bool(self._sessions)

    def updates(self, wait: float, only: str | None = None) -> Iterator[T | StreamEnd]:
        """Yield what arrives within `wait` seconds, early when something came.

        A stream that could not be opened ends as one that was cut. `only` leaves other nodes unread, so that they wait.
        """
        while self._opened:
            opened = self._opened.popleft()
            if opened.value is None:
                yield StreamEnd(opened.node.name, opened.error)
            else:
                self.add(opened.node.name, opened.value)
        if only is not None:
            self._pause_others(only)
        ready = {key.data for key, _ in INTERRUPTS.select(self._selector, wait)}
        if None in ready:
            self._wakeup_reader.recv(512)
        for name in [name for name in self._sessions if name in ready]:
            yield from self._read(name)
        yield from self._keep_alive(only)

    def close(self) -> None:
        """Close all streams; the runs go on."""
        self._closed = True
        for name in list(self._sessions):
            self._close_session(name)
        self._close_opened()
        self._selector.close()
        self._wakeup_writer.close()
        self._wakeup_reader.close()

    def _start_opening(self, node: Node, pause: float, *, stale: bool) -> None:
        threading.Thread(target=self._open, args=(node, pause, stale), daemon=True).start()

    def _open(self, node: Node, pause: float, stale: bool) -> None:
        time.sleep(pause)
        if self._closed:
            return
        self._opened.append(run_on(node, lambda node: self._open_session(node, stale)))
        if self._closed:  # meanwhile: it is not going to be read
            self._close_opened()
        with suppress(OSError):
            self._wakeup_writer.send(b".")

    def _close_opened(self) -> None:
        with suppress(IndexError):
            while True:
                session = self._opened.popleft().value
                if session is not None:
                    session.close()

    def _pause_others(self, name: str) -> None:
        for other, session in self._sessions.items():
            if other != name and other not in self._unread:
                self._selector.unregister(session)
                self._unread.add(other)
        if name in self._unread:
            self._selector.register(self._sessions[name], selectors.EVENT_READ, name)
            self._unread.discard(name)

    def _read(self, name: str) -> Iterator[T | StreamEnd]:
        session = self._sessions[name]
        try:
            for header, body in session.pump():
                self.last_received[name] = time.monotonic()
                for update in self._parse(name, header, body):
                    self.tries.pop(name, None)
                    if self._is_new(update):
                        self._barren[name] = 0
                    yield update
        except ClusterctlError as error:
            yield self._drop(name, error)
        except MalformedError as error:
            yield self._drop(name, NodeError("CC-RUN-035", node=name, reason=str(error)))
        else:
            if session.ended:
                yield self._drop(name, None)

    def _keep_alive(self, only: str | None) -> Iterator[StreamEnd]:
        """Take notice of nodes that have been silent for too long; send every node a beat when one is due."""
        now = time.monotonic()
        beat_due = now - self._last_beat >= HEARTBEAT_INTERVAL
        check_due = now - self._last_check >= CHECK_INTERVAL
        self._last_beat = now if beat_due else self._last_beat
        self._last_check = now if check_due else self._last_check
        for name, session in list(self._sessions.items()) if beat_due or check_due else ():
            try:
                if only in (None, name):
                    session.check_silence(SILENCE_LIMIT)
                if beat_due:
                    session.send_heartbeat()
            except ClusterctlError as error:
                yield self._drop(name, error)

    def _drop(self, name: str, error: ClusterctlError | None) -> StreamEnd:
        self._close_session(name)
        if time.monotonic() - self._opened_at[name] > BARREN_AGE:
            self._barren[name] = 0
        if error is not None and self._barren[name] >= MAX_BARREN:
            error = NodeError(BARREN_CODE, node=name, count=self._barren[name], evidence=error.message)
        return StreamEnd(name, error)

    def _close_session(self, name: str) -> None:
        session = self._sessions.pop(name)
        if name in self._unread:
            self._unread.discard(name)  # its next stream is another one
        else:
            self._selector.unregister(session)
        session.close()


def is_barren(error: ClusterctlError | None) -> bool:
    """Return whether a node's streams break again and again without anything new."""
    return error is not None and error.code == BARREN_CODE


def can_reconnect(error: ClusterctlError | None) -> bool:
    """Return whether a stream that ended so is worth another try: the connection or its process broke, not the run."""
    if error is None or error.code == PROCESS_DIED_CODE:
        return True
    return isinstance(error, (ConnectError, ConnectionLost)) and not isinstance(error, HostKeyError)


class UtilizationStreams(Streams[Outcome[Sample]]):
    """The nodes' samples of their utilization, or why there are none; a node that falls away comes back by itself."""

    def __init__(
        self,
        cluster: Cluster,
        nodes: Sequence[Node],
        interpreters: Mapping[str, Interpreter],
        interval: float,
        *,
        reconnect: bool = True,
    ) -> None:
        self._cluster, self._interpreters, self._interval = cluster, interpreters, interval
        self._reconnect = reconnect
        super().__init__(nodes, self._open_top, self._parse_sample, pauses=PAUSES)

    def updates(self, wait: float, only: str | None = None) -> Iterator[Outcome[Sample]]:
        """Yield what arrives within `wait` seconds: a sample, or why a node sends none."""
        for update in super().updates(wait, only):
            yield self._on_end(update) if isinstance(update, StreamEnd) else update

    def _parse_sample(self, name: str, header: Untrusted, _: bytes) -> Iterator[Outcome[Sample]]:
        sample = parse_sample(header.unread("sample"))
        if sample is not None:
            yield Outcome(self._nodes[name], sample, None, 0.0)

    def _on_end(self, end: StreamEnd) -> Outcome[Sample]:
        error = end.error or NodeError("CC-RUN-003", "ended", node=end.node)
        if self._reconnect and can_reconnect(error):
            self.reopen(end.node, error)
        return Outcome(self._nodes[end.node], None, error, 0.0)

    def _open_top(self, node: Node, stale: bool) -> Session:
        if stale:
            self._cluster.forget(node)  # it may look alive and be dead
        c = self._cluster.connection(node)
        session: Session = tasks.top(c, node, self._interpreters[node.name], self._interval)
        return session
