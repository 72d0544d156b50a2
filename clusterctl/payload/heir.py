"""The hub that follows one that is lost: waits for those who are left, puts their parts together, and leads on."""

from __future__ import annotations

import time
from typing import Set

from .blame import NODE_LOST, Blame
from .gang import is_part, limit_of, lost_part, on_clock
from .hub import Member
from .restart_hub import GATHERING, RestartHub
from .seal import Message, SealError
from .standing import Standing

GATHER_TIME = 1.25  # silences in which the others must have come


class Heir(RestartHub):
    """The gang as the lowest seat that is left sees it."""

    def __init__(self, standing: Standing) -> None:
        super().__init__(standing)
        self._greeted: Set[int] = set()

    def take_over(self, fallen: str) -> None:
        """Lead on, after a hub that is lost: wait for the others."""
        self._known = Blame(NODE_LOST, fallen, f"{fallen} is lost")
        self._going = True
        self.phase = GATHERING
        self._silence = True
        if self.standing.part is not None:
            self.parts[self.seat] = self.standing.part
        if self.standing.clear is not None:
            self.clear[self.seat] = self.standing.clear
        self.door = self.standing.door
        if self.door is not None:
            self.door.open(self.admit)
        self.side.loop.after(GATHER_TIME * limit_of(self.side.spec), "gather", self._gathered)
        self._look_on()

    def _awaited(self) -> Set[int]:
        return set(range(self.course.seats)) - {self.seat} - self.course.lost

    def _greet(self, member: Member, message: Message) -> None:
        seat, part = member.channel.rank, message.get("part")
        self.course.take(message)
        if part is not None:
            if not is_part(part):
                raise SealError("no part of a run")
            self.parts[seat] = {**on_clock(part, member.offset), "node": member.channel.node}
        self._greeted.add(seat)
        self._look_on()

    def _gathered(self) -> None:
        """Whoever has not come is lost; then judge the attempt as any other."""
        self.side.loop.drop("gather")
        self.standing.found()
        self.standing.close()
        for seat in self._awaited() - self._greeted:
            self.course.lose(seat, "it did not come to the next hub")
        self.expected = set(self.course.ranks)
        for seat in self.expected - set(self.parts):
            why = next((one.get("reason") for one in self.course.roster if one["seat"] == seat), "")
            self.parts[seat] = lost_part(self.course.node(seat), self.rank_of(seat), why or "", time.time())
        self._all_ended()

    def _hear(self, member: Member, message: Message) -> None:
        if message["kind"] == "hello" and self.phase == GATHERING:
            self._greet(member, message)
        else:
            super()._hear(member, message)

    def _look_on(self) -> None:
        """Go on with what nobody is missing for any more."""
        if self.phase == GATHERING and self._awaited() <= self._greeted:
            self._gathered()
        else:
            super()._look_on()
