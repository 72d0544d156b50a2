"""The hub: members, stop, verdict, further attempts."""

from __future__ import annotations

import time
from collections import deque
from typing import Any, Deque, Dict, List, Optional, Set, Tuple

from ...protocol.reasons import CODE, NODE_LOST
from ..state.run_record import time_to_prepare
from .channel import Channel, SealError, write
from .listener import Door
from .membership import (
    FAILURE,
    FAILURE_WAIT,
    FAREWELL,
    LONGEST_REASON,
    STOP,
    TIME,
    Facts,
    Gang,
    Order,
    Part,
    Side,
    bounds_of,
    interval_of,
    limit_of,
    overdue_after,
    silent_beats,
)
from .messages import (
    LOST,
    Ack,
    Beat,
    Clear,
    Ended,
    Failed,
    Listening,
    Message,
    Ready,
    as_facts,
    lost_part,
    make_record,
    on_clock,
)
from .restart_reason import Blame, blame
from .restarts import READY_LIMIT, Standing
from .roster import MAJORITY, NO_PROGRESS, NODES

CLOCK_LOOKS = 8  # answers among which the quickest tells a peer's clock best
CLOCK_SLACK = 0.2  # seconds by which a node's clock may be misjudged
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
        self._last_seen: Dict[int, float] = {}  # the last sign of life of those that left
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
        self._last_seen[rank] = member.channel.last_seen
        if self._going and rank not in self.parts:
            self.members.pop(rank, None)
            self._lose(rank, member.channel.node, why)
        else:
            self._went[rank] = why
            self._forget(member)

    def _lose(self, rank: int, node: str, why: str) -> None:
        part = lost_part(node, self.rank_of(rank), why, time.time(), self._last_seen.get(rank))
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
                channel = self.members.pop(seat).channel
                self._last_seen[seat] = channel.last_seen
                channel.close()
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


CLEAR_LIMIT = 60.0  # seconds for GPU memory to become free

RUNNING, CLEARING, PAUSING, GATHERING, OVER = range(5)  # GATHERING: see failover.py
ROUND = ("clear", "again", "hold", "departure", "gather", "overdue")  # the moments that this hub waits for


