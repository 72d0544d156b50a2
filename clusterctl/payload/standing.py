"""Where an agent stands in a gang that may start its run again: what it keeps whoever leads."""

from __future__ import annotations

from typing import Callable, Dict, List, Optional

from .course import Course
from .door import Door
from .gang import STOP, TIME, Facts, Order, Part, Side
from .restarts import Restarts


class Standing:
    """The run's course, this node's part of the attempt, and a door for the time when this agent leads."""

    def __init__(self, side: Side, restarts: Restarts, succeed: Callable[[int], None]) -> None:
        self.side = side
        self.restarts = restarts
        self.course: Course = restarts.course
        self.succeed = succeed  # the hub, given by its seat, is lost, and our part has ended
        self.door: Optional[Door] = None
        self.wish: Optional[Order] = None  # somebody's, or the time limit's: nothing is tried again
        self.part: Optional[Part] = None
        self.clear: Optional[Facts] = None
        self.idle = bool(side.spec.get("spare"))
        self.until = 0.0  # when the search for the next hub is given up; 0 where there is one

    @property
    def address(self) -> str:
        """Return where the others reach this node; a run of one node may not know its own."""
        return str(self.side.spec.get("address") or self.side.spec["master_addr"])

    @property
    def spec(self) -> Facts:
        """Return the spec of a record that we write."""
        return {**self.side.spec, "hub": self.side.spec["node"]}

    def hear_wish(self, order: Order) -> None:
        """Remember that somebody, or the time limit, wants the end."""
        if self.wish is None and order.kind in (STOP, TIME):
            self.wish = order

    def begin(self) -> None:
        """Another attempt begins here; nothing of the one before counts any more."""
        self.part, self.clear = None, None
        self.idle = self.course.here not in self.course.ranks
        self.restarts.again()

    def found(self) -> None:
        """Somebody leads again."""
        self.until = 0.0

    def close(self) -> None:
        """Let nobody in any more."""
        if self.door is not None:
            self.door.close()
            self.door = None

    def story(self, record: Facts, gave_up: Optional[str], **end: str) -> Facts:
        """Add to a record what went before the last attempt, and why no other followed."""
        history: List[Dict[str, object]] = self.course.history
        return {**record, "attempts": history, "roster": self.course.roster, "gave_up": gave_up, **end}
