"""What one node reported, evidence for the cause."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from clusterctl.client.watch.follower import LogLines
from clusterctl.plans.runs.gang_record import Seat, attempt_of
from clusterctl.plans.runs.state import LOST, UNKNOWN, WAITING, NodeState, roster_of
from clusterctl.protocol.end_record import MOST_ATTEMPTS, MOST_EXIT, MOST_RANK, MOST_SIGNAL
from clusterctl.protocol.root_cause import Failure, signal_name
from clusterctl.protocol.tracebacks import Words
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import render_span


@dataclass(frozen=True)
class End:
    """How a process of a node ended, and when by the node's clock; `kind` is the event that told."""

    kind: str
    exit: int | None
    signal: int | None
    time: float | None

    @property
    def failed(self) -> bool:
        """Tell whether it ended in any way but exit code 0."""
        return bool(self.exit) or self.signal is not None


@dataclass
class Part:
    """One node's part: `offset` is its clock minus ours, `met` whether it was ever heard, `lost` why we gave it up.

    `last_seen` is when anything came from it, on our clock.
    """

    node: Node
    offset: float
    state: NodeState | None = None
    ended: bool = False
    lost: str = ""
    met: bool = True
    last_seen: float | None = None
    asked: bool = False
    stopped_at: float | None = None  # when the node was first told to end the run, on our clock
    broken: End | None = None
    torchrun: End | None = None
    exits: dict[int, End] = field(default_factory=dict)
    finished: dict[int, End] = field(default_factory=dict)
    words: dict[int | None, Words] = field(default_factory=dict)
    frozen: set[int] = field(default_factory=set)  # ranks that SIGSTOP held, as last heard while they lived
    attempt: int = 1
    attempt_over: bool = False  # this node's part of it has ended, and another one may follow

    @property
    def over(self) -> bool:
        """Tell whether the node itself has said that its part has ended."""
        return self.state is not None and not self.state.live

    def begin_attempt(self, number: int) -> None:
        """Forget what was heard of the attempts before this one."""
        self.attempt, self.asked, self.attempt_over = number, False, False
        self.stopped_at = self.broken = self.torchrun = None
        for heard in (self.exits, self.finished, self.words, self.frozen):
            heard.clear()

    def hear_lines(self, entry: LogLines, now: float) -> None:
        """Remember what a rank (or torchrun, rank None) wrote to stderr in this attempt."""
        if attempt_of(entry.file) != self.attempt:
            return
        moment = now if entry.written is None else min(now, entry.written - self.offset)
        words = self.words.setdefault(entry.rank, Words())
        words.notice(moment)
        if entry.stream == "stderr" or entry.rank is None:
            for line in entry.lines:
                words.hear(line, moment)

    def newly_frozen(self, state: NodeState) -> list[int]:
        """Take notice of the ranks that a signal has stopped; gives those that ran before."""
        if not state.live or self.asked:
            return []
        before, ended = self.frozen, {rank.rank for rank in state.ranks if rank.failed}
        self.frozen = {rank.rank for rank in state.ranks if rank.stopped} | (before & ended)
        return sorted(self.frozen - before)

    def hear_event(self, event: Untrusted) -> str:
        """Take an event; gives what failed by it, or nothing."""
        kind, rank, end = event.text("event", 40), event.integer("rank", 0, MOST_RANK), read_end(event)
        if kind == "attempt":
            self.begin_attempt(event.count("attempt", MOST_ATTEMPTS) or self.attempt)
        elif kind in ("after", "attempt_ended"):  # the ranks have ended; what comes after is not theirs
            self.attempt_over = True
        elif kind == "stopping":
            self.asked = True
            when = self._when(end)
            self.stopped_at = when if self.stopped_at is None else min(when, self.stopped_at)
        elif kind in ("guardian_lost", "agent_lost"):
            self.broken = end
            return f"the {kind.partition('_')[0]} was lost"
        elif kind == "rank_exited" and rank is not None:
            (self.exits if end.failed else self.finished)[rank] = end
            return f"rank {rank} failed" if end.failed and not self.asked else ""
        elif kind == "torchrun_exited" and end.failed:
            self.torchrun = end
            if end.signal is not None and not (self.asked or self.exits):
                self.broken = end
            return "" if self.asked else "torchrun failed"
        return ""

    def failures(self, now: float) -> list[Failure]:
        """Give everything that did not end well here, and the ranks that did: others may still have needed them."""
        found = [*self._broken(), *self._ranks()]
        if not found and self.torchrun is not None:
            found = [self._failure(None, self.torchrun)]
        if not found and self.state is not None and self.state.state in (LOST, UNKNOWN):
            found = [
                self._node_failure(self.state.reason or self.state.state, self.state.since - self.offset)
            ]
        if self.lost:
            lost = Failure(self.node.name, None, None, None, now, reason=f"lost: {self.lost}", lost=True)
            found.append(replace(lost, last_seen=self.last_seen))
        return found + [self._failure(rank, event) for rank, event in sorted(self.finished.items())]

    def _broken(self) -> Iterator[Failure]:
        """Give the end of what watches over the ranks; theirs followed, by our own hand."""
        if self.broken is not None:
            reason, number = self.state.reason if self.state else "", self.broken.signal
            who = self.broken.kind.partition("_")[0]
            how = f"torchrun was killed by {signal_name(number)}" if number else f"the {who} was killed"
            yield self._node_failure(reason or how, self._when(self.broken))

    def _ranks(self) -> Iterator[Failure]:
        """Give the failed ranks, also those whose end only the state tells of, since torchrun reaped them first."""
        told = {rank.rank: rank for rank in (self.state.ranks if self.state else ()) if rank.failed}
        for rank in sorted({*self.exits, *told}):
            end = self.exits.get(rank) or End("", told[rank].exit, told[rank].signal, None)
            yield self._failure(rank, end)

    def _failure(self, rank: int | None, end: End) -> Failure:
        words = self.words.get(rank) or Words()
        return Failure(
            node=self.node.name,
            rank=rank,
            exit=end.exit,
            signal=end.signal,
            time=self._when(end),
            tail=tuple(words.tail),
            exception=words.exception,
            message=words.message,
            raised_at=words.raised_at,
            origin=words.origin,
            where=words.where,
            went_on=words.went_on,
            frozen=rank in self.frozen,
            after_stop=self.stopped_at is not None and self._when(end) >= self.stopped_at,
            starved=any(
                told.rank == rank and told.starved for told in (self.state.ranks if self.state else ())
            ),
        )

    def _node_failure(self, reason: str, time: float) -> Failure:
        return Failure(self.node.name, None, None, None, time, reason=reason)

    def _when(self, end: End) -> float:
        """Give the moment of an event on our clock; one without a time came with the end of its part."""
        if end.time is not None:
            return end.time - self.offset
        return (self.state.since if self.state else 0.0) - self.offset