class RestartHub(Hub):
    """The gang as the seat that leads it sees it."""

    def __init__(self, standing: Standing) -> None:
        super().__init__(standing.side)
        self.standing = standing
        self.course, self.policy = standing.course, standing.restarts.policy
        self.seat = self.course.here
        self.phase = RUNNING
        self.clear: Dict[int, Clear] = {}
        self.blamed = Blame("", "", "")
        self._ready: Dict[int, Ready] = {}
        self._port: Optional[int] = None
        self._silence = False
        self._go_at = 0.0
        self._known: Optional[Blame] = None  # what no part tells
        self._beside: List[Part] = []  # of lost nodes without a rank, which are judged too
        self._begin_round()

    def _begin_round(self) -> None:
        self.expected = set(self.course.ranks)
        self.parts, self.clear, self._ready = {}, {}, {}
        self.stop, self._port, self._sent_go = None, None, False
        self._patience = float("inf")
        self.phase = RUNNING

    def rank_of(self, seat: int) -> int:
        """Return the rank that the attempt gives a seat; its own number if none."""
        return self.course.ranks.get(seat, seat)

    def open(self) -> None:
        """Let the others in, and tell the client where."""
        self.door = self.standing.door
        if self.door is not None:
            self.door.open(self.admit)
            self.side.tell("hub", port=self.door.port)

    def admit(self, channel: Channel) -> bool:
        """Take a peer in, unless it is here or was given up."""
        return channel.rank not in self.course.lost and super().admit(channel)

    def went(self) -> None:
        """GO was given here; with the first one nobody comes any more."""
        if not self._going:
            self._going = True
            self.standing.close()
            for seat in set(range(self.course.seats)) - {self.seat} - set(self.members) - set(self.parts):
                self._lose(seat, self.course.node(seat), self._why_away(seat))

    # who is here

    def _left(self, member: Member, why: str) -> None:
        if self.phase == OVER or not self._going:
            super()._left(member, why)
        else:
            self.members.pop(member.channel.rank, None)
            self._last_seen[member.channel.rank] = member.channel.last_seen
            self._silence = self._silence or member.channel.quiet >= self._most_quiet
            self._lose(member.channel.rank, member.channel.node, why)

    def _lose(self, rank: int, node: str, why: str) -> None:
        seat = rank
        self.course.lose(seat, why)
        self.standing.restarts.show_roster()
        self._tell("lost", seat=seat, why=why)
        if self.phase == RUNNING and seat in self.expected and seat not in self.parts:
            super()._lose(seat, node, why)
        elif self.phase == RUNNING and self.course.outnumbered:
            here = self.course.seats - len(self.course.lost)
            self._stop_all(
                "", Order(f"only {here} of {self.course.seats} nodes are left", FAILURE_WAIT, FAILURE)
            )
        self._look_on()

    def _tell(self, kind: str, **facts: Any) -> None:
        for member in list(self.members.values()):
            member.channel.send(kind, **facts)

    # what they say

    def _hear(self, member: Member, message: Message) -> None:
        seat = member.channel.rank
        if isinstance(message, (Failed, Ended, Ready, Listening)) and message.attempt != self.course.attempt:
            return
        if isinstance(message, Clear):
            self._take_clear(seat, message)
        elif isinstance(message, Ready):
            self._take_ready(seat, message)
        elif isinstance(message, Listening):
            self._take_listening(seat, message)
        else:
            super()._hear(member, message)

    def departs(self, event: str, facts: Facts) -> None:
        """Our own part of a later attempt has come so far."""
        if event == "port":
            self._port = int(facts["port"])
        elif event == "ready":
            self._take_ready(self.seat, Ready(self.course.attempt, self._port, self.standing.address))
        elif event == "listening":
            self._let_go(int(facts["port"]))

    # an attempt ends

    def _stop_all(self, node: str, order: Order) -> None:
        self.standing.hear_wish(order)
        if self.phase == RUNNING:
            super()._stop_all(node, order)
        elif self.phase != OVER and order.kind in (STOP, TIME):
            state = "TIMEOUT" if order.kind == TIME else "CANCELLED"
            self._finish(None, state, order.reason)

    def ended(self, part: Part) -> None:
        """Take our own part; before the first GO there is nobody to wait for."""
        if not self._going:
            self.standing.close()
        super().ended(part)

    def cleared(self, unfit: str, progress: Optional[bool]) -> None:
        """We could begin anew ourselves."""
        self._take_clear(self.seat, Clear(unfit, progress))

    def _take_clear(self, seat: int, message: Clear) -> None:
        self.clear[seat] = message
        self._look_on()

    def _all_ended(self) -> None:
        """Judge the attempt: it is the last, or all that is left of it must go first."""
        self.phase = CLEARING
        for name in ROUND:
            self.side.loop.drop(name)
        parts = self._parts_in_order()
        if all(part["state"] == "SUCCEEDED" for part in parts) or self.standing.wish is not None:
            self._finish(None)
            return
        if self.course.outnumbered:
            here = len(self._present)
            self._finish(self.course.too_few(here, here) or MAJORITY)
            return
        self.blamed = self._blame(parts)
        gave_up = self.policy.refuse(self.blamed.reason, self.course.attempt - 1)
        if gave_up is not None:
            self._finish(gave_up)
            return
        self.side.loop.after(CLEAR_LIMIT, "clear", self._weigh)
        self._look_on()

    def _blame(self, parts: List[Part]) -> Blame:
        """Find the reason; a node that cannot even begin is of no more use than one that is lost."""
        known, self._known = self._known, None
        parts, self._beside = [*parts, *self._beside], []
        found = blame(make_record(self.side.spec, parts, self.stop, whole=True))
        if known is not None and found.reason != NODE_LOST:
            return known
        for seat, part in self.parts.items():
            if part["state"] == "FAILED_SETUP" and found.reason == CODE and part["node"] == found.node:
                self.course.doubt(seat, part["reason"])
                return Blame(NODE_LOST, found.node, found.text)
        return found

    @property
    def _present(self) -> Set[int]:
        return {self.seat, *self.members} - self.course.lost

    def _look_on(self) -> None:
        """Go on with what nobody is missing for any more."""
        if self.phase == CLEARING and self._present & self.expected <= set(self.clear):
            self._weigh()

    def _fit(self) -> Set[int]:
        """Name who could take part: spares at once, others when nothing is left there."""
        for seat in self._present & self.expected:
            said = self.clear.get(seat)
            self.course.doubt(seat, said.unfit if said else "the last attempt has not been cleared away")
        return self._present - self.course.unfit

    def _weigh(self) -> None:
        self.side.loop.drop("clear")
        entry = self._entry()
        too_few = self.course.too_few(len(self._present), len(self._fit()))
        if self.course.no_progress(entry):
            self._finish(NO_PROGRESS)
        elif too_few is not None:
            self._finish(too_few)
        else:
            self._pause(entry)

    def _entry(self) -> Facts:
        """Write down the attempt; what a lost node has brought about is not known, without a GO there is nothing."""
        told = [self.clear[seat].progress if seat in self.clear else None for seat in self.expected]
        began = self._sent_go or self.course.attempt == 1
        progress = True if True in told else False if began and None not in told else None
        why = {"reason": self.blamed.reason, "node": self.blamed.node, "text": self.blamed.text}
        times = {"began": self.standing.restarts.began, "ended": time.time()}
        return {"attempt": self.course.attempt, **why, **times, "progress": progress}

    def _pause(self, entry: Facts) -> None:
        self.phase = PAUSING
        self.course.note(entry)
        seconds = self.policy.pause_before(self.course.attempt)
        if self._silence:  # who was cut off needs as long as we did to notice, and to end its part
            seconds = max(seconds, limit_of(self.side.spec) / 4)
        self._silence = False
        self._tell("pause", entry=entry, seconds=seconds, **self.course.as_facts())
        self.standing.restarts.pause(entry, seconds)
        self._go_at = time.monotonic() + seconds
        self.side.loop.after(max(0.0, seconds - self.policy.warm), "again", self._again)

    # the next attempt

    def _again(self) -> None:
        fit = self._fit()
        too_few = self.course.too_few(len(self._present), len(fit))
        if too_few is not None or not self.course.assign(fit):
            self._finish(too_few or NODES)
            return
        self._begin_round()
        time_left = self.standing.restarts.time_left
        self._tell("again", time_left=time_left, **self.course.as_facts())
        self.side.loop.after(self._ready_limit, "departure", self._miss)
        self.standing.begin()

    def _miss(self) -> None:
        late = sorted(self.expected - set(self._ready)) or [self._first]
        names = ", ".join(self.course.node(seat) for seat in late)
        reason = f"{names}: not ready within {self._ready_limit:g} s"
        for seat in late:
            self.course.doubt(seat, f"not ready within {self._ready_limit:g} s")
        self._known = Blame(NODE_LOST, self.course.node(late[0]), reason)
        self._stop_all("", Order(reason, FAILURE_WAIT, FAILURE))

    @property
    def _ready_limit(self) -> float:
        """The seconds that a new attempt has to get ready: its gates, and what the job has done before them."""
        return READY_LIMIT + time_to_prepare(self.side.spec)

    @property
    def _first(self) -> int:
        """The seat of rank 0."""
        return next(seat for seat in self.expected if self.rank_of(seat) == 0)

    def _take_ready(self, seat: int, message: Ready) -> None:
        if seat in self.expected:
            if self.rank_of(seat) == 0 and message.port is None:
                raise SealError("it is ready for the master's place, and holds no port")
            self._ready[seat] = message
            self._go_if_ready()

    def _take_listening(self, seat: int, message: Listening) -> None:
        """Believe nobody but rank 0, and only once it was let go, that it listens."""
        if seat in self.expected and self.rank_of(seat) == 0 and self._sent_go:
            self._let_go(message.port)

    def _go_if_ready(self) -> None:
        """Let rank 0 go, once, when all gates are ready and the pause is over."""
        if self.phase != RUNNING or self._sent_go or self.stop or not self.expected <= set(self._ready):
            return
        wait = self._go_at - time.monotonic()
        if wait > 0:
            self.side.loop.after(wait, "hold", self._go_if_ready)
            return
        self._sent_go = True
        self._port = self._ready[self._first].port
        self._send_go(self._first)
        if not self.side.spec["module"] and self._port is not None:
            self._let_go(self._port)

    def _let_go(self, port: int) -> None:
        """Rank 0 listens: let the rest go, unless the attempt is ending already."""
        if self.stop:
            return
        self.side.loop.drop("departure")
        self._port = port
        for seat in self.expected:
            if self.rank_of(seat) != 0:
                self._send_go(seat)

    def _send_go(self, seat: int) -> None:
        first, port = self._first, self._port
        address = self.course.address(first) or self._ready[first].address
        if seat == self.seat:
            self.standing.restarts.go(address, int(port or 0))
        elif seat in self.members:
            self.members[seat].channel.send("go", master_addr=address, master_port=port)

    # the end of all

    def _finish(self, gave_up: Optional[str], state: str = "", reason: str = "") -> None:
        """Tell all that there will be no further attempt."""
        self.phase = OVER
        for name in ROUND:
            self.side.loop.drop(name)
        record = make_record(self.standing.spec, self._parts_in_order(), self.stop, whole=True)
        record = self.standing.story(record, gave_up, state=state, reason=reason)
        end = {"gave_up": gave_up, "state": state, "reason": reason}
        self.side.keep(record)
        self.standing.restarts.conclude(end)
        self._tell_all(record=record, end=end)

    def desert(self) -> None:
        """Close every connection."""
        self.phase = OVER
        for name in (*ROUND, "farewell"):
            self.side.loop.drop(name)
        for member in self.members.values():
            member.channel.close()
        self.members.clear()

    def _leave(self) -> None:
        self.standing.close()
        super()._leave()
