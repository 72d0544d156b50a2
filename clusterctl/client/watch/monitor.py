"""Attach: show lines, end on failure, verdict.

Watch a run from this machine until it ends: show its lines, and see to it that a failure ends it everywhere.

Where the nodes form a gang they do that themselves; it is done from here if they do not, or where there is none.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from clusterctl.client.rpc import tasks
from clusterctl.client.rpc.cluster import Cluster
from clusterctl.client.rpc.tasks import end_run
from clusterctl.client.watch.follower import (
    LogLines,
    NodeEvent,
    StateChange,
    StreamEnd,
    Streams,
    Update,
    may_return,
)
from clusterctl.client.watch.node_report import Attempts, Part
from clusterctl.errors import ClusterctlError
from clusterctl.plans.launch.world_size import describe_world_event
from clusterctl.plans.runs.gang_record import best_record, with_losses
from clusterctl.plans.runs.state import FAILED, FAILED_SETUP, LOST, TIMEOUT, UNKNOWN, NodeState
from clusterctl.plans.runs.verdict import Verdict, fill_parts, judge
from clusterctl.protocol.end_record import Record
from clusterctl.protocol.run_id import RunId
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.text import redact
from clusterctl.specs.values import Size


def describe_log_event(event: Untrusted) -> str:
    """Say what happens to a node's logs; nothing for an event that is about something else."""
    kind, limit = event.one_of("event", ("logs_cut", "logs_unbounded")), event.integer("limit", 0)
    if not kind or limit is None:
        return ""
    reached = f"its logs have reached log_limit ({Size(limit)})"
    if kind == "logs_cut":
        return f"{reached}: the middle of the longest is dropped from now on"
    return f"{reached} and grow on: the middle cannot be dropped there: {event.text('why', 300)}"


RETURN_LIMIT = (
    20.0  # seconds that a node whose connection broke may take to come back before it counts as lost
)
SILENT = "CC-SSH-016"
SILENT_RETURN_LIMIT = 5.0  # the same for a node that has been silent for so long already
ONLOOKER_RETURN_LIMIT = 3600.0  # the same for one who only watches, while other nodes are heard
ALONE_LIMIT = 600.0  # the same when no node is heard at all, so that the fault is probably on our side
LONGEST_PAUSE = 2.0  # seconds between two tries to come back
GANG_PATIENCE = 4.0  # seconds in which the nodes themselves stop a run of which a part has failed
STOP_TRIES = 3
MOST_BREAKS = (
    100  # in a row, of the one node that has not ended: each try is at most 2 s or a silence of 20 s
)
BAD_ENDS = (FAILED, FAILED_SETUP, LOST, UNKNOWN, TIMEOUT)


@dataclass(frozen=True)
class Watch:
    """What is watched, and how: `offsets` are the nodes' clocks minus ours, `reacts` is false for a mere onlooker.

    `tail` leaves out all but the last lines (of each file) written before we came, `known` is what the nodes said
    of the run before that; a node without an entry there has not been heard yet, and is not waited for.
    `names` are the nodes of the inventory, as far as they are not watched.
    """

    run: RunId
    nodes: Sequence[Node]
    interpreters: Mapping[str, tasks.Interpreter]
    offsets: Mapping[str, float]
    secrets: Collection[str] = ()
    known: Mapping[str, NodeState | None] = field(default_factory=dict)
    tail: int | None = None
    reacts: bool = True
    names: Collection[str] = ()

    def part(self, node: Node) -> Part:
        """Begin a node's part."""
        part = Part(node, self.offsets.get(node.name, 0.0), state=self.known.get(node.name))
        part.met = not self.known or part.state is not None
        return part


