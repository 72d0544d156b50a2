"""What hub and peer have in common: what they keep, and that what they do about an event depends on their phase.

The state of a role is handed on to the next when a hub is lost.
"""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Generic,
    List,
    NamedTuple,
    Optional,
    Tuple,
    TypeVar,
    Union,
)

from ...protocol.messages.gang import CheckpointReport, Cleared, Ended, Listening, Ready, StopOrder
from ...protocol.ranks import Slot
from ...protocol.reasons import STOP, TIME
from .attempts import NEVER, Roster, make_record, read_policy
from .channel import Listener
from .checkpoints import Checkpoints
from .membership import Gang, GangContext
from .node_check import NodeChecks

if TYPE_CHECKING:
    from ...protocol.messages.checkpoints import KeeperReport, Restore
    from ...protocol.messages.files import GangRecord, PartRecord, RestartsEnd, RosterEntry, Spec, StopRecord
    from ...protocol.messages.verbs import EventFacts, EventName


class GangState:
    """What hub and peer of one node share, and hand on when the role changes."""

    def __init__(self, context: GangContext, elect: Callable[[GangState, Slot], None]) -> None:
        self.context = context
        restart = context.spec.get("restart")
        self.roster, self.policy = Roster(context.spec), read_policy(restart) if restart else NEVER
        self.elect = partial(elect, self)  # the hub, given by its slot, is lost, and our part has ended
        self.listener: Optional[Listener] = None
        self.checks = NodeChecks(context)
        self.checkpoints = Checkpoints(context, self.roster)
        self.stop_order: Optional[StopOrder] = (
            None  # a person's, or the time limit's: no other attempt follows
        )
        self.part: Optional[PartRecord] = None  # once it has ended
        self.cleared: Optional[Cleared] = None
        self.master_port: Optional[int] = None  # that this node holds for a later attempt, as its rank 0
        self.time_left: Optional[float] = None  # of the job, as the hub has sent it with an attempt
        self.resume: Optional[Restore] = None  # what the attempt goes on from
        self.idle = bool(context.spec.get("spare"))
        self.last_seen: Dict[Slot, float] = {}  # the last sign of life of each hub before
        self.hub_left = 0.0  # when the connection to a hub ended or failed last, by the monotonic clock
        self.election_deadline = 0.0  # when the search for the next hub is given up; 0 where there is one

    @property
    def address(self) -> str:
        """Return where the others reach this node; a run of one node may not know its own."""
        return str(self.context.spec.get("address") or self.context.spec["master_addr"])

    def record_stop(self, order: StopOrder) -> None:
        """Remember that a person, or the time limit, has ended the run."""
        if self.stop_order is None and order.kind in (STOP, TIME):
            self.stop_order = order

    def begin(self) -> None:
        """Another attempt begins here; nothing of the one before counts any more."""
        self.part, self.cleared, self.master_port = None, None, None
        self.idle = self.roster.own_slot not in self.roster.node_ranks
        self.context.start_next_attempt(self.roster, self.time_left, self.resume)

    def close(self) -> None:
        """Accept no more connections."""
        if self.listener is not None:
            self.listener.close()
            self.listener = None

    def make_record(
        self,
        parts: List[PartRecord],
        stop: Optional[StopRecord],
        end: RestartsEnd,
        *,
        whole: bool,
    ) -> GangRecord:
        """Put the record together; with what went before the last attempt, and why no other followed."""
        spec = self.context.spec
        if self.policy.never:
            return make_record(spec, parts, stop, whole=whole)
        own: Spec = {**spec, "hub": spec["node"], "attempt": self.roster.attempt}
        record = make_record(own, parts, stop, whole=whole, state=end.get("state") or "")
        history, entries = self.roster.history, self.roster.entries
        gave_up, reason = end.get("gave_up"), end.get("reason") or ""
        return {**record, "attempts": history, "roster": entries, "gave_up": gave_up, "reason": reason}


