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
from clusterctl.client.rpc.fanout import Outcome, try_on
from clusterctl.client.rpc.session import Session
from clusterctl.client.watch.follower import may_return
from clusterctl.errors import ClusterctlError
from clusterctl.plans.facts.utilization import Sample, read_sample
from clusterctl.specs.inventory.model import Node

SILENCE_LIMIT = 20.0  # a node says something at least every 2 s
BEAT_EVERY = 5.0
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0  # seconds before a node that fell away is asked again


class GaugeStreams:
    """Opens the conversations in threads of their own and reads them in one."""

    def __init__(
        self,
        cluster: Cluster,
        nodes: Sequence[Node],
        interpreters: Mapping[str, tasks.Interpreter],
        interval: float,
        *,
        returning: bool = True,
    ) -> None:
        self._cluster, self._interpreters, self._interval = cluster, interpreters, interval
        self._nodes = {node.name: node for node in nodes}
        self._returning = returning
        self._opened: deque[Outcome[Session]] = deque()
        self._sessions: dict[str, Session] = {}
        self._selector = selectors.DefaultSelector()
        self._tries: dict[str, int] = {}
        self._closed = False
        self._beaten = time.monotonic()

    def open_all(self) -> None:
        """Open every node's conversation."""
        for node in self._nodes.values():
            self._begin(node, 0.0, stale=False)

    def updates(self, wait: float) -> Iterator[Outcome[Sample]]:
        """Give what arrives within `wait` seconds: a sample, or why a node is not heard."""
        while self._opened:
            yield from self._take_opened(self._opened.popleft())
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
            self._drop(name)
        while self._opened:
            late = self._opened.popleft().value
            if late is not None:
                late.close()

    def _take_opened(self, opened: Outcome[Session]) -> Iterator[Outcome[Sample]]:
        name = opened.node.name
        if opened.value is not None:
            self._sessions[name] = opened.value
            self._selector.register(opened.value, selectors.EVENT_READ, name)
        elif opened.error is not None:
            yield self._lose(name, opened.error)

    def _read(self, name: str) -> Iterator[Outcome[Sample]]:
        try:
            for header, _ in self._sessions[name].pump():
                sample = read_sample(header.unread("sample"))
                if sample is not None:
                    self._tries.pop(name, None)
                    yield Outcome(self._nodes[name], sample, None, 0.0)
                elif header.flag("end"):
                    raise _left(name)
        except ClusterctlError as error:
            yield self._lose(name, error)

    def _keep_alive(self) -> Iterator[Outcome[Sample]]:
        now = time.monotonic()
        if now - self._beaten < BEAT_EVERY:
            return
        self._beaten = now
        for name, session in list(self._sessions.items()):
            try:
                session.check_silence(SILENCE_LIMIT)
                session.beat()
            except ClusterctlError as error:
                yield self._lose(name, error)

    def _lose(self, name: str, error: ClusterctlError) -> Outcome[Sample]:
        self._drop(name)
        tries = self._tries[name] = self._tries.get(name, 0) + 1
        if self._returning and not self._closed and may_return(error):
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(tries - 1, 10))
            self._begin(self._nodes[name], pause * random.uniform(0.5, 1.0), stale=True)
        return Outcome(self._nodes[name], None, error, 0.0)

    def _drop(self, name: str) -> None:
        session = self._sessions.pop(name, None)
        if session is not None:
            with suppress(KeyError, ValueError):
                self._selector.unregister(session)
            with suppress(ClusterctlError):
                session.close()

    def _begin(self, node: Node, pause: float, *, stale: bool) -> None:
        threading.Thread(target=self._open, args=(node, pause, stale), daemon=True).start()

    def _open(self, node: Node, pause: float, stale: bool) -> None:
        time.sleep(pause)
        if not self._closed:
            self._opened.append(try_on(node, lambda node: self._reach(node, stale)))

    def _reach(self, node: Node, stale: bool) -> Session:
        if stale:
            self._cluster.forget(node)  # it may look alive and be dead
        c = self._cluster.connection(node)
        session: Session = tasks.top(c, node, self._interpreters[node.name], self._interval)
        return session


def _left(name: str) -> ClusterctlError:
    from clusterctl.errors import NodeError

    return NodeError("the node ended the conversation", code="CC-RUN-003", node=name)
