"""Watch a run from this machine until it ends: show its lines, and end it everywhere at the first failure."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from clusterctl.errors import ClusterctlError, ConnectError, ConnectionLost
from clusterctl.plans.redact import redact
from clusterctl.plans.state import FAILED, FAILED_SETUP, LOST, TIMEOUT, UNKNOWN
from clusterctl.plans.verdict import Verdict, judge
from clusterctl.runs import tasks
from clusterctl.runs.cluster import Cluster
from clusterctl.runs.ending import end_run
from clusterctl.runs.evidence import Part
from clusterctl.runs.follow import Follower, LogLines, NodeEvent, StateChange, StreamEnd, Update
from clusterctl.runs.session import Session
from clusterctl.specs.inventory import Node

RETURN_LIMIT = (
    20.0  # seconds that a node whose connection broke may take to come back before it counts as lost
)
SILENT = "CC-SSH-016"
SILENT_RETURN_LIMIT = 5.0  # the same for a node that has been silent for so long already
ALONE_LIMIT = 600.0  # the same when no node is heard at all, so that the fault is probably on our side
VERB_DIED = "CC-RUN-003"  # the stream's process on the node was killed: worth another try
STOP_TRIES = 3
BAD_ENDS = (FAILED, FAILED_SETUP, LOST, UNKNOWN, TIMEOUT)


class Attached:
    """One run, watched: feeds lines to `show`, tells of trouble through `notice`, ends in a verdict."""

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
        self._parts = {node.name: Part(node, offsets.get(node.name, 0.0)) for node in nodes}
        self._show, self._notice, self._secrets = show, notice, tuple(secrets)
        self._follower = Follower()
        self._opened: deque[tuple[str, Session | None, ClusterctlError | None]] = deque()
        self._give_up_at: dict[str, float] = {}
        self._alone_since: float | None = None
        self._stopping: threading.Thread | None = None
        self._stopped: set[str] = set()
        self._stopped_at: float | None = None
        self._reason = ""

    @property
    def stopping(self) -> bool:
        """Tell whether the run is being ended everywhere, because a part of it failed."""
        return self._stopped_at is not None

    def watch(self) -> Verdict:
        """Follow until every node's part has ended; an exception out of here leaves the run alone."""
        for part in self._parts.values():
            self._open_stream(part)
        try:
            while not all(part.ended for part in self._parts.values()):
                self._take_opened()
                for update in self._follower.updates(0.2):
                    self._take(update)
        finally:
            self._follower.close()
        while self._stopping is not None and self._stopping.is_alive():
            self._stopping.join(0.5)  # a join without a limit can miss a Ctrl-C
        parts = {name: None if part.lost else part.state for name, part in self._parts.items()}
        failures = [failure for part in self._parts.values() for failure in part.failures(time.time())]
        return judge(self._run, parts, failures, stopped_at=self._stopped_at)

    # what the nodes say

    def _take(self, update: Update) -> None:
        part = self._parts[update.node]
        if isinstance(update, StreamEnd):
            self._take_end(part, update.error)
            return
        self._give_up_at.pop(update.node, None)
        self._alone_since = None
        if isinstance(update, LogLines):
            entry = replace(update, lines=tuple(redact(line, self._secrets) for line in update.lines))
            part.hear_lines(entry, time.time())
            self._show(entry)
        elif isinstance(update, StateChange):
            part.state = replace(update.state, reason=redact(update.state.reason, self._secrets))
            if part.state.state in BAD_ENDS:
                self._fail(f"{update.node}: {part.state.reason or part.state.state}")
        elif isinstance(update, NodeEvent) and (trouble := part.hear_event(update.event)):
            self._fail(f"{update.node}: {trouble}")

    def _fail(self, reason: str) -> None:
        """End all, unless somebody else's `stop` is doing so, with a patience of its own."""
        if self.stopping or not any(part.asked for part in self._parts.values()):
            self._end_all(reason)

    def _take_end(self, part: Part, error: ClusterctlError | None) -> None:
        """A stream's end is the part's end only if the node has said so before."""
        if part.over and error is None:
            part.ended = True
        elif error is None or isinstance(error, (ConnectError, ConnectionLost)) or error.code == VERB_DIED:
            self._come_back(part, error)
        else:
            self._lose(part, error.message)

    # streams that break

    def _come_back(self, part: Part, error: ClusterctlError | None) -> None:
        now = time.monotonic()
        if part.node.name not in self._give_up_at:
            what = error.message if error else "the stream ended before the run"
            self._notice(f"{part.node.name}: the connection broke ({what}); trying to come back")
            limit = SILENT_RETURN_LIMIT if error is not None and error.code == SILENT else RETURN_LIMIT
            self._give_up_at[part.node.name] = now + limit
        if now < self._give_up_at[part.node.name]:
            self._open_stream(part, delay=1.0)
        elif self._others_heard(part) or self._alone_for_long(now):
            self._lose(part, "the connection broke and did not come back")
        else:
            self._open_stream(part, delay=2.0)

    def _others_heard(self, part: Part) -> bool:
        """Tell whether some other node was heard since this one fell away; if none was, the fault may be here."""
        broke_at = self._give_up_at[part.node.name] - RETURN_LIMIT
        heard = self._follower.heard
        return any(name != part.node.name and heard.get(name, 0.0) > broke_at for name in self._parts)

    def _alone_for_long(self, now: float) -> bool:
        if self._alone_since is None:
            self._alone_since = now
            self._notice(
                "no node is heard: is the network of this machine down? The run goes on; still trying"
            )
        return now - self._alone_since > ALONE_LIMIT

    def _lose(self, part: Part, why: str) -> None:
        part.ended, part.lost = True, why
        self._notice(f"{part.node.name}: lost, {why}; what runs there could not be stopped from here")
        self._end_all(f"{part.node.name}: lost")

    def _open_stream(self, part: Part, delay: float = 0.0) -> None:
        """Open a node's stream in a thread of its own, from where the last one ended."""
        threading.Thread(target=self._open, args=(part.node, delay), daemon=True).start()

    def _open(self, node: Node, delay: float) -> None:
        try:
            if delay:
                time.sleep(delay)
                self._cluster.forget(node)
            c = self._cluster.connection(node)
            stream = tasks.follow(c, node, self._interpreters[node.name], self._run, self._request(node.name))
            self._opened.append((node.name, stream, None))
        except ClusterctlError as error:
            self._opened.append((node.name, None, error))

    def _request(self, name: str) -> dict[str, Any]:
        offsets = dict(self._follower.offsets.get(name, {}))
        logs = {"ranks": None, "streams": ["stdout", "stderr"], "offsets": offsets}
        return {"events": self._follower.events.get(name, 0), "logs": logs, "follow": True}

    def _take_opened(self) -> None:
        while self._opened:
            name, stream, error = self._opened.popleft()
            if stream is None:
                self._take_end(self._parts[name], error)
                continue
            self._follower.add(name, stream)
            if self.stopping:
                self._end_rest()

    # the end of all

    def _end_all(self, reason: str) -> None:
        """Begin once to end the run everywhere; the streams go on and show how it ends."""
        if not self.stopping:
            self._stopped_at, self._reason = time.time(), reason
            self._notice(f"{reason}; stopping all nodes")
            self._end_rest()

    def _end_rest(self) -> None:
        """Stop the nodes that have not been stopped yet, unless that is under way."""
        if self._stopping is None or not self._stopping.is_alive():
            self._stopping = threading.Thread(target=self._stop_nodes, daemon=True)
            self._stopping.start()

    def _stop_nodes(self) -> None:
        errors: dict[str, ClusterctlError] = {}
        for attempt in range(STOP_TRIES):
            time.sleep(attempt)
            parts = [
                part for name, part in self._parts.items() if name not in self._stopped and not part.lost
            ]
            nodes = [part.node for part in parts]
            errors = end_run(self._cluster, nodes, self._interpreters, self._run, self._reason)
            self._stopped |= {node.name for node in nodes} - set(errors)
            if not errors:
                return
        for name, error in errors.items():
            self._notice(f"{name}: could not be stopped: {error.message}")
