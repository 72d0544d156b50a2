"""What one node reported, evidence for the cause."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, cast

from clusterctl.client.watch.follower import LogLines
from clusterctl.node_texts import translate_node_text
from clusterctl.plans.runs.gang_record import SlotState, attempt_of
from clusterctl.plans.runs.state import NodeState, roster_of
from clusterctl.protocol.end_record import MOST_ATTEMPTS, MOST_EXIT, MOST_SIGNAL, parse_rank
from clusterctl.protocol.exit_status import signal_name
from clusterctl.protocol.ranks import Rank
from clusterctl.protocol.reasons import NODE_0_ENDED
from clusterctl.protocol.root_cause import Failure
from clusterctl.protocol.states import LOST, SUCCEEDED, UNKNOWN, WAITING
from clusterctl.protocol.tracebacks import StderrParser, marked_rank
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import render_duration
from clusterctl.translation import fill, to_translate, tr

if TYPE_CHECKING:
    from typing import Literal

    from clusterctl.protocol.messages.files import JournalEvent


class Message(NamedTuple):
    """A text in English, for the records of nodes, and the same in the user's language."""

    english: str
    shown: str

    @classmethod
    def of(cls, message: str, **facts: object) -> Message:
        """Fill a message that is marked with `to_translate`; its facts may be texts of nodes."""
        shown = {
            name: translate_node_text(fact) if isinstance(fact, str) else fact for name, fact in facts.items()
        }
        return cls(fill(message, facts), tr(message, **shown))

    @classmethod
    def of_node(cls, text: str) -> Message:
        """Take a text that a node sent."""
        return cls(text, translate_node_text(text))


RANKS_ENDED: tuple[JournalEvent, ...] = ("after", "attempt_ended")
SUPERVISOR_LOST: tuple[JournalEvent, ...] = ("guardian_lost", "agent_lost")


@dataclass(frozen=True)
class ProcessEnd:
    """How a process of a node ended, and when by the node's clock; `kind` is the event that reported it."""

    kind: JournalEvent | Literal[""]
    exit: int | None
    signal: int | None
    time: float | None

    @property
    def failed(self) -> bool:
        """Return whether it ended in any way but exit code 0."""
        return bool(self.exit) or self.signal is not None


