"""Watch a run from this machine until it ends: show its lines, and stop every node at the first failure."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fabric import Connection

from clusterctl.plans.cause import TAIL_LINES, Failure
from clusterctl.plans.redact import redact
from clusterctl.plans.state import FAILED, FAILED_SETUP, LOST, NodeState
from clusterctl.plans.verdict import Verdict, judge
from clusterctl.runs import tasks
from clusterctl.runs.cluster import Cluster
from clusterctl.runs.follow import Follower, LogLines, NodeEvent, StateChange, StreamEnd, Update
from clusterctl.runs.session import Session
from clusterctl.specs.inventory import Node

FAILURE_GRACE = (
    1.0  # seconds between TERM and KILL once a part of the run has failed, as on the failed node itself
)
RETURN_LIMIT = (
    20.0  # seconds that a node whose connection broke may take to come back before it counts as lost
)
SILENT = "CC-SSH-016"
SILENT_RETURN_LIMIT = 5.0  # the same for a node that has been silent for so long already


@dataclass
class _Part:
    """What is known of one node's part."""

    node: Node
    offset: float
    state: NodeState | None = None
    ended: bool = False
    lost: str = ""
    exits: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    torchrun: Mapping[str, Any] | None = None
    tails: dict[int | None, deque[str]] = field(default_factory=dict)


