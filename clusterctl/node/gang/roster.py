"""The course of a run that its nodes may start again: its seats, the attempt it is at, and what became of earlier ones.

A seat is an agent of the run, 0 to nnodes-1 for the planned nodes, then the spares; a rank is what an attempt gives it.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

from ...protocol.reasons import CODE
from ...protocol.untrusted import MalformedError, Untrusted
from .membership import LONGEST_NODE, LONGEST_PAUSE, Bounds, required

Facts = Dict[str, Any]

NO_PROGRESS = "no_progress"  # why the gang gives a run up: CODE, nothing new in three attempts,
MOST = "max"  # as many restarts as the job allows,
REASON = "reason"  # a reason that the job does not name,
NODES = "nodes"  # fewer nodes than the job needs,
MAJORITY = "majority"  # or not more than half of all: the others might go on as well
PATIENCE = 3  # attempts in a row without progress
WARM = 5.0
PAUSE = 1.0  # seconds; each is twice the one before
LONGEST_WHY = 1000  # characters


class Policy(NamedTuple):
    """When a run is started again, as the job says."""

    most: int
    on: Tuple[str, ...]
    progress: str
    pause: float  # seconds before the first restart
    warm: float  # of these the last, in which gates may import torch already

    def pause_before(self, restart: int) -> float:
        """Return the seconds before the first, second ... restart."""
        return min(LONGEST_PAUSE, self.pause * 2.0 ** (restart - 1))

    def refuse(self, reason: str, made: int) -> Optional[str]:
        """Say why an attempt that ended for a reason is the last, after so many restarts; None if it need not be."""
        if reason not in self.on:
            return CODE if reason == CODE else REASON
        return MOST if made >= self.most else None


def read_policy(wish: Facts) -> Policy:
    """Read the spec's `restart`."""
    progress, pause = str(wish.get("progress") or "**"), float(wish.get("pause") or PAUSE)
    warm = WARM if wish.get("warm") is None else float(wish["warm"])
    return Policy(int(wish["max"]), tuple(wish["on"]), progress, pause, warm)


class Told(NamedTuple):
    """What another agent knows of the whole run: who has which rank, who is lost or unfit, and why."""

    attempt: int
    ranks: Dict[int, int]
    lost: Dict[int, str]
    unfit: Dict[int, str]
    history: List[Facts]

    def is_like(self, other: Told) -> bool:
        """Tell whether two agree on everything but who is lost, which each sees for itself."""
        return self._replace(lost={}) == other._replace(lost={})


def read_told(message: Untrusted, bounds: Bounds) -> Told:
    """Read what `Course.as_facts` wrote."""
    course = message.record("course")
    attempt = required(course.integer("attempt", 1, bounds.attempts), "attempt")
    roster = read_roster(course, bounds)
    ranks = {entry["seat"]: entry["node_rank"] for entry in roster if entry["node_rank"] is not None}
    lost = {entry["seat"]: entry["reason"] for entry in roster if "lost" in entry}
    unfit = {entry["seat"]: entry["unfit"] for entry in roster if "unfit" in entry}
    return Told(attempt, ranks, lost, unfit, read_history(course, "history", bounds))


def read_roster(told: Untrusted, bounds: Bounds) -> List[Facts]:
    """Read who has which seat and rank: all seats of this run with their own nodes, and no rank twice."""
    roster = [_read_seat(entry, bounds) for entry in told.records("roster", bounds.seats + 1)]
    if [entry["seat"] for entry in roster] != list(range(bounds.seats)):
        raise MalformedError("no roster of this run")
    ranks = [entry["node_rank"] for entry in roster if entry["node_rank"] is not None]
    if len(set(ranks)) < len(ranks):
        raise MalformedError("a rank that two nodes have")
    return roster


def _read_seat(told: Untrusted, bounds: Bounds) -> Facts:
    seat = required(told.integer("seat", 0, bounds.seats - 1), "seat")
    rank = told.integer("node_rank", 0, bounds.ranks - 1)
    if not bounds.is_name_of(seat, told.text("node")) or (rank is None and not told.is_null("node_rank")):
        raise MalformedError("a seat that is none of this run")
    entry: Facts = {"seat": seat, "node": told.text("node"), "node_rank": rank}
    if told.text("address"):
        entry["address"] = told.text("address", LONGEST_NODE)
    if told.text("unfit"):
        entry["unfit"] = told.text("unfit", LONGEST_WHY)
    if told.flag("lost"):
        entry.update(lost=True, reason=told.text("reason", LONGEST_WHY))
    return entry


def read_history(told: Untrusted, key: str, bounds: Bounds) -> List[Facts]:
    """Read what became of the attempts that have ended."""
    return [read_entry(entry, bounds) for entry in told.records(key, bounds.attempts)]


def read_entry(told: Untrusted, bounds: Bounds) -> Facts:
    """Read what became of one attempt."""
    return {
        "attempt": required(told.integer("attempt", 1, bounds.attempts), "attempt"),
        "reason": told.text("reason", LONGEST_NODE),
        "node": told.text("node", LONGEST_NODE),
        "text": told.text("text", LONGEST_WHY),
        "began": told.moment("began"),
        "ended": told.moment("ended"),
        "progress": told.choice("progress"),
    }