@dataclass
class NodeReport:
    """One node's part: `clock_offset` is its clock minus ours, `lost_reason` why we gave it up.

    `contacted` is whether anything ever came from it, `last_seen` when that was last, on our clock.
    """

    node: Node
    clock_offset: float
    state: NodeState | None = None
    done: bool = False
    lost_reason: str = ""
    contacted: bool = True
    last_seen: float | None = None
    stop_requested: bool = False
    stopped_at: float | None = None  # when the node first received the order to end the run, on our clock
    supervisor_end: ProcessEnd | None = None
    torchrun_end: ProcessEnd | None = None
    failed_exits: dict[Rank, ProcessEnd] = field(default_factory=dict)
    clean_exits: dict[Rank, ProcessEnd] = field(default_factory=dict)
    parsers: dict[Rank | None, StderrParser] = field(default_factory=dict)
    suspended: set[Rank] = field(
        default_factory=set
    )  # ranks that SIGSTOP held, as last reported while they lived
    attempt: int = 1
    serves_node_0: bool = False  # the end of its program does not count once node 0's has ended
    attempt_ended: bool = False  # this node's part of it has ended, and another one may follow

    @property
    def has_ended(self) -> bool:
        """Return whether the node itself has reported that its part has ended."""
        return self.state is not None and not self.state.live

    def begin_attempt(self, number: int) -> None:
        """Forget what was received of the attempts before this one."""
        self.attempt, self.stop_requested, self.attempt_ended = number, False, False
        self.stopped_at = self.supervisor_end = self.torchrun_end = None
        for collected in (self.failed_exits, self.clean_exits, self.parsers, self.suspended):
            collected.clear()

    def on_lines(self, entry: LogLines, now: float) -> None:
        """Remember what a rank (or torchrun, rank None) wrote to stderr in this attempt."""
        if attempt_of(entry.file) != self.attempt:
            return
        moment = now if entry.written_at is None else min(now, entry.written_at - self.clock_offset)
        parser = self.parsers.setdefault(entry.rank, StderrParser())
        parser.on_output(moment)
        if entry.stream == "stderr" or entry.rank is None:
            ranks = {rank.rank for rank in (self.state.ranks if self.state else ())}
            for line in entry.lines:
                # ranks below a program may share its log, which is then of no rank
                marked = marked_rank(line) if entry.rank is None else None
                writer = self.parsers.setdefault(marked, StderrParser()) if marked in ranks else parser
                writer.feed(line, moment)

    def newly_frozen(self, state: NodeState) -> list[int]:
        """Take notice of the ranks that a signal has stopped; gives those that ran before."""
        if not state.live or self.stop_requested:
            return []
        previous, ended = self.suspended, {rank.rank for rank in state.ranks if rank.failed}
        self.suspended = {rank.rank for rank in state.ranks if rank.stopped} | (previous & ended)
        return sorted(self.suspended - previous)

    def on_event(self, event: Untrusted) -> Message | None:
        """Take an event; gives what failed by it, or nothing."""
        rank, end = parse_rank(event), parse_process_end(event)
        kind = end.kind
        if kind == "attempt":
            self.begin_attempt(event.count("attempt", MOST_ATTEMPTS) or self.attempt)
        elif kind in RANKS_ENDED:  # the ranks have ended; what comes after is not theirs
            self.attempt_ended = True
        elif kind == "stopping":
            self.stop_requested = True
            self.serves_node_0 = self.serves_node_0 or event.text("reason", 1000) == NODE_0_ENDED
            when = self._local_time(end)
            self.stopped_at = when if self.stopped_at is None else min(when, self.stopped_at)
        elif kind == "failure_held":
            self.serves_node_0 = True
        elif kind in SUPERVISOR_LOST:
            self.supervisor_end = end
            return (
                Message.of(to_translate("{node}: the guardian was lost"), node=self.node.name)
                if kind == "guardian_lost"
                else Message.of(to_translate("{node}: the agent was lost"), node=self.node.name)
            )
        elif kind == "rank_exited" and rank is not None:
            (self.failed_exits if end.failed else self.clean_exits)[rank] = end
            if end.failed and not (self.stop_requested or self.serves_node_0):
                return Message.of(to_translate("{node}: rank {rank} failed"), node=self.node.name, rank=rank)
        elif kind == "torchrun_exited" and end.failed:
            self.torchrun_end = end
            if end.signal is not None and not (self.stop_requested or self.failed_exits):
                self.supervisor_end = end
            if not (self.stop_requested or self.serves_node_0):
                return Message.of(to_translate("{node}: torchrun failed"), node=self.node.name)
        return None

    def failures(self, now: float) -> list[Failure]:
        """Give everything that did not end well here, and the ranks that did: others may still have needed them."""
        served = self.serves_node_0 and self.state is not None and self.state.state == SUCCEEDED
        listed = [] if served else [*self._supervisor_failures(), *self._rank_failures()]
        if not (listed or served) and self.torchrun_end is not None:
            listed = [self._rank_failure(None, self.torchrun_end)]
        if not listed and self.state is not None and self.state.state in (LOST, UNKNOWN):
            listed = [
                self._node_failure(
                    self.state.reason or self.state.state, self.state.since - self.clock_offset
                )
            ]
        if self.lost_reason:
            lost = Failure(
                self.node.name, None, None, None, now, reason=f"lost: {self.lost_reason}", lost=True
            )
            listed.append(replace(lost, last_seen=self.last_seen))
        return listed + [self._rank_failure(rank, event) for rank, event in sorted(self.clean_exits.items())]

    def _supervisor_failures(self) -> Iterator[Failure]:
        """Give the end of what watches over the ranks; theirs followed, by our own hand."""
        if self.supervisor_end is not None:
            reason, number = self.state.reason if self.state else "", self.supervisor_end.signal
            role = self.supervisor_end.kind.partition("_")[0]
            cause = f"torchrun was killed by {signal_name(number)}" if number else f"the {role} was killed"
            yield self._node_failure(reason or cause, self._local_time(self.supervisor_end))

    def _rank_failures(self) -> Iterator[Failure]:
        """Give the failed ranks, also those whose end only the state reports, since torchrun reaped them first."""
        reported = {rank.rank: rank for rank in (self.state.ranks if self.state else ()) if rank.failed}
        for rank in sorted({*self.failed_exits, *reported}):
            end = self.failed_exits.get(rank) or ProcessEnd(
                "", reported[rank].exit, reported[rank].signal, None
            )
            yield self._rank_failure(rank, end)

    def _rank_failure(self, rank: Rank | None, end: ProcessEnd) -> Failure:
        parser = self.parsers.get(rank) or self._shared_parser(rank, end) or StderrParser()
        return Failure(
            node=self.node.name,
            rank=rank,
            exit=end.exit,
            signal=end.signal,
            time=self._local_time(end),
            tail=tuple(parser.tail),
            exception=parser.exception,
            message=parser.message,
            raised_at=parser.raised_at,
            origin=parser.origin,
            where=parser.where,
            own_frame=parser.own_frame,
            ray_task=parser.ray_task,
            survived=parser.survived,
            suspended=rank in self.suspended,
            after_stop=self.stopped_at is not None and self._local_time(end) >= self.stopped_at,
            oom_killed=any(
                rank_state.rank == rank and rank_state.oom_killed
                for rank_state in (self.state.ranks if self.state else ())
            ),
        )

    def _shared_parser(self, rank: Rank | None, end: ProcessEnd) -> StderrParser | None:
        """Give what came without a mark in a log that ranks share; one that a signal ended wrote nothing of it."""
        logs = {state.rank: state.stderr for state in (self.state.ranks if self.state else ())}
        shares_log = rank in logs and list(logs.values()).count(logs[rank]) > 1
        return self.parsers.get(None) if shares_log and end.signal is None else None

    def _node_failure(self, reason: str, time: float) -> Failure:
        return Failure(self.node.name, None, None, None, time, reason=reason)

    def _local_time(self, end: ProcessEnd) -> float:
        """Give the moment of an event on our clock; one without a time came with the end of its part."""
        if end.time is not None:
            return end.time - self.clock_offset
        return (self.state.since if self.state else 0.0) - self.clock_offset


