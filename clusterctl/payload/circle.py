"""A gang that goes on after a failure, and without its hub: the lowest seat that is left becomes the next one."""

from __future__ import annotations

import time
from typing import Any, List, Optional

from .course import NODES
from .door import Door
from .gang import Facts, Gang, Order, Part, Side, limit_of
from .heir import Heir
from .parts import lost_part, make_record
from .restart_hub import RestartHub
from .restart_peer import RestartPeer
from .restarts import Restarts
from .standing import Standing

SUCCESSION_LIMIT = 3.0  # silences within which somebody must be found to follow


class Circle(Gang):
    """What an agent asks of its gang, whoever leads it."""

    def __init__(self, side: Side, restarts: Restarts) -> None:
        super().__init__(side)
        self.standing = Standing(side, restarts, self.succeed)
        self.course = restarts.course
        leads = self.course.here == 0
        self.role: Gang = RestartHub(self.standing) if leads else RestartPeer(self.standing, 0)

    def open(self) -> None:
        """Listen, where there are others; VerbError if that is not possible."""
        if self.course.seats > 1 and self.standing.door is None:
            door = Door(self.side.loop, self.side.spec, self.side.token)
            self.standing.door = door
            self.side.tell("door", port=door.port)
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

    def stopped(self, order: Order) -> None:
        """Somebody stopped the run here, or its time was up."""
        self.standing.hear_wish(order)
        self.role.stopped(order)

    def ended(self, part: Part) -> None:
        """This node's part of the attempt has ended."""
        self.standing.part, self.standing.clear = part, None
        self.role.ended(part)

    def cleared(self, unfit: str, progress: Optional[bool]) -> None:
        """Nothing is left here of it."""
        self.standing.clear = {"unfit": unfit, "progress": progress}
        self.role.cleared(unfit, progress)

    def beat(self) -> None:
        """Say that we are here, and count silence."""
        self.role.beat()

    def desert(self) -> None:
        """Leave the others without a word: they notice."""
        self.role.desert()
        self.standing.close()
        super().desert()

    def succeed(self, fallen: int) -> None:
        """Our part has ended, and the hub is gone: find who follows, or do so."""
        now, standing = time.monotonic(), self.standing
        standing.until = standing.until or now + SUCCESSION_LIMIT * limit_of(self.side.spec)
        able = {*self.course.doors, self.course.here} - self.course.lost
        if standing.wish is not None or not self.course.may_go_on(len(able)) or now > standing.until:
            self.conclude_alone()
        elif min(able) == self.course.here:
            heir = Heir(standing)
            self.role = heir
            heir.take_over(self.course.node(fallen))
        else:
            peer = RestartPeer(standing, min(able))
            self.role = peer
            peer.follow(*self.course.doors[min(able)])

    def conclude_alone(self) -> None:
        """End with what is known here: who is lost, and our part."""
        standing = self.standing
        lost = [entry for entry in self.course.roster if entry.get("lost") and entry["node_rank"] is not None]
        parts = [lost_part(one["node"], one["node_rank"], one["reason"], time.time()) for one in lost]
        parts += [standing.part] if standing.part is not None else []
        able = len({*self.course.doors, self.course.here} - self.course.lost)
        gave_up = None if standing.wish is not None else self.course.too_few(able, able) or NODES
        self.side.keep(standing.story(make_record(standing.spec, parts, None, whole=False), gave_up))
        standing.restarts.conclude({"gave_up": gave_up})
        standing.close()
        self.side.leave()
