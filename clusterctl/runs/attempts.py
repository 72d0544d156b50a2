"""Tells of the attempts of a run as they come: why one ended, and on which nodes the next one runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from clusterctl.plans.attempts import Seat, attempt_of
from clusterctl.plans.spans import render_span
from clusterctl.plans.state import WAITING, NodeState, roster_of
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.nodeset import fold_names

LONGEST_PAUSE = 30 * 86400.0  # seconds


class Attempts:
    """The attempts so far, told once each, whichever node says so first.

    A node sends its new state before the events and lines that led to it, and gets ready while the pause lasts. So the
    word that an attempt begins waits for its first line, or until it runs and nothing more comes.
    """

    def __init__(self, known: Mapping[str, NodeState | None], notice: Callable[[str], None]) -> None:
        self._notice = notice
        self._roster: tuple[Seat, ...] = ()
        self._told: dict[str, NodeState] = {}
        self._pausing: dict[int, set[str]] = {}  # who has told that another attempt follows this one
        self.number = max((part.attempt for part in known.values() if part), default=1)
        self._paused = self.number - 1
        self._held: list[str] = []  # notices, of which the last is that the current attempt begins
        self._runs = False

    @property
    def lost(self) -> Mapping[str, str]:
        """Why nodes are gone that took part in an earlier attempt, or would have had a place to take."""
        return {seat.node: seat.reason for seat in self._roster if seat.lost}

    @property
    def may_follow(self) -> bool:
        """Tell whether the nodes may start the run again."""
        return bool(self._roster)

    def is_settled(self, number: int) -> bool:
        """Tell whether it is known that another attempt follows this one."""
        return number < self.number or number <= self._paused

    def is_out(self, node: str) -> bool:
        """Tell whether a node has no part in the current attempt, or none in the next: what befalls it ends nothing."""
        return any(seat.node == node and (seat.node_rank is None or seat.lost) for seat in self._roster)

    def hear_state(self, node: str, state: NodeState, heard: Collection[str]) -> bool:
        """Take a node's state; tells whether by it a new attempt has begun, as the nodes agree that are `heard` now."""
        self._told[node] = state
        told = {name: part for name, part in self._told.items() if name in heard or name == node}
        roster = roster_of(told)
        number = max((part.attempt for part in told.values() if part.roster == roster), default=0)
        if number < self.number or not roster:
            return False
        before, self._roster = self._roster, roster
        fresh, self.number = number > self.number, number
        self._runs = state.state != WAITING or (self._runs and not fresh)
        if fresh:
            self._held.append(f"attempt {self.number} begins on {_render(roster, before)}")
        return fresh

    def hear_lines(self, file: str) -> None:
        """Take notice that lines of a log follow."""
        if attempt_of(file) == self.number:
            self.settle()

    def hear_nothing(self) -> None:
        """Take notice that nothing more came for a moment."""
        if self._runs:
            self.settle()

    def settle(self) -> None:
        """Say what is held back."""
        held, self._held = self._held, []
        for notice in held:
            self._notice(notice)

    def hear_event(self, node: str, event: Untrusted, heard: Collection[str]) -> bool:
        """Take a node's event; tells whether the nodes have decided to start the run again.

        They all say so. One that is alone with it may lie, to keep the failures of others from counting.
        """
        number, seconds = event.integer("attempt", 1), event.number("seconds", 0.0, LONGEST_PAUSE)
        if event.text("event") != "pausing" or number is None or not self._paused < number <= self.number:
            return False  # a state comes before the events that led to it, so that this may be an earlier attempt's
        told_by = self._pausing.setdefault(number, set())
        told_by.add(node)
        if len(told_by) < min(2, len({*heard, node})):
            return False
        self._paused = number
        if number == self.number:
            self.settle()
        pause = f" in {render_span(seconds)}" if seconds is not None else ""
        told = f"attempt {number}: {event.text('reason', 1000)}"
        told += f"; attempt {number + 1} begins{pause}" if number + 1 >= self.number else ""
        if self._held:
            self._held.insert(-1, told)
        else:
            self._notice(told)
        return True


def _render(roster: tuple[Seat, ...], before: tuple[Seat, ...]) -> str:
    """Name the nodes of an attempt by their ranks, and who of them was a spare."""
    fresh = {seat.node for seat in before if seat.idle}
    seats = sorted(
        (seat for seat in roster if seat.node_rank is not None), key=lambda seat: seat.node_rank or 0
    )
    kept = fold_names([seat.node for seat in seats if seat.node not in fresh])
    new = [f"{seat.node} (spare, node {seat.node_rank})" for seat in seats if seat.node in fresh]
    return ", ".join(filter(None, [kept, *new]))
