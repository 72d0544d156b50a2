"""The roster of a run that its nodes may start again: its slots, the current attempt, and how earlier ones ended.

A slot (`seat` in messages and files) is an agent of the run: 0 to nnodes-1 for the planned nodes, then the spares. An
attempt gives it a node rank, or none.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

from ...protocol.ranks import NodeRank, Slot
from ...protocol.reasons import CODE
from ...protocol.untrusted import MalformedError, Untrusted
from .membership import LONGEST_NODE, LONGEST_PAUSE, Bounds, required

JsonObject = Dict[str, Any]

NO_PROGRESS = "no_progress"  # why the gang gives a run up: CODE, nothing new in three attempts,
MAX_RESTARTS = "max"  # as many restarts as the job allows,
REASON = "reason"  # a reason that the job does not name,
NODES = "nodes"  # fewer nodes than the job needs,
MAJORITY = "majority"  # or not more than half of all: the others might go on as well
MOST_WITHOUT_PROGRESS = 3  # attempts in a row without progress
WARM_SECONDS = 5.0
FIRST_PAUSE = 1.0  # seconds; each is twice the one before
LONGEST_WHY = 1000  # characters


class Policy(NamedTuple):
    """When a run is started again, as the job says."""

    max_restarts: int
    on: Tuple[str, ...]
    progress: str
    pause: float  # seconds before the first restart
    warm: float  # of these the last, in which gates may import torch already

    def pause_before(self, restart: int) -> float:
        """Return the seconds before the first, second ... restart."""
        return min(LONGEST_PAUSE, self.pause * 2.0 ** (restart - 1))

    def refuse(self, reason: str, restarts: int) -> Optional[str]:
        """Say why an attempt that ended for a reason is the last, after so many restarts; None if it need not be."""
        if reason not in self.on:
            return CODE if reason == CODE else REASON
        return MAX_RESTARTS if restarts >= self.max_restarts else None


def read_policy(spec: JsonObject) -> Policy:
    """Read the spec's `restart`."""
    progress, pause = str(spec.get("progress") or "**"), float(spec.get("pause") or FIRST_PAUSE)
    warm = WARM_SECONDS if spec.get("warm") is None else float(spec["warm"])
    return Policy(int(spec["max"]), tuple(spec["on"]), progress, pause, warm)


class RosterView(NamedTuple):
    """What another agent knows of the whole run: who has which rank, who is lost or unfit, and why."""

    attempt: int
    node_ranks: Dict[Slot, NodeRank]
    lost: Dict[Slot, str]
    unfit: Dict[Slot, str]
    history: List[JsonObject]

    def is_like(self, other: RosterView) -> bool:
        """Tell whether two agree on everything but who is lost, which each sees for itself."""
        return self._replace(lost={}) == other._replace(lost={})


def read_view(message: Untrusted, bounds: Bounds) -> RosterView:
    """Read what `Roster.to_fields` wrote."""
    roster = message.record("course")
    attempt = required(roster.integer("attempt", 1, bounds.attempts), "attempt")
    entries = read_roster(roster, bounds)
    node_ranks = {entry["seat"]: entry["node_rank"] for entry in entries if entry["node_rank"] is not None}
    lost = {entry["seat"]: entry["reason"] for entry in entries if "lost" in entry}
    unfit = {entry["seat"]: entry["unfit"] for entry in entries if "unfit" in entry}
    return RosterView(attempt, node_ranks, lost, unfit, read_history(roster, "history", bounds))


def read_roster(message: Untrusted, bounds: Bounds) -> List[JsonObject]:
    """Read which slot has which node and rank: all slots of this run with their own nodes, and no rank twice."""
    roster = [_read_slot(entry, bounds) for entry in message.records("roster", bounds.slots + 1)]
    if [entry["seat"] for entry in roster] != list(range(bounds.slots)):
        raise MalformedError("no roster of this run")
    node_ranks = [entry["node_rank"] for entry in roster if entry["node_rank"] is not None]
    if len(set(node_ranks)) < len(node_ranks):
        raise MalformedError("a rank that two nodes have")
    return roster


def _read_slot(message: Untrusted, bounds: Bounds) -> JsonObject:
    slot = Slot(required(message.integer("seat", 0, bounds.slots - 1), "seat"))
    node_rank = message.integer("node_rank", 0, bounds.node_ranks - 1)
    if not bounds.is_name_of(slot, message.text("node")) or (
        node_rank is None and not message.is_null("node_rank")
    ):
        raise MalformedError("a seat that is none of this run")
    entry: JsonObject = {"seat": slot, "node": message.text("node"), "node_rank": node_rank}
    if message.text("address"):
        entry["address"] = message.text("address", LONGEST_NODE)
    if message.text("unfit"):
        entry["unfit"] = message.text("unfit", LONGEST_WHY)
    if message.flag("lost"):
        entry.update(lost=True, reason=message.text("reason", LONGEST_WHY))
    return entry


def read_history(message: Untrusted, key: str, bounds: Bounds) -> List[JsonObject]:
    """Read what became of the attempts that have ended."""
    return [read_entry(entry, bounds) for entry in message.records(key, bounds.attempts)]


def read_entry(message: Untrusted, bounds: Bounds) -> JsonObject:
    """Read what became of one attempt."""
    return {
        "attempt": required(message.integer("attempt", 1, bounds.attempts), "attempt"),
        "reason": message.text("reason", LONGEST_NODE),
        "node": message.text("node", LONGEST_NODE),
        "text": message.text("text", LONGEST_WHY),
        "began": message.moment("began"),
        "ended": message.moment("ended"),
        "progress": message.choice("progress"),
    }


