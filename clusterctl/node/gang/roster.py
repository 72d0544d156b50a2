"""The roster of a run that its nodes may start again: its slots, the current attempt, and how earlier ones ended.

A slot is an agent of the run: 0 to nnodes-1 for the planned nodes, then the spares. An
attempt gives it a node rank, or none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Iterable, List, Optional, Set, Tuple

from ...protocol.messages.gang import MAJORITY, NODES, RosterView
from ...protocol.ranks import NodeRank, Slot

if TYPE_CHECKING:
    from ...protocol.messages.files import AttemptEnd, RosterEntry, Spec


class Roster:
    """What every agent knows of the whole run, so that any of them could lead it on."""

    def __init__(self, spec: Spec) -> None:
        self.own_slot = Slot(int(spec["slot"] if "slot" in spec else spec["node_rank"]))
        self.nnodes = int(spec["nnodes"])
        self.slot_count = int(spec.get("slots") or self.nnodes)
        self.attempt = int(spec.get("attempt", 1))
        self.history: List[AttemptEnd] = []
        self.listen_addresses: Dict[Slot, Tuple[str, int]] = {}
        entries = spec.get("roster") or self._planned_entries(spec)
        self.entries = [entry.copy() for entry in entries]

    def _planned_entries(self, spec: Spec) -> List[RosterEntry]:
        """Return the first roster, each slot as its rank; nodes that the spec does not name add theirs later."""
        names = dict(enumerate(spec.get("nodes") or ()))
        names.update({0: spec["hub"], self.own_slot: spec["node"]})
        return [
            {"slot": Slot(slot), "node": names.get(slot) or f"node-{slot}", "node_rank": NodeRank(slot)}
            for slot in range(self.nnodes)
        ]

    @property
    def all_slots(self) -> Set[Slot]:
        """Return every agent of the run."""
        return set(map(Slot, range(self.slot_count)))

    @property
    def node_ranks(self) -> Dict[Slot, NodeRank]:
        """Return the node rank of every slot that has one."""
        return {entry["slot"]: entry["node_rank"] for entry in self.entries if entry["node_rank"] is not None}

    @property
    def lost(self) -> Set[Slot]:
        """Return the slots that are lost for good."""
        return {entry["slot"] for entry in self.entries if entry.get("lost")}

    def node_rank(self, slot: Slot) -> NodeRank:
        """Return the node rank that the attempt gives a slot; its own number if none."""
        return self.node_ranks.get(slot, NodeRank(slot))

    def node(self, slot: Slot) -> str:
        """Return a slot's node."""
        return next((str(entry["node"]) for entry in self.entries if entry["slot"] == slot), f"slot {slot}")

    def set_node(self, slot: Slot, node: str) -> None:
        """Take the name by which a slot's agent has proved the token."""
        for entry in self.entries:
            if entry["slot"] == slot:
                entry["node"] = node

    def address(self, slot: Slot) -> str:
        """Return a slot's training IP; empty where the spec does not name it."""
        return next((str(entry.get("address") or "") for entry in self.entries if entry["slot"] == slot), "")

    def names_by_address(self) -> Dict[str, str]:
        """Return the nodes that take part in the attempt, by training IP."""
        taking_part = [entry for entry in self.entries if entry["node_rank"] is not None]
        return {str(entry.get("address") or ""): entry["node"] for entry in taking_part}

    def find_listener(self, slot: Slot) -> List[Tuple[str, int]]:
        """Find where a slot's agent listens; nowhere in a run that is never started again."""
        return [self.listen_addresses[slot]] if slot in self.listen_addresses else []

    def mark_lost(self, slot: Slot, why: str) -> None:
        """Mark a slot as lost for good."""
        for entry in self.entries:
            if entry["slot"] == slot and not entry.get("lost"):
                entry.update({"lost": True, "reason": why})

    def mark_unfit(self, slot: Slot, why: str) -> None:
        """Mark a slot that can take part no more, although its agent is here; without a reason it can."""
        for entry in self.entries:
            if entry["slot"] == slot and why:
                entry["unfit"] = why

    @property
    def unfit(self) -> Set[Slot]:
        """Return the slots that can take part no more."""
        return {entry["slot"] for entry in self.entries if entry.get("unfit")}

    def add_attempt(self, entry: AttemptEnd) -> None:
        """Write an attempt down that has ended, once."""
        self.history = [other for other in self.history if other["attempt"] != entry["attempt"]] + [entry]

    @property
    def in_minority(self) -> bool:
        """Whether those who are gone could go on without us."""
        return 2 * len(self.lost) > self.slot_count

    def can_continue(self, present: int) -> bool:
        """Whether so many agents may lead the run on: nobody else can, and they are enough."""
        return self.find_shortage(present, present) is None

    def find_shortage(self, present: int, fit: int) -> Optional[str]:
        """Return why so many agents, of which so many could take part, may not go on; None if they may."""
        if min(present, fit) < self.nnodes:
            return NODES
        return None if 2 * present > self.slot_count else MAJORITY

    def assign(self, fit_slots: Iterable[Slot]) -> bool:
        """Return every rank to a slot that is fit; one that has a rank keeps it. False if there are not enough."""
        candidates = sorted(fit_slots)
        kept = {node_rank: slot for slot, node_rank in self.node_ranks.items() if slot in candidates}
        free = [slot for slot in candidates if slot not in kept.values()]
        for node_rank in sorted(set(map(NodeRank, range(self.nnodes))) - set(kept)):
            if not free:
                return False
            kept[node_rank] = free.pop(0)
        assigned = {slot: node_rank for node_rank, slot in kept.items()}
        for entry in self.entries:
            entry["node_rank"] = assigned.get(entry["slot"])
        self.attempt += 1
        return True

    def view(self) -> RosterView:
        """Return what is sent to other agents."""
        return RosterView(self.attempt, self.entries, self.history)

    def apply(self, view: RosterView) -> None:
        """Take what another agent knows, which may be further than we are; who is lost stays so.

        The newest counts: the hub that is gone may have reached only some with its last order.
        """
        if (view.attempt, len(view.history)) > (self.attempt, len(self.history)):
            self._adopt(view)
        for slot, why in view.lost.items():
            if slot != self.own_slot:
                self.mark_lost(slot, why)

    def _adopt(self, view: RosterView) -> None:
        self.attempt, self.history = view.attempt, list(view.history)
        for entry in self.entries:
            entry["node_rank"] = view.node_ranks.get(entry["slot"])
            self.mark_unfit(entry["slot"], view.unfit.get(entry["slot"], ""))
