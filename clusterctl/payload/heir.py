"""The hub that follows one that is lost: waits for those who are left, puts their parts together, and leads on."""

from __future__ import annotations

import time
from typing import Dict, Set

from .blame import NODE_LOST, Blame
from .course import Told
from .gang import limit_of
from .hub import Member
from .messages import Clear, Hello, Message
from .parts import lost_part
from .restart_hub import GATHERING, RestartHub
from .standing import Standing

GATHER_TIME = 1.25  # silences in which the others must have come


class Heir(RestartHub):
    """The gang as the lowest seat that is left sees it."""

    def __init__(self, standing: Standing) -> None:
        super().__init__(standing)
        self._tellings: Dict[int, Told] = {}

    def take_over(self, fallen: str) -> None:
        """Lead on, after a hub that is lost: wait for the others."""
        self._known = Blame(NODE_LOST, fallen, f"{fallen} is lost")
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
            why = next((one.get("reason") for one in self.course.roster if one["seat"] == seat), "")
            self.parts[seat] = lost_part(self.course.node(seat), self.rank_of(seat), why or "", time.time())
        self._all_ended()

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
