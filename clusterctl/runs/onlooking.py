"""Look on at a run as long as it may live: what breaks is taken up again, and nothing is ever stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from clusterctl.errors import ClusterctlError
from clusterctl.runs import tasks
from clusterctl.runs.cluster import Cluster
from clusterctl.runs.follow import StateChange, StreamEnd, Update
from clusterctl.runs.streams import Streams, may_return
from clusterctl.specs.inventory import Node

LONGEST_PAUSE = 10.0  # seconds between two tries to come back
LAST_LIMIT = 60.0  # seconds that the last node may take to come back when all others have ended


class Onlooker:
    """Follows a run on some of its nodes until their parts have ended."""

    def __init__(
        self,
        cluster: Cluster,
        run: str,
        nodes: Sequence[Node],
        interpreters: Mapping[str, tasks.Interpreter],
        wish: Mapping[str, Any],
        *,
        notice: Callable[[str], None],
        clocks: Mapping[str, float] | None = None,
        offsets: Mapping[str, Mapping[str, int]] | None = None,
    ) -> None:
        self._streams = Streams(
            cluster,
            run,
            nodes,
            interpreters,
            wish,
            notice=notice,
            longest_pause=LONGEST_PAUSE,
            clocks=clocks,
            offsets=offsets,
        )
        self._awaited = {node.name for node in nodes}
        self._attempt: int | None = (wish.get("logs") or {}).get("attempt")  # the only one that is wanted
        self._over: set[str] = set()
        self._gone: set[str] = set()  # nodes whose place another has taken, or which the others lost for good

    def updates(self) -> Iterator[Update]:
        """Give what the nodes say, as it comes; a StreamEnd comes only for a node that is given up."""
        for update in self.updates_or_nothing(0.5):
            if update is not None:
                yield update

    def updates_or_nothing(self, wait: float) -> Iterator[Update | None]:
        """The same, with None at least every `wait` seconds, or after what came at once."""
        self._streams.open_all()
        try:
            while self._awaited:
                for update in self._streams.updates(wait):
                    if not isinstance(update, StreamEnd):
                        self._note(update)
                        yield update
                    elif self._ends(update.node, update.error):
                        self._awaited.discard(update.node)
                        if update.error is not None:
                            yield update
                yield None
        finally:
            self._streams.close()

    def _note(self, update: Update) -> None:
        if isinstance(update, StateChange):
            past = self._attempt is not None and self._attempt < update.state.attempt
            (self._over.discard if update.state.live and not past else self._over.add)(update.node)
            self._gone |= {seat.node for seat in update.state.roster if seat.lost}

    def _ends(self, name: str, error: ClusterctlError | None) -> bool:
        """Tell whether a node's stream has ended for good; if not, it is opened again."""
        if error is None and name in self._over:
            return True
        if not may_return(error) or self._is_vain(name):
            return True
        self._streams.reopen(name, error)
        return False

    def _is_vain(self, name: str) -> bool:
        """Tell whether a node is not worth waiting for: all others have ended, and it has not been heard for long."""
        others = self._awaited - {name}
        if name in self._gone:
            return True
        if others or not self._over - {name}:
            return False
        broke_at = self._streams.broke_at.get(name, time.monotonic())
        return name not in self._streams.heard or time.monotonic() - broke_at > LAST_LIMIT
