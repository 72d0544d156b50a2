"""What an agent of a gang keeps, as hub or peer: roster, policy, its own part, its listener."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Dict, List, Optional

from ...protocol.messages.gang import Cleared, StopOrder
from ...protocol.ranks import Slot
from ...protocol.reasons import STOP, TIME
from .attempts import NEVER, Roster, make_record, read_policy
from .channel import Listener
from .membership import GangContext
from .node_check import NodeChecks

if TYPE_CHECKING:
    from ...protocol.messages.files import GangRecord, PartRecord, RestartsEnd, Spec, StopRecord


class GangState:
    """What hub and peer of one node share, and hand on when the role changes."""

    def __init__(self, context: GangContext, elect: Callable[[Slot], None]) -> None:
        self.context = context
        restart = context.spec.get("restart")
        self.roster, self.policy = Roster(context.spec), read_policy(restart) if restart else NEVER
        self.elect = elect  # the hub, given by its slot, is lost, and our part has ended
        self.listener: Optional[Listener] = None
        self.checks = NodeChecks(context)
        self.stop_order: Optional[StopOrder] = (
            None  # a person's, or the time limit's: no other attempt follows
        )
        self.part: Optional[PartRecord] = None  # once it has ended
        self.cleared: Optional[Cleared] = None
        self.master_port: Optional[int] = None  # that this node holds for a later attempt, as its rank 0
        self.time_left: Optional[float] = None  # of the job, as the hub has sent it with an attempt
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
        self.context.start_next_attempt(self.roster, self.time_left)

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
