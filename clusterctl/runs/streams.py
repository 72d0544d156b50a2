"""The streams of one run, one per node: opened side by side, and after a cut again from where the last one ended."""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from clusterctl.errors import ClusterctlError, ConnectError, ConnectionLost, HostKeyError
from clusterctl.plans.attempts import attempt_of
from clusterctl.runs import tasks
from clusterctl.runs.clocks import measure_clock
from clusterctl.runs.cluster import Cluster
from clusterctl.runs.executor import try_on
from clusterctl.runs.follow import Follower, StreamEnd, Update
from clusterctl.runs.session import Session
from clusterctl.specs.inventory import Node

FIRST_PAUSE = 0.25  # seconds before a cut stream is opened again; doubled each time that fails
VERB_DIED = "CC-RUN-003"  # the stream's process on the node was killed: worth another try


class Streams:
    """Opens a run's streams in threads of their own and reads them in one; resumes each at the byte it had."""

    def __init__(
        self,
        cluster: Cluster,
        run: str,
        nodes: Iterable[Node],
        interpreters: Mapping[str, tasks.Interpreter],
        wish: Mapping[str, Any],
        *,
        notice: Callable[[str], None],
        longest_pause: float,
        clocks: Mapping[str, float] | None = None,
        offsets: Mapping[str, Mapping[str, int]] | None = None,
    ) -> None:
        """Ask for what `wish` says; `clocks` are the nodes' clocks minus ours, as far as they are known.

        `offsets` are where to go on in each node's files, where something of them was read before.
        """
        self._cluster, self._run, self._interpreters, self._wish = cluster, run, interpreters, wish
        self._nodes = {node.name: node for node in nodes}
        self._notice, self._longest_pause = notice, longest_pause
        self._follower = Follower(live=bool(wish.get("follow", True)))
        self._follower.clocks.update(clocks or {})
        for name, known in (offsets or {}).items():
            self._follower.offsets[name] = dict(known)
            self._follower.placed.add(name)
        self._opened: deque[tuple[str, Session | None, ClusterctlError | None]] = deque()
        self._measured: set[str] = set()  # whose clock is known as well as it can be
        self.tries: dict[str, int] = {}  # how often in a row each node could not be heard
        self.broke_at: dict[str, float] = {}  # when each node that is not heard now fell away

    @property
    def offsets(self) -> Mapping[str, Mapping[str, int]]:
        """How far each node's files have been read, in bytes."""
        return self._follower.offsets

    @property
    def heard(self) -> Mapping[str, float]:
        """When each node last said anything, beats included."""
        return self._follower.heard

    def open_all(self) -> None:
        """Open every node's stream."""
        for node in self._nodes.values():
            self._begin(node)

    def reopen(self, name: str, error: ClusterctlError | None) -> None:
        """Open a stream again after a pause that grows; the first time it is said that the connection broke."""
        if name not in self.broke_at:
            self.broke_at[name] = time.monotonic()
            what = error.message if error else "the stream ended before the run"
            broke = "the connection broke" if name in self.heard else "no answer yet"
            self._notice(f"{name}: {broke} ({what}); trying to come back")
        tries = self.tries[name] = self.tries.get(name, 0) + 1
        longest = min(self._longest_pause, FIRST_PAUSE * 2.0 ** min(tries - 1, 20))
        stale = isinstance(error, (ConnectError, ConnectionLost))
        self._begin(self._nodes[name], longest * random.uniform(0.5, 1.0), stale=stale)

    def updates(self, wait: float, only: str | None = None) -> Iterator[Update]:
        """Give what arrives within `wait` seconds; a stream that could not be opened ends as one that was cut.

        `only` leaves the other nodes unread, so that they wait.
        """
        while self._opened:
            name, stream, error = self._opened.popleft()
            if stream is None:
                yield StreamEnd(name, error)
            else:
                self._follower.add(name, stream)
        for update in self._follower.updates(wait, only):
            if not isinstance(update, StreamEnd):
                self._welcome(update.node)
            yield update

    def close(self) -> None:
        """Leave all streams; the run goes on."""
        self._follower.close()

    def _welcome(self, name: str) -> None:
        self.tries.pop(name, None)
        if self.broke_at.pop(name, None) is not None:
            self._notice(f"{name}: back; going on where the stream broke")

    def _begin(self, node: Node, pause: float = 0.0, *, stale: bool = False) -> None:
        threading.Thread(target=self._open, args=(node, pause, stale), daemon=True).start()

    def _open(self, node: Node, pause: float, stale: bool) -> None:
        time.sleep(pause)
        opened = try_on(node, lambda node: self._reach(node, stale))
        self._opened.append((node.name, opened.value, opened.error))
        self._follower.wake()

    def _reach(self, node: Node, stale: bool) -> Session:
        if stale:
            self._cluster.forget(node)  # it may look alive and be dead
        c = self._cluster.connection(node)
        request = self._request(node.name)
        stream: Session = tasks.follow(c, node, self._interpreters[node.name], self._run, request)
        if request.get("clock"):
            self._follower.clocks[node.name] = measure_clock(stream)
            self._measured.add(node.name)
        return stream

    def _request(self, name: str) -> dict[str, Any]:
        """Ask for what follows on what was heard; a tail is measured only once, at the beginning."""
        known = self._follower
        request: dict[str, Any] = {"follow": True, **self._wish}
        if name in self._measured:
            del request["clock"]  # once is enough, and lines of one file must never be judged by two clocks
        if request["events"] is not None:
            request["events"] = known.events.get(name, 0)
        if request["logs"] is not None:
            tail = None if name in known.placed else request["logs"].get("tail")
            offsets = dict(known.offsets.get(name, {}))
            request["logs"] = {**request["logs"], "offsets": offsets, "tail": tail}
            moment = request["logs"].get("moment")
            if moment is not None and "clock" not in request:  # else the node learns how its clock goes
                request["logs"]["moment"] = moment + known.clocks.get(name, 0.0)
            if offsets and request["follow"] and request["logs"].get("attempt") is None:
                first = min(
                    map(attempt_of, offsets)
                )  # what an attempt wrote while we were away is wanted too
                request["logs"]["since"] = min(first, request["logs"].get("since") or first)
        return request


def may_return(error: ClusterctlError | None) -> bool:
    """Tell whether a stream that ended so is worth another try: the connection or its process broke, not the run."""
    if error is None or error.code == VERB_DIED:
        return True
    return isinstance(error, (ConnectError, ConnectionLost)) and not isinstance(error, HostKeyError)