class Course:
    """What every agent knows of the whole run, so that any of them could lead it on."""

    def __init__(self, spec: Facts) -> None:
        self.here = int(spec["seat"])
        self.seats = int(spec["seats"])
        self.nnodes = int(spec["nnodes"])
        self.attempt = int(spec["attempt"])
        self.history: List[Facts] = []
        self.doors: Dict[int, Tuple[str, int]] = {}
        self.roster: List[Facts] = [dict(entry) for entry in spec["roster"]]

    @property
    def ranks(self) -> Dict[int, int]:
        """Give the rank of every seat that has one."""
        return {entry["seat"]: entry["node_rank"] for entry in self.roster if entry["node_rank"] is not None}

    @property
    def lost(self) -> Set[int]:
        """Name the seats that are gone for good."""
        return {entry["seat"] for entry in self.roster if entry.get("lost")}

    def node(self, seat: int) -> str:
        """Return a seat's node."""
        return next((str(entry["node"]) for entry in self.roster if entry["seat"] == seat), f"seat {seat}")

    def address(self, seat: int) -> str:
        """Return a seat's training IP; empty where the spec does not name it."""
        return next((str(entry.get("address") or "") for entry in self.roster if entry["seat"] == seat), "")

    def lose(self, seat: int, why: str) -> None:
        """A seat is gone, and will not come back."""
        for entry in self.roster:
            if entry["seat"] == seat and not entry.get("lost"):
                entry.update(lost=True, reason=why)

    def doubt(self, seat: int, why: str) -> None:
        """A seat can take part no more, although its agent is here; no reason: it can."""
        for entry in self.roster:
            if entry["seat"] == seat and why:
                entry["unfit"] = why

    @property
    def unfit(self) -> Set[int]:
        """Name the seats that can take part no more."""
        return {entry["seat"] for entry in self.roster if entry.get("unfit")}

    def note(self, entry: Facts) -> None:
        """Write an attempt down that has ended, once."""
        self.history = [one for one in self.history if one["attempt"] != entry["attempt"]] + [entry]

    @property
    def outnumbered(self) -> bool:
        """Whether those who are gone could go on without us."""
        return 2 * len(self.lost) > self.seats

    def may_go_on(self, present: int) -> bool:
        """Whether so many agents may lead the run on: nobody else can, and they are enough."""
        return self.too_few(present, present) is None

    def too_few(self, present: int, fit: int) -> Optional[str]:
        """Say why so many agents, of which so many could take part, may not go on; None if they may."""
        if min(present, fit) < self.nnodes:
            return NODES
        return None if 2 * present > self.seats else MAJORITY

    def assign(self, fit: Iterable[int]) -> bool:
        """Give every rank to a seat that is fit; who has one keeps it. False if there are not enough."""
        able = sorted(fit)
        kept = {rank: seat for seat, rank in self.ranks.items() if seat in able}
        free = [seat for seat in able if seat not in kept.values()]
        for rank in sorted(set(range(self.nnodes)) - set(kept)):
            if not free:
                return False
            kept[rank] = free.pop(0)
        seats = {seat: rank for rank, seat in kept.items()}
        for entry in self.roster:
            entry["node_rank"] = seats.get(entry["seat"])
        self.attempt += 1
        return True

    def no_progress(self, entry: Facts) -> bool:
        """Whether this attempt is one too many without progress."""
        last = [*(one for one in self.history if one["attempt"] != entry["attempt"]), entry][-PATIENCE:]
        return len(last) == PATIENCE and all(one["progress"] is False for one in last)

    def as_facts(self) -> Facts:
        """Render for a message."""
        return {"course": {"attempt": self.attempt, "roster": self.roster, "history": self.history}}

    def follow(self, told: Told) -> None:
        """Take what the hub says, which may be further than we are; who is lost stays so."""
        if self._is_behind(told):
            self._adopt(told)
        for seat, why in told.lost.items():
            if seat != self.here:
                self.lose(seat, why)

    def agree(self, tellings: Sequence[Told]) -> None:
        """Take what more than half of those present tell alike; of what one tells alone only that it is one ahead.

        One attempt ahead without agreement: the hub that is gone may have reached some with its last order. Nobody
        is named lost, no rank given and no number jumped to because one agent says so.
        """
        present = len(tellings) + 1
        for seat in set(range(self.seats)) - {self.here}:
            reasons = [told.lost[seat] for told in tellings if seat in told.lost]
            if 2 * len(reasons) > present:
                self.lose(seat, reasons[0])
        ahead = [told for told in tellings if self._is_behind(told)]
        agreed = [told for told in ahead if 2 * sum(map(told.is_like, ahead)) > present]
        if agreed:
            self._adopt(agreed[0])
        elif any(told.attempt == self.attempt + 1 for told in ahead):
            self.attempt += 1

    def _is_behind(self, told: Told) -> bool:
        return (told.attempt, len(told.history)) > (self.attempt, len(self.history))

    def _adopt(self, told: Told) -> None:
        self.attempt, self.history = told.attempt, list(told.history)
        for entry in self.roster:
            entry["node_rank"] = told.ranks.get(entry["seat"])
            self.doubt(entry["seat"], told.unfit.get(entry["seat"], ""))