class Roster:
    """What every agent knows of the whole run, so that any of them could lead it on."""

    def __init__(self, spec: JsonObject) -> None:
        self.own_slot = Slot(int(spec["seat"]))
        self.slot_count = int(spec["seats"])
        self.nnodes = int(spec["nnodes"])
        self.attempt = int(spec["attempt"])
        self.history: List[JsonObject] = []
        self.listen_addresses: Dict[Slot, Tuple[str, int]] = {}
        self.entries: List[JsonObject] = [dict(entry) for entry in spec["roster"]]

    @property
    def all_slots(self) -> Set[Slot]:
        """Return every agent of the run."""
        return set(map(Slot, range(self.slot_count)))

    @property
    def node_ranks(self) -> Dict[Slot, NodeRank]:
        """Return the node rank of every slot that has one."""
        return {entry["seat"]: entry["node_rank"] for entry in self.entries if entry["node_rank"] is not None}

    @property
    def lost(self) -> Set[Slot]:
        """Return the slots that are lost for good."""
        return {entry["seat"] for entry in self.entries if entry.get("lost")}

    def node(self, slot: Slot) -> str:
        """Return a slot's node."""
        return next((str(entry["node"]) for entry in self.entries if entry["seat"] == slot), f"seat {slot}")

    def address(self, slot: Slot) -> str:
        """Return a slot's training IP; empty where the spec does not name it."""
        return next((str(entry.get("address") or "") for entry in self.entries if entry["seat"] == slot), "")

    def mark_lost(self, slot: Slot, why: str) -> None:
        """Mark a slot as lost for good."""
        for entry in self.entries:
            if entry["seat"] == slot and not entry.get("lost"):
                entry.update(lost=True, reason=why)

    def mark_unfit(self, slot: Slot, why: str) -> None:
        """Mark a slot that can take part no more, although its agent is here; without a reason it can."""
        for entry in self.entries:
            if entry["seat"] == slot and why:
                entry["unfit"] = why

    @property
    def unfit(self) -> Set[Slot]:
        """Return the slots that can take part no more."""
        return {entry["seat"] for entry in self.entries if entry.get("unfit")}

    def add_attempt(self, entry: JsonObject) -> None:
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
        """Say why so many agents, of which so many could take part, may not go on; None if they may."""
        if min(present, fit) < self.nnodes:
            return NODES
        return None if 2 * present > self.slot_count else MAJORITY

    def assign(self, fit_slots: Iterable[Slot]) -> bool:
        """Give every rank to a slot that is fit; one that has a rank keeps it. False if there are not enough."""
        candidates = sorted(fit_slots)
        kept = {node_rank: slot for slot, node_rank in self.node_ranks.items() if slot in candidates}
        free = [slot for slot in candidates if slot not in kept.values()]
        for node_rank in sorted(set(map(NodeRank, range(self.nnodes))) - set(kept)):
            if not free:
                return False
            kept[node_rank] = free.pop(0)
        assigned = {slot: node_rank for node_rank, slot in kept.items()}
        for entry in self.entries:
            entry["node_rank"] = assigned.get(entry["seat"])
        self.attempt += 1
        return True

    def lacks_progress(self, entry: JsonObject) -> bool:
        """Whether this attempt is one too many without progress."""
        last = [*(other for other in self.history if other["attempt"] != entry["attempt"]), entry][
            -MOST_WITHOUT_PROGRESS:
        ]
        return len(last) == MOST_WITHOUT_PROGRESS and all(other["progress"] is False for other in last)

    def to_fields(self) -> JsonObject:
        """Render for a message."""
        return {"course": {"attempt": self.attempt, "roster": self.entries, "history": self.history}}

    def apply(self, view: RosterView) -> None:
        """Take what the hub says, which may be further than we are; who is lost stays so."""
        if self._is_behind(view):
            self._adopt(view)
        for slot, why in view.lost.items():
            if slot != self.own_slot:
                self.mark_lost(slot, why)

    def reconcile(self, views: Sequence[RosterView]) -> None:
        """Take what more than half of those present tell alike; of what one tells alone only that it is one ahead.

        One attempt ahead without agreement: the hub that is gone may have reached some with its last order. Nobody
        is named lost, no rank given and no number jumped to because one agent says so.
        """
        present = len(views) + 1
        for slot in self.all_slots - {self.own_slot}:
            reasons = [view.lost[slot] for view in views if slot in view.lost]
            if 2 * len(reasons) > present:
                self.mark_lost(slot, reasons[0])
        ahead = [view for view in views if self._is_behind(view)]
        agreed = [view for view in ahead if 2 * sum(map(view.is_like, ahead)) > present]
        if agreed:
            self._adopt(agreed[0])
        elif any(view.attempt == self.attempt + 1 for view in ahead):
            self.attempt += 1

    def _is_behind(self, view: RosterView) -> bool:
        return (view.attempt, len(view.history)) > (self.attempt, len(self.history))

    def _adopt(self, view: RosterView) -> None:
        self.attempt, self.history = view.attempt, list(view.history)
        for entry in self.entries:
            entry["node_rank"] = view.node_ranks.get(entry["seat"])
            self.mark_unfit(entry["seat"], view.unfit.get(entry["seat"], ""))
