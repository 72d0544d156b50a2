"""Samples of the nodes' utilization as they come, one `top` stream per node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from clusterctl.client.rpc import tasks
from clusterctl.client.rpc.cluster import Cluster
from clusterctl.client.rpc.fanout import Outcome
from clusterctl.client.rpc.session import Interpreter, Session
from clusterctl.client.watch.streams import StreamEnd, Streams, can_reconnect
from clusterctl.errors import NodeError
from clusterctl.plans.facts.utilization import parse_sample
from clusterctl.protocol.messages.facts import Sample
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.inventory.model import Node

PAUSES = (1.0, 30.0)  # seconds before a node that stopped answering is tried again, at first and at most


class UtilizationStreams:
    """The nodes' samples, or why there are none; a node that falls away comes back by itself."""

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
        self._streams = Streams(nodes, self._open_session, self._parse, pauses=PAUSES)

    def open_all(self) -> None:
        """Open every node's stream."""
        self._streams.open_all()

    def close(self) -> None:
        """End all streams; the nodes see the end of their stdin and leave."""
        self._streams.close()

    def updates(self, wait: float) -> Iterator[Outcome[Sample]]:
        """Return what arrives within `wait` seconds: a sample, or why a node sends none."""
        for update in self._streams.updates(wait):
            if isinstance(update, StreamEnd):
                yield self._on_end(update)
            else:
                yield update

    def _parse(self, name: str, header: Untrusted, _: bytes) -> Iterator[Outcome[Sample]]:
        sample = parse_sample(header.unread("sample"))
        if sample is not None:
            yield Outcome(self._nodes[name], sample, None, 0.0)

    def _on_end(self, end: StreamEnd) -> Outcome[Sample]:
        error = end.error or NodeError("CC-RUN-003", "ended", node=end.node)
        if self._reconnect and can_reconnect(error):
            self._streams.reopen(end.node, error)
        return Outcome(self._nodes[end.node], None, error, 0.0)

    def _open_session(self, node: Node, stale: bool) -> Session:
        if stale:
            self._cluster.forget(node)  # it may look alive and be dead
        c = self._cluster.connection(node)
        session: Session = tasks.top(c, node, self._interpreters[node.name], self._interval)
        return session
