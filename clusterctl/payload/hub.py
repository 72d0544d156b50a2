"""The hub: node 0's agent, to which the others come. It hears of every failure and end, and tells all."""

from __future__ import annotations

import time
from collections import deque
from typing import Any, Deque, Dict, List, Optional, Tuple

from .blame import CLOCK_SLACK
from .bounds import bounds_of
from .door import Door
from .gang import (
    FAILURE,
    FAILURE_WAIT,
    FAREWELL,
    LONGEST_REASON,
    Facts,
    Gang,
    Order,
    Part,
    Side,
    interval_of,
    limit_of,
    overdue_after,
    silent_beats,
)
from .link import Channel, write
from .messages import Ack, Beat, Ended, Failed, Message, as_facts
from .parts import LOST, lost_part, make_record, on_clock
from .seal import SealError

CLOCK_LOOKS = 8  # answers among which the quickest tells a peer's clock best
OPEN_BEATS = 64  # questions that an answer can still be to


class Member:
    """A peer that is here, and how far its clock is from ours."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.joined = False
        self._asked: Deque[float] = deque(maxlen=OPEN_BEATS)
        self._looks: Deque[Tuple[float, float]] = deque(maxlen=CLOCK_LOOKS)

    def beat(self) -> None:
        """Ask for the peer's time."""
        self.channel.quiet += 1
        self._asked.append(time.time())
        self.channel.send("beat", at=self._asked[-1])

    def answer(self, beat: Beat) -> None:
        """Take the answer; SealError if it is to nothing that was asked."""
        if beat.at not in self._asked:
            raise SealError("it answered a beat that was not sent")
        now = time.time()
        if now >= beat.at:
            self._looks.append((now - beat.at, beat.time - (beat.at + now) / 2))

    @property
    def offset(self) -> float:
        """Return the peer's clock minus ours."""
        return min(self._looks)[1] if self._looks else 0.0