class Closed(NamedTuple):
    """The connection to another agent has ended, or it was silent for too long."""

    why: str


class Unreachable(NamedTuple):
    """The hub could not be reached."""

    why: str


PhaseType = TypeVar("PhaseType", bound=Enum)
Event = Union[type, str]  # a message or another value; GO; a timer, whose name is in small letters
Handler = Callable[..., None]


def make_table(
    rows: Dict[Any, Dict[Handler, Tuple[PhaseType, ...]]],
) -> Dict[Tuple[PhaseType, Event], Handler]:
    """Return the method that an event calls in a phase, from the phases of each method of an event."""
    table: Dict[Tuple[PhaseType, Event], Handler] = {}
    for event, methods in rows.items():
        for method, phases in methods.items():
            for phase in phases:
                if (phase, event) in table:
                    raise ValueError(f"two methods for {event} in {phase}")
                table[phase, event] = method
    return table


class Role(Gang, Generic[PhaseType]):
    """A hub or a peer: what it does about an event depends on its phase, by its table."""

    table: Dict[Tuple[PhaseType, Event], Handler]
    phase: PhaseType

    def __init__(self, state: GangState) -> None:
        super().__init__(state.context)
        self.state, self.roster = state, state.roster

    @property
    def roster_entries(self) -> Optional[List[RosterEntry]]:
        """What is known of the nodes of a run that may be started again; None of any other."""
        return None if self.state.policy.never else self.roster.entries

    def open(self) -> None:
        """Listen, where others could come; VerbError if that is not possible."""
        state = self.state
        if self.roster.slot_count > 1 and state.listener is None:
            state.listener = Listener(self.context.loop, self.context.spec, self.context.token)
            if not state.policy.never:
                self.context.report("listener", {"port": state.listener.port})

    def set_listen_addresses(self, addresses: List[Any]) -> None:
        """Remember where the others could be found."""
        self.roster.listen_addresses = {
            Slot(int(slot)): (str(address), int(port)) for slot, address, port in addresses
        }

    def on_go(self) -> None:
        """Take GO, which was given here."""
        self._on_event("GO")

    def on_startup_event(self, event: EventName, facts: EventFacts) -> None:
        """Take how far a later attempt has come here."""
        attempt, state = self.roster.attempt, self.state
        if event == "port":
            state.master_port = int(facts["port"] or 0)
        elif event == "ready":
            self.report(Ready(attempt, state.master_port, state.address))
        elif event == "listening":
            self.report(Listening(attempt, int(facts["port"] or 0)))

    def on_end(self, part: PartRecord) -> None:
        """Take the end of this node's part of the attempt."""
        self.state.part, self.state.cleared = part, None
        self.report(Ended(self.roster.attempt, part))

    def on_cleared(self, unfit: str, progress: Optional[bool]) -> None:
        """Report that nothing is left here of the attempt; `unfit`: why this node cannot take part in another."""
        self.state.cleared = Cleared(unfit, progress)
        self.report(self.state.cleared)

    def on_keeper_report(self, report: KeeperReport) -> None:
        """Report what this node's keeper has found or done."""
        self.report(CheckpointReport(report))

    def _find_method(self, event: Event) -> Optional[Handler]:
        return self.table.get((self.phase, event))

    def _on_event(self, event: Event, *arguments: Any) -> None:
        method = self._find_method(event)
        if method is not None:
            method(self, *arguments)

    def _wait(self, seconds: float, timer: str) -> None:
        self.context.loop.after(seconds, timer, lambda: self._on_event(timer))

    def _enter(self, phase: PhaseType) -> None:
        """Begin a phase; what was waited for in the one before, and has no place here, is not any more."""
        self.phase = phase
        for event in {event for _, event in self.table}:
            if isinstance(event, str) and event.islower() and (phase, event) not in self.table:
                self.context.loop.cancel(event)
