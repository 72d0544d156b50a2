"""Next hub after a loss."""

from __future__ import annotations

import time
from typing import Any, Dict, List, Optional, Set

from .hub import GATHERING, Member, RestartHub
from .listener import Door
from .membership import Facts, Gang, Order, Part, Side, limit_of
from .messages import Clear, Hello, Message, lost_part, make_record
from .peer import RestartPeer
from .restarts import Restarts, Standing
from .roster import NODES, Told

GATHER_TIME = 1.25  # silences in which the others must have come


class Heir(RestartHub):
    """The gang as the lowest seat that is left sees it."""

    def __init__(self, standing: Standing) -> None:
        super().__init__(standing)
        self._last_seen.update(standing.last_seen)
        self._tellings: Dict[int, Told] = {}
        self._fallen = 0  # the seat that led before

    def take_over(self, fallen: int) -> None:
        """Lead on, after a hub that is lost: wait for the others."""
        self._fallen = fallen
        self._going = True
        self.phase = GATHERING
        self._silence = True
        if self.standing.part is not None:
            self.parts[self.seat] = self.standing.part
        if self.standing.clear is not None:
            self.clear[self.seat] = Clear(**self.standing.clear)
        self.door = self.standing.door
        if self.door is not None:
            self.door.open(self.admit)
        self.side.loop.after(GATHER_TIME * limit_of(self.side.spec), "gather", self._gathered)
        self._look_on()

    def _awaited(self) -> Set[int]:
        return set(range(self.course.seats)) - {self.seat} - self.course.lost

    def _greet(self, member: Member, hello: Hello) -> None:
        seat = member.channel.rank
        if hello.part is not None:
            self.parts[seat] = self._own_part(member, hello.part)
        self._tellings[seat] = hello.course
        self._look_on()

    def _gathered(self) -> None:
        """Whoever has not come is lost; then judge the attempt as any other."""
        self.side.loop.drop("gather")
        self.standing.found()
        self.standing.close()
        here = {seat: told for seat, told in self._tellings.items() if seat in self.members}
        self.course.agree(list(here.values()))
        for seat in self._awaited() - set(here):
            self.course.lose(seat, "it did not come to the next hub")
        self.expected = set(self.course.ranks)
        for seat in self.expected - set(self.parts):
            self.parts[seat] = self._part_of_lost(seat)
        if self._fallen not in self.expected:
            self._beside = [self._part_of_lost(self._fallen)]
        self._all_ended()

    def _part_of_lost(self, seat: int) -> Part:
        why = next((one.get("reason") for one in self.course.roster if one["seat"] == seat), "")
        seen = self._last_seen.get(seat)
        return lost_part(self.course.node(seat), self.rank_of(seat), why or "", time.time(), seen)

    def _hear(self, member: Member, message: Message) -> None:
        if not isinstance(message, Hello):
            super()._hear(member, message)
        elif self.phase == GATHERING:
            self._greet(member, message)

    def _look_on(self) -> None:
        """Go on with what nobody is missing for any more."""
        if self.phase == GATHERING and self._awaited() <= set(self._tellings):
            self._gathered()
        else:
            super()._look_on()


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
            heir.take_over(fallen)
        else:
            peer = RestartPeer(standing, min(able))
            self.role = peer
            peer.follow(*self.course.doors[min(able)])

    def conclude_alone(self) -> None:
        """End with what is known here: who is lost, and our part."""
        standing = self.standing
        lost = [entry for entry in self.course.roster if entry.get("lost") and entry["node_rank"] is not None]
        parts = [
            lost_part(
                one["node"], one["node_rank"], one["reason"], time.time(), standing.last_seen.get(one["seat"])
            )
            for one in lost
        ]
        parts += [standing.part] if standing.part is not None else []
        able = len({*self.course.doors, self.course.here} - self.course.lost)
        gave_up = None if standing.wish is not None else self.course.too_few(able, able) or NODES
        self.side.keep(standing.story(make_record(standing.spec, parts, None, whole=False), gave_up))
        standing.restarts.conclude({"gave_up": gave_up})
        standing.close()
        self.side.leave()