class Attached:
    """One run, watched: feeds lines to `show`, tells of trouble through `notice`, ends in a verdict."""

    def __init__(
        self,
        cluster: Cluster,
        watch: Watch,
        *,
        show: Callable[[LogLines], None],
        notice: Callable[[str], None],
    ) -> None:
        self._cluster, self._wish = cluster, watch
        self._parts = {node.name: watch.part(node) for node in watch.nodes}
        self._show, self._notice, self._secrets = show, notice, tuple(watch.secrets)
        self._attempts = Attempts(watch.known, lambda text: notice(redact(text, self._secrets)))
        first = self._attempts.number  # it may be over before we come to look
        logs = {"ranks": None, "streams": ["stdout", "stderr"], "tail": watch.tail, "since": first}
        request = {"events": 0, "logs": logs}
        self._streams = Streams(
            cluster,
            watch.run,
            watch.nodes,
            watch.interpreters,
            request,
            notice=notice,
            longest_pause=LONGEST_PAUSE,
        )
        self._return_limits: dict[str, float] = {}
        self._breaks: dict[str, int] = {}  # of each node's stream, since it last sent lines or events
        self._alone_since: float | None = None
        self._stopping: threading.Thread | None = None
        self._stopped: set[str] = set()
        self._stopped_at: float | None = None
        self._reason = ""
        self._told = False
        self._worlds: set[str] = set()
        self._worry: tuple[float, str] | None = None

    @property
    def stopping(self) -> bool:
        """Tell whether the run is being ended everywhere, because a part of it failed."""
        return self._stopped_at is not None

    def watch(self) -> Verdict:
        """Follow until every node's part has ended; an exception out of here leaves the run alone."""
        self._streams.open_all()
        try:
            while not all(part.ended for part in self._parts.values() if part.met):
                quiet = True
                for update in self._streams.updates(0.2):
                    self._take(update)
                    quiet = False
                if quiet:
                    self._attempts.hear_nothing()
                self._look_at_gang()
        finally:
            self._streams.close()
        self._attempts.settle()
        while self._stopping is not None and self._stopping.is_alive():
            self._stopping.join(0.5)  # a join without a limit can miss a Ctrl-C
        return self._judge()

    def _judge(self) -> Verdict:
        heard = {name: part for name, part in self._parts.items() if not part.lost}
        told = self._record()
        told = told.on_clock(self._wish.offsets.get(told.hub, 0.0)) if told else None
        known = told.failures if told else ()
        unheard = {part.node for part in told.parts} - set(heard) if told else set()
        failures = [failure for part in self._parts.values() for failure in part.failures(time.time())]
        if not self.stopping:  # else that we lost a node is why the run was ended
            failures = [failure for failure in failures if failure.node not in unheard]
        failures += [failure for failure in known if failure.node in unheard]
        stops = [self._stopped_at, *(part.stopped_at for part in self._parts.values())]
        stopped_at = min((moment for moment in stops if moment is not None), default=None)
        failures = with_losses(told, failures, stopped_at) if told else failures
        states = {name: part.state if name in heard else None for name, part in self._parts.items()}
        parts, addresses = fill_parts(states, told), told.addresses if told else {}
        return judge(self._wish.run, parts, failures, stopped_at=stopped_at, addresses=addresses)

    def _record(self) -> Record | None:
        """Give what the nodes know of the whole end."""
        records = (part.state.record for part in self._parts.values() if part.state)
        return best_record(records, {*self._parts, *self._wish.names})

    # what the nodes say

    def _take(self, update: Update) -> None:
        part = self._parts[update.node]
        if isinstance(update, StreamEnd):
            self._take_end(part, update.error)
            return
        if self._return_limits.pop(update.node, None) is not None and self.stopping:
            self._end_rest()
        self._alone_since = None
        part.met, part.last_seen = True, time.time()
        if not isinstance(update, StateChange):
            self._breaks.pop(update.node, None)
        if isinstance(update, LogLines):
            entry = replace(update, lines=tuple(redact(line, self._secrets) for line in update.lines))
            part.hear_lines(entry, time.time())
            self._attempts.hear_lines(entry.file)
            self._show(entry)
        elif isinstance(update, StateChange):
            self._take_state(part, update.state)
        elif isinstance(update, NodeEvent):
            self._take_event(part, update.event)

    @property
    def _heard(self) -> set[str]:
        """Name the nodes whose streams are open."""
        return {name for name, part in self._parts.items() if part.met and name not in self._streams.broke_at}

    def _take_event(self, part: Part, event: Untrusted) -> None:
        about_logs, about_world = describe_log_event(event), describe_world_event(event)
        if about_logs:
            self._notice(f"{part.node.name}: {about_logs}")
        if about_world and about_world not in self._worlds:  # the verdict names the other nodes
            self._worlds.add(about_world)
            self._notice(f"{part.node.name}: {about_world}")
        if self._attempts.hear_event(part.node.name, event, self._heard):
            self._worry = None
        trouble, reason = part.hear_event(event), event.text("reason", 1000)
        if self._attempts.is_settled(part.attempt):
            return
        if trouble:
            self._fail(f"{part.node.name}: {trouble}")
        elif event.text("event") == "stopping" and self._has_gang and ": " in reason:
            self._fail(reason)  # the nodes' word for what happened on one of them

    def _take_state(self, part: Part, state: NodeState) -> None:
        if self._attempts.hear_state(part.node.name, state, self._heard):
            self._worry = None
        for rank in part.newly_frozen(state):
            self._notice(f"{part.node.name}: rank {rank} is stopped (SIGSTOP); the others will wait for it")
        part.state = replace(state, reason=redact(state.reason, self._secrets))
        if part.state.state in BAD_ENDS and not self._attempts.is_out(part.node.name):
            self._fail(f"{part.node.name}: {part.state.reason or part.state.state}")

    def _fail(self, reason: str) -> None:
        """End all, unless all have ended, or somebody's `stop` is ending them with a patience of its own."""
        if self._has_gang:
            self._leave_it_to_the_gang(reason)
        elif self.stopping or not any(part.asked for part in self._parts.values()):
            self._end_all(reason)

    @property
    def _has_gang(self) -> bool:
        """Tell whether the nodes themselves end the run when a part of it fails."""
        return any(part.state and (part.state.gang or part.state.seats) for part in self._parts.values())

    def _leave_it_to_the_gang(self, reason: str) -> None:
        if self._worry is None and not self.stopping and self._goes_on():
            self._worry = (time.monotonic() + GANG_PATIENCE, redact(reason, self._secrets))
            who = "stopping all nodes" if self._wish.reacts else "the nodes are ending the run"
            who = "the nodes are ending this attempt" if self._attempts.may_follow else who
            self._notice(f"{self._worry[1]}; {who}")

    def _look_at_gang(self) -> None:
        """Do its work where it has not done it in time, and believe it about nodes that nobody hears any more."""
        if self._worry is not None and time.monotonic() > self._worry[0]:
            broken = self._streams.broke_at
            heard = [part for name, part in self._parts.items() if part.met and name not in broken]
            heard = [part for part in heard if not self._attempts.is_out(part.node.name)]
            if not all(part.over or part.asked or part.attempt_over for part in heard):
                self._end_all(self._worry[1])
        told = self._record() if self._streams.broke_at else None
        for lost in (one for one in (told.parts if told else ()) if one.lost):
            part = self._parts.get(lost.node)
            if part is not None and not part.ended and lost.node in self._streams.broke_at:
                self._lose(part, lost.reason)
        for name, why in self._attempts.lost.items():
            part = self._parts.get(name)
            if part is not None and not part.ended and name in self._streams.broke_at:
                self._lose(part, why)

    def _take_end(self, part: Part, error: ClusterctlError | None) -> None:
        """A stream's end is the part's end only if the node has said so before."""
        if part.over and error is None:
            part.ended = True
        elif part.lost:
            return
        elif may_return(error):
            self._come_back(part, error)
        else:
            self._lose(part, error.message if error else "")

    # streams that break

    def _come_back(self, part: Part, error: ClusterctlError | None) -> None:
        name, now = part.node.name, time.monotonic()
        silent = error is not None and error.code == SILENT
        limit = self._return_limits.setdefault(name, SILENT_RETURN_LIMIT if silent else RETURN_LIMIT)
        only_looks_on = self._has_gang or not self._wish.reacts
        if only_looks_on and any(other.met and not other.ended for other in self._others(part)):
            limit = ONLOOKER_RETURN_LIMIT
        broke_at = self._streams.broke_at.get(name, now)
        self._breaks[name] = self._breaks.get(name, 0) + 1
        met = [other for other in self._others(part) if other.met]
        if met and all(other.ended for other in met) and self._breaks[name] > MOST_BREAKS:
            self._lose(part, f"its stream broke {MOST_BREAKS} times and brought nothing")
            return
        overdue = now >= broke_at + limit
        if part.met and overdue and (self._others_heard(name, broke_at) or self._alone_for_long(now)):
            self._lose(part, "the connection broke and did not come back")
        else:
            self._streams.reopen(name, error)

    def _others_heard(self, name: str, broke_at: float) -> bool:
        """Tell whether some other node was heard since this one fell away; if none was, the fault may be here."""
        heard = self._streams.heard
        return any(other != name and heard.get(other, 0.0) > broke_at for other in self._parts)

    def _others(self, part: Part) -> list[Part]:
        return [other for other in self._parts.values() if other is not part]

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
        if not self._attempts.is_out(part.node.name):
            self._end_all(f"{part.node.name}: lost")

    # the end of all

    def _end_all(self, reason: str) -> None:
        """Begin once to end the run everywhere; the streams go on and show how it ends."""
        if not self._goes_on() or self.stopping:
            return
        if self._wish.reacts:
            self._stopped_at, self._reason = time.time(), reason
            self._notice(f"{reason}; stopping all nodes")
            self._end_rest()
        elif not self._told:
            self._told = True
            self._notice(f"{reason}; the run is not yours, so nothing is stopped from here")

    def _goes_on(self) -> bool:
        """Tell whether any part of the run may still live."""
        return not all(part.over or part.lost for part in self._parts.values())

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
            errors = end_run(self._cluster, nodes, self._wish.interpreters, self._wish.run, self._reason)
            self._stopped |= {node.name for node in nodes} - set(errors)
            if not errors:
                return
        for name, error in errors.items():
            self._notice(f"{name}: could not be stopped: {error.message}")
