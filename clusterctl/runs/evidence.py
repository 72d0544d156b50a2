"""What one node has said about its part of a run, as it came in: the material for the verdict."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from clusterctl.plans.attempts import MOST_ATTEMPTS, attempt_of
from clusterctl.plans.cause import Failure, signal_name
from clusterctl.plans.gang import MOST_EXIT, MOST_RANK, MOST_SIGNAL
from clusterctl.plans.state import LOST, UNKNOWN, NodeState
from clusterctl.plans.words import Words
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.runs.follow import LogLines
from clusterctl.specs.inventory import Node


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
    """One node's part: `offset` is its clock minus ours, `met` whether it was ever heard, `lost` why we gave it up."""

    node: Node
    offset: float
    state: NodeState | None = None
    ended: bool = False
    lost: str = ""
    met: bool = True
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
            found.append(self._node_failure(f"lost: {self.lost}", now, lost=True))
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

    def _node_failure(self, reason: str, time: float, *, lost: bool = False) -> Failure:
        return Failure(self.node.name, None, None, None, time, reason=reason, lost=lost)

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