class Attached:
    """One run, watched: feeds lines to `show`, tells of failures through `notice`, ends in a verdict."""

    def __init__(
        self,
        cluster: Cluster,
        run: str,
        nodes: Sequence[Node],
        interpreters: Mapping[str, tasks.Interpreter],
        offsets: Mapping[str, float],
        *,
        show: Callable[[LogLines], None],
        notice: Callable[[str], None],
        secrets: Collection[str] = (),
    ) -> None:
        self._cluster, self._run, self._interpreters = cluster, run, interpreters
        self._parts = {node.name: _Part(node, offsets.get(node.name, 0.0)) for node in nodes}
        self._show, self._notice, self._secrets = show, notice, tuple(secrets)
        self._follower = Follower()
        self._stopping: threading.Thread | None = None
        self._stopped_at: float | None = None
        self._returned: deque[tuple[str, Session | None]] = deque()

    def watch(self, streams: Mapping[str, Session]) -> Verdict:
        """Follow until every node's part has ended; a KeyboardInterrupt leaves the run alone."""
        for name, stream in streams.items():
            self._follower.add(name, stream)
        try:
            while not all(part.ended for part in self._parts.values()):
                self._take_returned()
                for update in self._follower.updates(0.2):
                    self._take(update)
        finally:
            self._follower.close()
        while self._stopping is not None and self._stopping.is_alive():
            self._stopping.join(0.5)  # a join without a limit can miss a Ctrl-C
        return self._judge()

    @property
    def stopping(self) -> bool:
        """Tell whether the run is being stopped everywhere, because a part of it failed."""
        return self._stopping is not None

    def _take(self, update: Update) -> None:
        part = self._parts[update.node]
        if isinstance(update, LogLines):
            entry = replace(update, lines=tuple(redact(line, self._secrets) for line in update.lines))
            self._remember(part, entry)
            self._show(entry)
        elif isinstance(update, StateChange):
            part.state = update.state
            if update.state.state in (FAILED, FAILED_SETUP, LOST):
                self._stop_all(f"{update.node}: {update.state.reason or update.state.state}")
        elif isinstance(update, NodeEvent):
            self._take_event(part, update.event)
        else:
            self._take_end(part, update)

    def _remember(self, part: _Part, entry: LogLines) -> None:
        if entry.stream == "stderr" or entry.rank is None:
            part.tails.setdefault(entry.rank, deque(maxlen=4 * TAIL_LINES)).extend(entry.lines)

    def _take_event(self, part: _Part, event: Mapping[str, Any]) -> None:
        failed = bool(event.get("exit")) or event.get("signal") is not None
        if event.get("event") == "rank_exited" and failed and isinstance(event.get("rank"), int):
            part.exits[event["rank"]] = event
            self._stop_all(f"{part.node.name}: rank {event['rank']} failed")
        elif event.get("event") == "torchrun_exited" and failed:
            part.torchrun = event
            self._stop_all(f"{part.node.name}: torchrun failed")

    def _take_end(self, part: _Part, end: StreamEnd) -> None:
        if end.error is None:
            part.ended = True
            return
        self._notice(f"{part.node.name}: the connection broke ({end.error.message}); trying to come back")
        limit = SILENT_RETURN_LIMIT if end.error.code == SILENT else RETURN_LIMIT
        threading.Thread(target=self._return_to, args=(part.node, limit), daemon=True).start()

    def _return_to(self, node: Node, limit: float) -> None:
        """Connect again and resume the stream where it broke; runs in a thread of its own."""
        self._cluster.forget(node)
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline:
            try:
                c = self._cluster.connection(node)
                request = self._resume_request(node.name)
                stream = tasks.follow(c, node, self._interpreters[node.name], self._run, request)
            except Exception:
                time.sleep(1.0)
            else:
                self._returned.append((node.name, stream))
                return
        self._returned.append((node.name, None))

    def _resume_request(self, name: str) -> dict[str, Any]:
        offsets = self._follower.offsets.get(name, {})
        logs = {"ranks": None, "streams": ["stdout", "stderr"], "offsets": dict(offsets)}
        return {"events": self._follower.events.get(name, 0), "logs": logs, "follow": True}

    def _take_returned(self) -> None:
        while self._returned:
            name, stream = self._returned.popleft()
            if stream is not None:
                self._follower.add(name, stream)
                continue
            part = self._parts[name]
            part.ended, part.lost = True, "the connection broke and did not come back"
            self._stop_all(f"{name}: lost, {part.lost}")

    def _stop_all(self, reason: str) -> None:
        """Begin once to end the run everywhere; the streams go on and show how it ends."""
        if self._stopping is not None:
            return
        self._stopped_at = time.time()
        self._notice(f"{reason}; stopping all nodes")
        self._stopping = threading.Thread(target=self._stop_everywhere, args=(reason,), daemon=True)
        self._stopping.start()

    def _stop_everywhere(self, reason: str) -> None:
        nodes = [part.node for part in self._parts.values() if not part.lost]

        def stop(c: Connection, node: Node) -> tasks.Stopped:
            grace = FAILURE_GRACE
            stopped: tasks.Stopped = tasks.stop(
                c, node, self._interpreters[node.name], self._run, grace, reason
            )
            return stopped

        for outcome in self._cluster.each(nodes, stop):
            if outcome.error is not None:
                self._notice(f"{outcome.node.name}: could not be stopped: {outcome.error.message}")

    def _judge(self) -> Verdict:
        parts = {name: None if part.lost else part.state for name, part in self._parts.items()}
        failures = [failure for part in self._parts.values() for failure in _failures(part)]
        return judge(self._run, parts, failures, stopped_at=self._stopped_at)


def _failures(part: _Part) -> list[Failure]:
    failures = [
        _failure(part, rank, event, tuple(part.tails.get(rank, ()))) for rank, event in part.exits.items()
    ]
    if not failures and part.torchrun is not None:
        failures = [_failure(part, None, part.torchrun, tuple(part.tails.get(None, ())))]
    if part.lost:
        failures.append(
            Failure(part.node.name, None, None, None, time.time(), (), f"lost: {part.lost}", lost=True)
        )
    return failures


def _failure(part: _Part, rank: int | None, event: Mapping[str, Any], tail: tuple[str, ...]) -> Failure:
    moment = event.get("time")
    return Failure(
        node=part.node.name,
        rank=rank,
        exit=event.get("exit"),
        signal=event.get("signal"),
        time=(float(moment) if isinstance(moment, (int, float)) else time.time()) - part.offset,
        tail=tail,
    )