def read_event_name(event: Untrusted) -> JournalEvent:
    """Read which event a line of the journal is; any other text is one that is not looked at."""
    return cast("JournalEvent", event.text("event", 40))


def parse_process_end(event: Untrusted) -> ProcessEnd:
    """Read how something ended."""
    return ProcessEnd(
        read_event_name(event),
        event.integer("exit", -MOST_EXIT, MOST_EXIT),
        event.integer("signal", 1, MOST_SIGNAL),
        event.moment("time"),
    )


LONGEST_PAUSE = 30 * 86400.0  # seconds


class AttemptTracker:
    """The attempts so far, each reported once, by the first node that sends it.

    A node sends its new state before the events and lines that led to it, and gets ready while the pause lasts. So the
    word that an attempt begins waits for its first line, or until it runs and nothing more comes.
    """

    def __init__(self, known: Mapping[str, NodeState | None], notice: Callable[[str], None]) -> None:
        self._notice = notice
        self._roster: tuple[SlotState, ...] = ()
        self._states: dict[str, NodeState] = {}
        self._pause_reports: dict[
            int, set[str]
        ] = {}  # nodes that have reported that another attempt follows this one
        self.number = max((part.attempt for part in known.values() if part), default=1)
        self._last_paused = self.number - 1
        self._pending_notices: list[str] = []  # notices, of which the last is that the current attempt begins
        self._running = False

    @property
    def lost_nodes(self) -> Mapping[str, str]:
        """Why nodes are gone that took part in an earlier attempt, or would have had a place to take."""
        return {slot.node: slot.reason for slot in self._roster if slot.lost}

    @property
    def may_follow(self) -> bool:
        """Return whether the nodes may start the run again."""
        return bool(self._roster)

    def is_superseded(self, number: int) -> bool:
        """Return whether it is known that another attempt follows this one."""
        return number < self.number or number <= self._last_paused

    def is_not_participating(self, node: str) -> bool:
        """Return whether a node has no part in the current attempt, or none in the next: its failure ends nothing."""
        return any(slot.node == node and (slot.node_rank is None or slot.lost) for slot in self._roster)

    def on_state(self, node: str, state: NodeState, connected: Collection[str]) -> bool:
        """Store a node's state; return whether a new attempt has begun, as agreed by the nodes that are `connected`."""
        self._states[node] = state
        states = {name: part for name, part in self._states.items() if name in connected or name == node}
        roster = roster_of(states)
        number = max((part.attempt for part in states.values() if part.roster == roster), default=0)
        if number < self.number or not roster:
            return False
        previous, self._roster = self._roster, roster
        is_new, self.number = number > self.number, number
        self._running = state.state != WAITING or (self._running and not is_new)
        if is_new:
            nodes = _render_participants(roster, previous)
            self._pending_notices.append(tr("attempt {n} begins on {nodes}", n=self.number, nodes=nodes))
        return is_new

    def on_lines(self, file: str) -> None:
        """Take notice that lines of a log follow."""
        if attempt_of(file) == self.number:
            self.flush_notices()

    def on_idle(self) -> None:
        """Take notice that nothing more came for a moment."""
        if self._running:
            self.flush_notices()

    def flush_notices(self) -> None:
        """Report what was held back."""
        pending, self._pending_notices = self._pending_notices, []
        for notice in pending:
            self._notice(notice)

    def on_event(self, node: str, event: Untrusted, connected: Collection[str]) -> bool:
        """Take a node's event; return whether the nodes have decided to start the run again.

        All nodes report it. A single report is not enough: a broken node could hide the failures of others.
        """
        number, seconds = event.integer("attempt", 1), event.number("seconds", 0.0, LONGEST_PAUSE)
        if (
            read_event_name(event) != "pausing"
            or number is None
            or not self._last_paused < number <= self.number
        ):
            return False  # a state comes before the events that led to it, so that this may be an earlier attempt's
        reporters = self._pause_reports.setdefault(number, set())
        reporters.add(node)
        if len(reporters) < min(2, len({*connected, node})):
            return False
        self._last_paused = number
        if number == self.number:
            self.flush_notices()
        message = tr(
            "attempt {n}: {reason}", n=number, reason=translate_node_text(event.text("reason", 1000))
        )
        if number + 1 >= self.number and seconds is not None:
            pause = render_duration(seconds)
            message = tr(
                "{message}; attempt {n} begins in {pause}", message=message, n=number + 1, pause=pause
            )
        elif number + 1 >= self.number:
            message = tr("{message}; attempt {n} begins", message=message, n=number + 1)
        if self._pending_notices:
            self._pending_notices.insert(-1, message)
        else:
            self._notice(message)
        return True


def _render_participants(roster: tuple[SlotState, ...], previous: tuple[SlotState, ...]) -> str:
    """Name the nodes of an attempt by their ranks, and who of them was a spare."""
    spares = {slot.node for slot in previous if slot.is_idle}
    slots = sorted(
        (slot for slot in roster if slot.node_rank is not None), key=lambda slot: slot.node_rank or 0
    )
    regular = fold_names([slot.node for slot in slots if slot.node not in spares])
    promoted = [
        tr("{node} (spare, node {number})", node=slot.node, number=slot.node_rank)
        for slot in slots
        if slot.node in spares
    ]
    return ", ".join(filter(None, [regular, *promoted]))
