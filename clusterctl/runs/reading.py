"""Read what a run's logs hold now: one node after the other, or all of them in the order of time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from clusterctl.errors import ClusterctlError
from clusterctl.runs import tasks
from clusterctl.runs.cluster import Cluster
from clusterctl.runs.follow import LogLines, StreamEnd, Update
from clusterctl.runs.inorder import InOrder
from clusterctl.runs.streams import Streams, may_return
from clusterctl.specs.inventory import Node

TRIES = 3  # in a row, to open a stream that was cut; a pager that nobody turns over cuts it as well
LONGEST_PAUSE = 1.0  # seconds between them


class Reading:
    """The streams of a run's nodes, each read to its end once; nothing is doubled if one has to be opened again."""

    def __init__(
        self,
        cluster: Cluster,
        run: str,
        nodes: Sequence[Node],
        interpreters: Mapping[str, tasks.Interpreter],
        wish: Mapping[str, Any],
        *,
        clocks: Mapping[str, float],
    ) -> None:
        self._awaited = [node.name for node in nodes]
        self._cut: dict[str, ClusterctlError] = {}  # streams that ended while it was not their turn
        self._streams = Streams(
            cluster, run, nodes, interpreters, wish, notice=_hush, longest_pause=LONGEST_PAUSE, clocks=clocks
        )

    @property
    def offsets(self) -> Mapping[str, Mapping[str, int]]:
        """How far each node's files have been read, in bytes."""
        return self._streams.offsets

    def in_turn(self) -> Iterator[Update]:
        """Give what the nodes say, of one after the other; a StreamEnd comes for each, at its end."""
        self._streams.open_all()
        try:
            while self._awaited:
                turn = self._awaited[0]
                for update in self._read(turn):
                    yield from self._take(update, turn)
        finally:
            self._streams.close()

    def in_order(self) -> Iterator[list[LogLines] | StreamEnd]:
        """Give the lines of all nodes, the oldest first, as many at a time as are known to be next."""
        order = InOrder(self._awaited)
        self._streams.open_all()
        try:
            while (node := order.behind) is not None:
                for heard in self._read(node):
                    for update in self._take(heard, node):
                        if isinstance(update, LogLines):
                            order.hear(update)
                        elif isinstance(update, StreamEnd):
                            order.end(update.node)
                            yield update
                yield list(order.ready())
        finally:
            self._streams.close()

    def _read(self, turn: str) -> Iterator[Update]:
        """Read from one node; a stream that was cut while others were read is opened again now that it is needed."""
        if turn in self._cut:
            self._streams.reopen(turn, self._cut.pop(turn))
        return self._streams.updates(1.0, only=turn)

    def _take(self, update: Update, turn: str) -> Iterator[Update]:
        """Pass an update on, unless it is the end of a stream that is worth another try."""
        if not isinstance(update, StreamEnd):
            yield update
            return
        name, error, tries = update.node, update.error, self._streams.tries.get(update.node, 0)
        if error is not None and may_return(error) and tries < TRIES:
            if name == turn:
                self._streams.reopen(name, error)
            else:
                self._cut[name] = error  # a node hangs up when nobody reads for a minute
            return
        self._awaited = [other for other in self._awaited if other != name]
        yield update


def _hush(_: str) -> None:
    """Say nothing: whoever reads is told of what fails for good."""
