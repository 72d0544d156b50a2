"""One long-lived `top` conversation per node: samples as they come, and nodes that fall away and come back."""

from __future__ import annotations

import random
import selectors
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from clusterctl.client.rpc import tasks
from clusterctl.client.rpc.cluster import Cluster
from clusterctl.client.rpc.fanout import Outcome, run_on
from clusterctl.client.rpc.session import Interpreter, Session
from clusterctl.client.watch.follower import can_reconnect
from clusterctl.errors import ClusterctlError
from clusterctl.plans.facts.utilization import Sample, parse_sample
from clusterctl.specs.inventory.model import Node

SILENCE_LIMIT = 20.0  # a node says something at least every 2 s
HEARTBEAT_INTERVAL = 5.0
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0  # seconds before a node that fell away is asked again


class UtilizationStreams:
    """Opens the conversations in threads of their own and reads them in one."""

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
        self._nodes = {node.name: node for node in nodes}
        self._reconnect = reconnect
        self._opened: deque[Outcome[Session]] = deque()
        self._sessions: dict[str, Session] = {}
        self._selector = selectors.DefaultSelector()
        self._tries: dict[str, int] = {}
        self._closed = False
        self._last_beat = time.monotonic()

    def open_all(self) -> None:
        """Open every node's conversation."""
        for node in self._nodes.values():
            self._start_opening(node, 0.0, stale=False)

    def updates(self, wait: float) -> Iterator[Outcome[Sample]]:
        """Give what arrives within `wait` seconds: a sample, or why a node is not heard."""
        while self._opened:
            yield from self._on_opened(self._opened.popleft())
        if self._sessions:
            ready = {key.data for key, _ in self._selector.select(wait)}
        else:
            time.sleep(min(wait, 0.05))
            ready = set()
        for name in [name for name in self._sessions if name in ready]:
            yield from self._read(name)
        yield from self._keep_alive()

    def close(self) -> None:
        """End all conversations; the nodes see the end of their stdin and leave."""
        self._closed = True
        for name in list(self._sessions):
            self._close_session(name)
        while self._opened:
            session = self._opened.popleft().value
            if session is not None:
                session.close()

    def _on_opened(self, opened: Outcome[Session]) -> Iterator[Outcome[Sample]]:
        name = opened.node.name
        if opened.value is not None:
            self._sessions[name] = opened.value
            self._selector.register(opened.value, selectors.EVENT_READ, name)
        elif opened.error is not None:
            yield self._on_error(name, opened.error)

    def _read(self, name: str) -> Iterator[Outcome[Sample]]:
        try:
            for header, _ in self._sessions[name].pump():
                sample = parse_sample(header.unread("sample"))
                if sample is not None:
                    self._tries.pop(name, None)
                    yield Outcome(self._nodes[name], sample, None, 0.0)
                elif header.flag("end"):
                    raise _ended_error(name)
        except ClusterctlError as error:
            yield self._on_error(name, error)

    def _keep_alive(self) -> Iterator[Outcome[Sample]]:
        now = time.monotonic()
        if now - self._last_beat < HEARTBEAT_INTERVAL:
            return
        self._last_beat = now
        for name, session in list(self._sessions.items()):
            try:
                session.check_silence(SILENCE_LIMIT)
                session.send_heartbeat()
            except ClusterctlError as error:
                yield self._on_error(name, error)

    def _on_error(self, name: str, error: ClusterctlError) -> Outcome[Sample]:
        self._close_session(name)
        tries = self._tries[name] = self._tries.get(name, 0) + 1
        if self._reconnect and not self._closed and can_reconnect(error):
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(tries - 1, 10))
            self._start_opening(self._nodes[name], pause * random.uniform(0.5, 1.0), stale=True)
        return Outcome(self._nodes[name], None, error, 0.0)

    def _close_session(self, name: str) -> None:
        session = self._sessions.pop(name, None)
        if session is not None:
            with suppress(KeyError, ValueError):
                self._selector.unregister(session)
            with suppress(ClusterctlError):
                session.close()

    def _start_opening(self, node: Node, pause: float, *, stale: bool) -> None:
        threading.Thread(target=self._open, args=(node, pause, stale), daemon=True).start()

    def _open(self, node: Node, pause: float, stale: bool) -> None:
        time.sleep(pause)
        if not self._closed:
            self._opened.append(run_on(node, lambda node: self._open_session(node, stale)))

    def _open_session(self, node: Node, stale: bool) -> Session:
        if stale:
            self._cluster.forget(node)  # it may look alive and be dead
        c = self._cluster.connection(node)
        session: Session = tasks.top(c, node, self._interpreters[node.name], self._interval)
        return session


def _ended_error(name: str) -> ClusterctlError:
    from clusterctl.errors import NodeError

    return NodeError("CC-RUN-003", "ended", node=name)