class Hub(Gang):
    """The gang as node 0 sees it."""

    def __init__(self, side: Side) -> None:
        super().__init__(side)
        self.bounds = bounds_of(side.spec)
        self.seat = 0
        self.expected = set(range(side.spec["nnodes"]))  # whose parts make up the run
        self.door: Optional[Door] = None
        self.members: Dict[int, Member] = {}
        self.parts: Dict[int, Part] = {}
        self.stop: Optional[Facts] = None
        self._came: Dict[int, str] = {}  # the names of those who were ever here
        self._went: Dict[int, str] = {}  # why they left before GO
        self._going = False
        self._told = False
        self._patience = float("inf")  # the shortest that the others were told
        self._most_quiet = silent_beats(side.spec, interval_of(side.spec))

    def open(self) -> None:
        """Listen, and tell the client where; VerbError if that is not possible."""
        self.door = Door(self.side.loop, self.side.spec, self.side.token)
        self.door.open(self.admit)
        self.side.tell("hub", port=self.door.port)

    def admit(self, channel: Channel) -> bool:
        """Take a peer in, unless its rank is here."""
        if channel.rank in self.members:
            return False
        member = Member(channel)
        self.members[channel.rank] = member
        self._came[channel.rank] = channel.node
        channel.open(lambda message: self._hear(member, message), lambda why: self._left(member, why))
        member.beat()
        return True

    def went(self) -> None:
        """Nobody comes any more; who is not here has been lost since it joined."""
        self._going = True
        if self.door is not None:
            self.door.close()
        for rank in self.expected - {self.seat} - set(self.members) - set(self.parts):
            self._lose(rank, self.name_of(rank), self._why_away(rank))

    def name_of(self, seat: int) -> str:
        """Give the name of the node at a seat; one that never came may be known to nobody here."""
        known = self.bounds.nodes[seat] if self.bounds.nodes else self._came.get(seat)
        return known or f"node-{seat}"

    def _why_away(self, seat: int) -> str:
        return (
            f"it went away before the start: {self._went[seat]}" if seat in self._went else "it did not come"
        )

    def failed(self, reason: str) -> None:
        """End all because of this node."""
        self._stop_all(self.here, Order(f"{self.here}: {reason}", FAILURE_WAIT, FAILURE))

    def stopped(self, order: Order) -> None:
        """End all at somebody's wish."""
        self._stop_all(self.here, order)

    def ended(self, part: Part) -> None:
        """Take our own part; before GO there is nobody to wait for."""
        self.parts[self.seat] = part
        if not self._going:
            self._leave()
            return
        self._look_at_end(self.here, part)

    def beat(self) -> None:
        """Ask every peer for a sign, and give up those that have been silent for too long."""
        for member in list(self.members.values()):
            if member.channel.quiet >= self._most_quiet:
                member.channel.close()
                self._left(member, f"it was silent for {limit_of(self.side.spec):g} s")
            else:
                member.beat()

    # what the peers say

    def _hear(self, member: Member, message: Message) -> None:
        if isinstance(message, Beat):
            member.answer(message)
            if not member.joined:
                member.joined = True
                member.channel.send("welcome")
        elif isinstance(message, Failed):
            reason = f"{member.channel.node}: {message.reason}"[:LONGEST_REASON]
            self._stop_all(member.channel.node, Order(reason, FAILURE_WAIT, FAILURE))
        elif isinstance(message, Order):
            self._stop_all(member.channel.node, message)
        elif isinstance(message, Ended) and member.channel.rank not in self.parts:
            self._take_part(member, message.part)
        elif isinstance(message, Ack):
            member.channel.close()
            self._forget(member)

    def _take_part(self, member: Member, told: Part) -> None:
        part = self._own_part(member, told)
        self.parts[member.channel.rank] = part
        self._look_at_end(member.channel.node, part)

    def _own_part(self, member: Member, told: Part) -> Part:
        """Say whose part it is, by our clock, and let it tell of no stop before the one that it can know of."""
        node = member.channel.node
        part = {**on_clock(told, member.offset), "node": node, "node_rank": self.rank_of(member.channel.rank)}
        if part["stopped_at"] is not None:
            known = self.stop["time"] if self.stop is not None else time.time()
            own = self.stop is None or self.stop["node"] == node
            earliest = known - (limit_of(self.side.spec) if own else CLOCK_SLACK)
            part["stopped_at"] = max(part["stopped_at"], earliest)
        return part

    def _left(self, member: Member, why: str) -> None:
        rank = member.channel.rank
        if self._going and rank not in self.parts:
            self.members.pop(rank, None)
            self._lose(rank, member.channel.node, why)
        else:
            self._went[rank] = why
            self._forget(member)

    def _lose(self, rank: int, node: str, why: str) -> None:
        part = lost_part(node, self.rank_of(rank), why, time.time())
        self.parts[rank] = part
        self._look_at_end(node, part)

    def rank_of(self, seat: int) -> int:
        """Return the node rank of who came as `seat`."""
        return seat

    def _forget(self, member: Member) -> None:
        if self.members.get(member.channel.rank) is member:
            del self.members[member.channel.rank]
        if self._told and not self.members:
            self._leave()

    # the end of all

    def _stop_all(self, node: str, order: Order) -> None:
        """End the run everywhere but on the node that it began with, which does so itself; later ones only hurry."""
        if not self._going or order.grace >= self._patience:
            return
        self._patience = order.grace
        self.side.loop.after(overdue_after(self.side.spec, order.grace), "overdue", self._give_up_the_rest)
        if self.stop is None:
            self.stop = {"node": node, "reason": order.reason, "time": time.time()}
        for member in list(self.members.values()):
            if member.channel.node != node:
                member.channel.send("stop", **as_facts(order, self.bounds))
        if node != self.here and self.seat not in self.parts:
            self.side.stop(order)

    def _give_up_the_rest(self) -> None:
        """Whoever has not ended long after the stop is lost: its agent may be there, and never say so."""
        for seat in self.expected - set(self.parts):
            if seat in self.members:
                self.members.pop(seat).channel.close()
            self._lose(seat, self.name_of(seat), "it did not end after the stop")

    def _look_at_end(self, node: str, part: Part) -> None:
        if part["state"] != "SUCCEEDED" and self.stop is None:
            lost = part["state"] == LOST
            reason = (
                f"{node} is lost: {part['reason']}" if lost else f"{node}: {part['reason'] or part['state']}"
            )
            self._stop_all(node, Order(reason[:LONGEST_REASON], FAILURE_WAIT, FAILURE))
        if self.expected <= set(self.parts) and not self._told:
            self._all_ended()

    def _all_ended(self) -> None:
        record = make_record(self.side.spec, self._parts_in_order(), self.stop, whole=True)
        self.side.keep(record)
        self._tell_all(record=record)

    def _parts_in_order(self) -> List[Part]:
        return sorted(self.parts.values(), key=lambda part: int(part["node_rank"]))

    def _tell_all(self, **verdict: Any) -> None:
        self._told = True
        self.side.loop.drop("overdue")
        text = write("verdict", verdict)
        for member in list(self.members.values()):
            member.channel.send_text(text)
        if self.members:
            self.side.loop.after(FAREWELL, "farewell", self._leave)
        else:
            self._leave()

    def _leave(self) -> None:
        self.side.loop.drop("farewell")
        self.side.loop.drop("overdue")
        if self.door is not None:
            self.door.close()
        for member in self.members.values():
            member.channel.close()
        self.members.clear()
        self.side.leave()
