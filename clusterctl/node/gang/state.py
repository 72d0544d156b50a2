"""What an agent of a gang keeps, as hub or peer: roster, policy, its own part, its listener."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Dict, List, Optional, Protocol

from ...protocol.messages.gang import Cleared, StopOrder
from ...protocol.messages.stop_kinds import STOP, TIME
from ...protocol.ranks import Slot
from .end_record import make_record
from .endpoints import Listener
from .membership import GangContext
from .node_check import NodeChecks
from .restart_policy import NEVER, Policy
from .roster import Roster

if TYPE_CHECKING:
    from ...protocol.messages.files import AttemptEnd, GangRecord, PartRecord, RestartsEnd, Spec, StopRecord


class Attempts(Protocol):
    """What the gang has of its agent for further attempts."""

    policy: Policy
    roster: Roster
    time_left_given: Optional[float]

    @property
    def began(self) -> Optional[float]:
        """When the attempt got its GO here."""

    @property
    def time_left(self) -> Optional[float]:
        """What is left of the job's time, in seconds."""

    def show_roster(self) -> None:
        """Record who is lost."""

    def on_pause(self, entry: AttemptEnd, seconds: float) -> None:
        """There will be another attempt, soon."""

    def start_next_attempt(self) -> None:
        """Begin the current attempt of the roster, with the rank that it gives us, or none."""

    def on_go(self, address: str, port: int) -> None:
        """The gang gives GO."""

    def conclude(self, end: RestartsEnd) -> None:
        """There will be no further attempt."""


class OneAttempt:
    """The attempts of a run that is never started again."""

    policy = NEVER
    began: Optional[float] = None
    time_left: Optional[float] = None

    def __init__(self, spec: Spec) -> None:
        self.roster = Roster(spec)
        self.time_left_given: Optional[float] = None

    def show_roster(self) -> None:
        """The client has it from the record."""

    def conclude(self, end: RestartsEnd) -> None:
        """The agent has recorded its end by itself."""

    def on_pause(self, entry: AttemptEnd, seconds: float) -> None:
        """It never pauses."""

    def start_next_attempt(self) -> None:
        """There is none."""

    def on_go(self, address: str, port: int) -> None:
        """GO comes from the client."""


class GangState:
    """What hub and peer of one node share, and hand on when the role changes."""

    def __init__(
        self, context: GangContext, attempts: Optional[Attempts], elect: Callable[[Slot], None]
    ) -> None:
        self.context = context
        self.attempts: Attempts = attempts or OneAttempt(context.spec)
        self.roster, self.policy = self.attempts.roster, self.attempts.policy
        self.elect = elect  # the hub, given by its slot, is lost, and our part has ended
        self.listener: Optional[Listener] = None
        self.checks = NodeChecks(context)
        self.stop_order: Optional[StopOrder] = (
            None  # a person's, or the time limit's: no other attempt follows
        )
        self.part: Optional[PartRecord] = None  # once it has ended
        self.cleared: Optional[Cleared] = None
        self.master_port: Optional[int] = None  # that this node holds for a later attempt, as its rank 0
        self.idle = bool(context.spec.get("spare"))
        self.last_seen: Dict[Slot, float] = {}  # the last sign of life of each hub before
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
        self.attempts.start_next_attempt()

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
