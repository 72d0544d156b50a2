"""A gang that goes on after a failure, and without its hub: the lowest seat that is left becomes the next one."""

from __future__ import annotations

import time
from typing import Any, List, Optional

from .door import Door
from .gang import STOP, TIME, Facts, Gang, Order, Part, Side, limit_of, lost_part, make_record
from .heir import Heir
from .restart_hub import RestartHub
from .restart_peer import RestartPeer
from .restarts import Restarts

SUCCESSION_LIMIT = 3.0  # silences within which somebody must be found to follow


class Circle(Gang):
    """What an agent asks of its gang, whoever leads it."""

    def __init__(self, side: Side, restarts: Restarts) -> None:
        super().__init__(side)
        self.restarts = restarts
        self.course = restarts.course
        self.door: Optional[Door] = None
        self.wish: Optional[Order] = None
        self.clear: Optional[Facts] = None
        self.part: Optional[Part] = None
        self.idle = bool(side.spec.get("spare"))
        self._until = 0.0
        self._fallen = ""
        self.role: Gang = RestartHub(self) if self.course.here == 0 else RestartPeer(self, 0)

    @property
    def address(self) -> str:
        """Return where the others reach this node; a run of one node may not know its own."""
        return str(self.side.spec.get("address") or self.side.spec["master_addr"])

    def open(self) -> None:
        """Listen, where there are others; VerbError if that is not possible."""
        if self.course.seats > 1 and self.door is None:
            self.door = Door(self.side.loop, self.side.spec, self.side.token)
            self.side.tell("door", port=self.door.port)
            self.role.open()

    def know(self, doors: List[Any]) -> None:
        """Remember where the others could be found."""
        self.course.doors = {int(seat): (str(address), int(port)) for seat, address, port in doors}

    def join(self, port: int) -> None:
        """Go to the hub."""
        self.role.join(port)

    def went(self) -> None:
        """GO was given here."""
        self.role.went()

    def departs(self, event: str, facts: Facts) -> None:
        """A later attempt has come so far here."""
        self.role.departs(event, facts)

    def failed(self, reason: str) -> None:
        """Something failed here."""
        self.role.failed(reason)

    def hear_wish(self, order: Order) -> None:
        """Remember that somebody, or the time limit, wants the end: nothing is tried again."""
        if self.wish is None and order.kind in (STOP, TIME):
            self.wish = order

    def stopped(self, order: Order) -> None:
        """Somebody stopped the run here, or its time was up."""
        self.hear_wish(order)
        self.role.stopped(order)

    def ended(self, part: Part) -> None:
        """This node's part of the attempt has ended."""
        self.part, self.clear = part, None
        self.role.ended(part)

    def cleared(self, unfit: str, progress: Optional[bool]) -> None:
        """Nothing is left here of it."""
        self.clear = {"unfit": unfit, "progress": progress}
        self.role.cleared(unfit, progress)

    def beat(self) -> None:
        """Say that we are here, and count silence."""
        self.role.beat()

    def desert(self) -> None:
        """Leave the others without a word: they notice."""
        self.role.desert()
        self.close()
        super().desert()

    def begin(self) -> None:
        """Another attempt begins here; nothing of the one before counts any more."""
        self.part, self.clear = None, None
        self.idle = self.course.here not in self.course.ranks
        self.restarts.again()

    def close(self) -> None:
        """Let nobody in any more."""
        if self.door is not None:
            self.door.close()
            self.door = None

    # the hub is lost

    def succeed(self, fallen: int) -> None:
        """Our part has ended, and the hub is gone: find who follows, or do so."""
        self._fallen = self.course.node(fallen)
        now = time.monotonic()
        self._until = self._until or now + SUCCESSION_LIMIT * limit_of(self.side.spec)
        able = {*self.course.doors, self.course.here} - self.course.lost
        if self.wish is not None or not self.course.may_go_on(len(able)) or now > self._until:
            self.conclude_alone()
        elif min(able) == self.course.here:
            hub = Heir(self)
            self.role = hub
            hub.take_over(self._fallen)
        else:
            seat = min(able)
            address, port = self.course.doors[seat]
            peer = RestartPeer(self, seat)
            self.role = peer
            peer.follow(address, port)

    def found(self) -> None:
        """Somebody leads again."""
        self._until = 0.0

    def conclude_alone(self) -> None:
        """End with what is known here: who is lost, and our part."""
        spec = {**self.side.spec, "hub": self.here}
        lost = [entry for entry in self.course.roster if entry.get("lost") and entry["node_rank"] is not None]
        parts = [lost_part(one["node"], one["node_rank"], one["reason"], time.time()) for one in lost]
        parts += [self.part] if self.part is not None else []
        gave_up = None if self.wish is not None else "nodes"
        record = make_record(spec, parts, None, whole=False)
        record.update(attempts=self.course.history, gave_up=gave_up, roster=self.course.roster)
        self.side.keep(record)
        self.restarts.conclude({"gave_up": gave_up})
        self.close()
        self.side.leave()