def read_end(event: Untrusted) -> End:
    """Read how something ended."""
    return End(
        event.text("event", 40),
        event.integer("exit", -MOST_EXIT, MOST_EXIT),
        event.integer("signal", 1, MOST_SIGNAL),
        event.moment("time"),
    )


LONGEST_PAUSE = 30 * 86400.0  # seconds


class Attempts:
    """The attempts so far, told once each, whichever node says so first.

    A node sends its new state before the events and lines that led to it, and gets ready while the pause lasts. So the
    word that an attempt begins waits for its first line, or until it runs and nothing more comes.
    """

    def __init__(self, known: Mapping[str, NodeState | None], notice: Callable[[str], None]) -> None:
        self._notice = notice
        self._roster: tuple[Seat, ...] = ()
        self._told: dict[str, NodeState] = {}
        self._pausing: dict[int, set[str]] = {}  # who has told that another attempt follows this one
        self.number = max((part.attempt for part in known.values() if part), default=1)
        self._paused = self.number - 1
        self._held: list[str] = []  # notices, of which the last is that the current attempt begins
        self._runs = False

    @property
    def lost(self) -> Mapping[str, str]:
        """Why nodes are gone that took part in an earlier attempt, or would have had a place to take."""
        return {seat.node: seat.reason for seat in self._roster if seat.lost}

    @property
    def may_follow(self) -> bool:
        """Tell whether the nodes may start the run again."""
        return bool(self._roster)

    def is_settled(self, number: int) -> bool:
        """Tell whether it is known that another attempt follows this one."""
        return number < self.number or number <= self._paused

    def is_out(self, node: str) -> bool:
        """Tell whether a node has no part in the current attempt, or none in the next: what befalls it ends nothing."""
        return any(seat.node == node and (seat.node_rank is None or seat.lost) for seat in self._roster)

    def hear_state(self, node: str, state: NodeState, heard: Collection[str]) -> bool:
        """Take a node's state; tells whether by it a new attempt has begun, as the nodes agree that are `heard` now."""
        self._told[node] = state
        told = {name: part for name, part in self._told.items() if name in heard or name == node}
        roster = roster_of(told)
        number = max((part.attempt for part in told.values() if part.roster == roster), default=0)
        if number < self.number or not roster:
            return False
        before, self._roster = self._roster, roster
        fresh, self.number = number > self.number, number
        self._runs = state.state != WAITING or (self._runs and not fresh)
        if fresh:
            self._held.append(f"attempt {self.number} begins on {_render(roster, before)}")
        return fresh

    def hear_lines(self, file: str) -> None:
        """Take notice that lines of a log follow."""
        if attempt_of(file) == self.number:
            self.settle()

    def hear_nothing(self) -> None:
        """Take notice that nothing more came for a moment."""
        if self._runs:
            self.settle()

    def settle(self) -> None:
        """Say what is held back."""
        held, self._held = self._held, []
        for notice in held:
            self._notice(notice)

    def hear_event(self, node: str, event: Untrusted, heard: Collection[str]) -> bool:
        """Take a node's event; tells whether the nodes have decided to start the run again.

        They all say so. One that is alone with it may lie, to keep the failures of others from counting.
        """
        number, seconds = event.integer("attempt", 1), event.number("seconds", 0.0, LONGEST_PAUSE)
        if event.text("event") != "pausing" or number is None or not self._paused < number <= self.number:
            return False  # a state comes before the events that led to it, so that this may be an earlier attempt's
        told_by = self._pausing.setdefault(number, set())
        told_by.add(node)
        if len(told_by) < min(2, len({*heard, node})):
            return False
        self._paused = number
        if number == self.number:
            self.settle()
        pause = f" in {render_span(seconds)}" if seconds is not None else ""
        told = f"attempt {number}: {event.text('reason', 1000)}"
        told += f"; attempt {number + 1} begins{pause}" if number + 1 >= self.number else ""
        if self._held:
            self._held.insert(-1, told)
        else:
            self._notice(told)
        return True


def _render(roster: tuple[Seat, ...], before: tuple[Seat, ...]) -> str:
    """Name the nodes of an attempt by their ranks, and who of them was a spare."""
    fresh = {seat.node for seat in before if seat.idle}
    seats = sorted(
        (seat for seat in roster if seat.node_rank is not None), key=lambda seat: seat.node_rank or 0
    )
    kept = fold_names([seat.node for seat in seats if seat.node not in fresh])
    new = [f"{seat.node} (spare, node {seat.node_rank})" for seat in seats if seat.node in fresh]
    return ", ".join(filter(None, [kept, *new]))
