"""What hub and peers of a run that may be started again keep, whoever leads."""

from __future__ import annotations

from typing import Callable, Dict, List, Optional

from ...protocol.ranks import Slot
from ..supervise.restarts import Restarts
from .listener import Listener
from .membership import STOP, TIME, GangContext, JsonObject, NodePart, StopOrder
from .roster import Roster


class GangState:
    """The run's roster, this node's part of the attempt, and a listener for the time when this agent leads."""

    def __init__(self, context: GangContext, restarts: Restarts, elect_hub: Callable[[Slot], None]) -> None:
        self.context = context
        self.restarts = restarts
        self.roster: Roster = restarts.roster
        self.elect_hub = elect_hub  # the hub, given by its slot, is lost, and our part has ended
        self.listener: Optional[Listener] = None
        self.stop_order: Optional[StopOrder] = None  # somebody's, or the time limit's: nothing is tried again
        self.part: Optional[NodePart] = None
        self.clear: Optional[JsonObject] = None
        self.idle = bool(context.spec.get("spare"))
        self.last_seen: Dict[Slot, float] = {}  # the last sign of life of each hub before
        self.election_deadline = 0.0  # when the search for the next hub is given up; 0 where there is one

    @property
    def address(self) -> str:
        """Return where the others reach this node; a run of one node may not know its own."""
        return str(self.context.spec.get("address") or self.context.spec["master_addr"])

    @property
    def spec(self) -> JsonObject:
        """Return the spec of a record that we write."""
        return {**self.context.spec, "hub": self.context.spec["node"]}

    def record_stop(self, order: StopOrder) -> None:
        """Remember that somebody, or the time limit, wants the end."""
        if self.stop_order is None and order.kind in (STOP, TIME):
            self.stop_order = order

    def begin(self) -> None:
        """Another attempt begins here; nothing of the one before counts any more."""
        self.part, self.clear = None, None
        self.idle = self.roster.own_slot not in self.roster.node_ranks
        self.restarts.start_next_attempt()

    def on_hub_found(self) -> None:
        """Somebody leads again."""
        self.election_deadline = 0.0

    def close(self) -> None:
        """Let nobody in any more."""
        if self.listener is not None:
            self.listener.close()
            self.listener = None

    def with_history(self, record: JsonObject, gave_up: Optional[str], **end: str) -> JsonObject:
        """Add to a record what went before the last attempt, and why no other followed."""
        history: List[Dict[str, object]] = self.roster.history
        return {**record, "attempts": history, "roster": self.roster.entries, "gave_up": gave_up, **end}
