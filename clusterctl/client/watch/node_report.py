"""What one node reported of a run that is followed, and the attempts of all nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from clusterctl.node_texts import translate_node_text
from clusterctl.plans.runs.state import HaltedProcess, NodeState, SlotState, attempt_of, roster_of
from clusterctl.protocol.end_record import MOST_ATTEMPTS, MOST_EXIT, MOST_SIGNAL, parse_rank
from clusterctl.protocol.ranks import Rank
from clusterctl.protocol.reasons import NODE_0_ENDED
from clusterctl.protocol.states import WAITING
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import render_duration
from clusterctl.translation import tr

if TYPE_CHECKING:
    from clusterctl.protocol.messages.files import JournalEvent


SUPERVISOR_LOST: tuple[JournalEvent, ...] = ("guardian_lost", "agent_lost")


@dataclass
class NodeReport:
    """One node's part, as far as it was received.

    `contacted` is whether anything ever came from it, `lost_reason` why it was given up.
    """

    node: Node
    state: NodeState | None = None
    done: bool = False
    lost_reason: str = ""
    contacted: bool = True
    stop_requested: bool = False
    suspended: set[Rank] = field(default_factory=set)  # ranks that SIGSTOP held, while they lived
    halted: tuple[HaltedProcess, ...] = ()  # guardian, agent, torchrun, as last reported
    attempt: int = 1
    serves_node_0: bool = False  # the end of its program does not count once node 0's has ended

    @property
    def has_ended(self) -> bool:
        """Return whether the node itself has reported that its part has ended."""
        return self.state is not None and not self.state.live

    def begin_attempt(self, number: int) -> None:
        """Forget what was received of the attempts before this one."""
        self.attempt, self.stop_requested = number, False
        self.suspended.clear()

    def newly_frozen(self, state: NodeState) -> list[int]:
        """Take notice of the ranks that a signal has stopped; return those that ran before."""
        if not state.live or self.stop_requested:
            return []
        previous, ended = self.suspended, {rank.rank for rank in state.ranks if rank.failed}
        self.suspended = {rank.rank for rank in state.ranks if rank.stopped} | (previous & ended)
        return sorted(self.suspended - previous)

    def newly_halted(self, state: NodeState) -> list[HaltedProcess]:
        """Take notice of the processes beside the ranks that are halted; gives those that ran before."""
        previous, self.halted = self.halted, state.halted if state.live else ()
        return [halted for halted in self.halted if halted not in previous]

    def on_event(self, event: Untrusted) -> str | None:
        """Take an event; return what failed by it, or nothing."""
        kind, name = read_event_name(event), self.node.name
        if kind == "attempt":
            self.begin_attempt(event.count("attempt", MOST_ATTEMPTS) or self.attempt)
        elif kind == "stopping":
            self.stop_requested = True
            self.serves_node_0 = self.serves_node_0 or event.text("reason", 1000) == NODE_0_ENDED
        elif kind == "failure_held":
            self.serves_node_0 = True
        elif kind in SUPERVISOR_LOST:
            return (
                tr("{node}: the guardian was lost", node=name)
                if kind == "guardian_lost"
                else tr("{node}: the agent was lost", node=name)
            )
        elif has_failed(event) and not (self.stop_requested or self.serves_node_0):
            rank = parse_rank(event)
            if kind == "rank_exited" and rank is not None:
                return tr("{node}: rank {rank} failed", node=name, rank=rank)
            if kind == "torchrun_exited":
                return tr("{node}: torchrun failed", node=name)
        return None


def read_event_name(event: Untrusted) -> JournalEvent:
    """Read which event a line of the journal is; any other text is one that is not looked at."""
    return cast("JournalEvent", event.text("event", 40))


def has_failed(event: Untrusted) -> bool:
    """Return whether an event reports a process that ended in any way but exit code 0."""
    code, number = event.integer("exit", -MOST_EXIT, MOST_EXIT), event.integer("signal", 1, MOST_SIGNAL)
    return bool(code) or number is not None


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

    def on_state(self, node: str, state: NodeState) -> bool:
        """Store a node's state; return whether a new attempt has begun."""
        self._states[node] = state
        roster = roster_of(self._states)
        number = max(part.attempt for part in self._states.values() if part.roster == roster)
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

    def on_event(self, event: Untrusted) -> bool:
        """Take a node's event; return whether the nodes have decided to start the run again; all nodes report it."""
        number, seconds = event.integer("attempt", 1), event.number("seconds", 0.0, LONGEST_PAUSE)
        if (
            read_event_name(event) != "pausing"
            or number is None
            or not self._last_paused < number <= self.number
        ):
            return False  # a state comes before the events that led to it, so that this may be an earlier attempt's
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
