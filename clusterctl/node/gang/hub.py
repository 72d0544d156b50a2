"""The hub: members, stop, verdict, further attempts."""

from __future__ import annotations

import time
from collections import deque
from typing import Any, Deque, Dict, List, Optional, Set, Tuple

from ...protocol.ranks import NodeRank, Slot
from ...protocol.reasons import CODE, NODE_LOST
from ..lifecycle.starting import READY_LIMIT
from ..state.run_record import time_to_prepare
from .channel import ChannelError, SecureChannel, render_message
from .listener import Listener
from .membership import (
    FAILURE,
    FAILURE_WAIT,
    FINAL_GRACE,
    LONGEST_REASON,
    STOP,
    TIME,
    Gang,
    GangContext,
    JsonObject,
    NodePart,
    StopOrder,
    beat_interval,
    overdue_after,
    read_bounds,
    silence_limit,
    silent_beats,
)
from .messages import (
    LOST,
    Ack,
    BeatReply,
    Cleared,
    Ended,
    Failed,
    Listening,
    Message,
    Ready,
    correct_clock,
    lost_part,
    make_record,
    order_fields,
)
from .restart_reason import RestartReason, judge_record
from .restarts import GangState
from .roster import MAJORITY, NO_PROGRESS, NODES

CLOCK_SAMPLES = 8  # answers among which the quickest tells a peer's clock best
CLOCK_SLACK = 0.2  # seconds by which a node's clock may be misjudged
OPEN_BEATS = 64  # questions that an answer can still be to


class Member:
    """A peer that is here, and how far its clock is from ours."""

    def __init__(self, channel: SecureChannel) -> None:
        self.channel = channel
        self.joined = False
        self._sent_beats: Deque[float] = deque(maxlen=OPEN_BEATS)
        self._clock_samples: Deque[Tuple[float, float]] = deque(maxlen=CLOCK_SAMPLES)

    def send_beat(self) -> None:
        """Ask for the peer's time."""
        self.channel.unanswered_beats += 1
        self._sent_beats.append(time.time())
        self.channel.send("beat", at=self._sent_beats[-1])

    def on_reply(self, reply: BeatReply) -> None:
        """Take the answer; ChannelError if it is to nothing that was asked."""
        if reply.at not in self._sent_beats:
            raise ChannelError("it answered a beat that was not sent")
        now = time.time()
        if now >= reply.at:
            self._clock_samples.append((now - reply.at, reply.time - (reply.at + now) / 2))

    @property
    def offset(self) -> float:
        """Return the peer's clock minus ours."""
        return min(self._clock_samples)[1] if self._clock_samples else 0.0


class Hub(Gang):
    """The gang as node 0 sees it."""

    def __init__(self, context: GangContext) -> None:
        super().__init__(context)
        self.bounds = read_bounds(context.spec)
        self.slot = Slot(0)
        self.expected = set(map(Slot, range(context.spec["nnodes"])))  # whose parts make up the run
        self.listener: Optional[Listener] = None
        self.members: Dict[Slot, Member] = {}
        self.parts: Dict[Slot, NodePart] = {}
        self.stop: Optional[JsonObject] = None
        self._known_names: Dict[Slot, str] = {}  # the names of those who were ever here
        self._left_early: Dict[Slot, str] = {}  # why they left before GO
        self._last_seen: Dict[Slot, float] = {}  # the last sign of life of those that left
        self._started = False
        self._verdict_sent = False
        self._shortest_grace = float("inf")  # the shortest that the others were told
        self._beat_limit = silent_beats(context.spec, beat_interval(context.spec))

    def open(self) -> None:
        """Listen, and tell the client where; VerbError if that is not possible."""
        self.listener = Listener(self.context.loop, self.context.spec, self.context.token)
        self.listener.open(self.accept)
        self.context.report("hub", port=self.listener.port)

    def accept(self, channel: SecureChannel) -> bool:
        """Take a peer in, unless its rank is here."""
        if channel.slot in self.members:
            return False
        member = Member(channel)
        self.members[channel.slot] = member
        self._known_names[channel.slot] = channel.node
        channel.open(
            lambda message: self._on_message(member, message), lambda why: self._on_disconnect(member, why)
        )
        member.send_beat()
        return True

    def on_go(self) -> None:
        """Nobody comes any more; who is not here has been lost since it joined."""
        self._started = True
        if self.listener is not None:
            self.listener.close()
        for slot in self.expected - {self.slot} - set(self.members) - set(self.parts):
            self._mark_lost(slot, self.node_name(slot), self._absence_reason(slot))

    def node_name(self, slot: Slot) -> str:
        """Give the name of the node in a slot; one that never came may be known to nobody here."""
        known = self.bounds.nodes[slot] if self.bounds.nodes else self._known_names.get(slot)
        return known or f"node-{slot}"

    def _absence_reason(self, slot: Slot) -> str:
        left = self._left_early.get(slot)
        return f"it went away before the start: {left}" if left is not None else "it did not come"

    def on_failure(self, reason: str) -> None:
        """End all because of this node."""
        self._stop_all(self.own_node, StopOrder(f"{self.own_node}: {reason}", FAILURE_WAIT, FAILURE))

    def on_stop(self, order: StopOrder) -> None:
        """End all at somebody's wish."""
        self._stop_all(self.own_node, order)

    def on_end(self, part: NodePart) -> None:
        """Take our own part; before GO there is nobody to wait for."""
        self.parts[self.slot] = part
        if not self._started:
            self._shut_down()
            return
        self._check_end(self.own_node, part)

    def beat(self) -> None:
        """Ask every peer for a sign, and give up those that have been silent for too long."""
        for member in list(self.members.values()):
            if member.channel.unanswered_beats >= self._beat_limit:
                member.channel.close()
                self._on_disconnect(member, f"it was silent for {silence_limit(self.context.spec):g} s")
            else:
                member.send_beat()

    # what the peers say

    def _on_message(self, member: Member, message: Message) -> None:
        if isinstance(message, BeatReply):
            member.on_reply(message)
            if not member.joined:
                member.joined = True
                member.channel.send("welcome")
        elif isinstance(message, Failed):
            reason = f"{member.channel.node}: {message.reason}"[:LONGEST_REASON]
            self._stop_all(member.channel.node, StopOrder(reason, FAILURE_WAIT, FAILURE))
        elif isinstance(message, StopOrder):
            self._stop_all(member.channel.node, message)
        elif isinstance(message, Ended) and member.channel.slot not in self.parts:
            self._on_part(member, message.part)
        elif isinstance(message, Ack):
            member.channel.close()
            self._remove(member)

    def _on_part(self, member: Member, reported: NodePart) -> None:
        part = self._normalize_part(member, reported)
        self.parts[member.channel.slot] = part
        self._check_end(member.channel.node, part)

    def _normalize_part(self, member: Member, reported: NodePart) -> NodePart:
        """Say whose part it is, by our clock, and let it tell of no stop before the one that it can know of."""
        node = member.channel.node
        part = {
            **correct_clock(reported, member.offset),
            "node": node,
            "node_rank": self.node_rank_of(member.channel.slot),
        }
        if part["stopped_at"] is not None:
            stop_time = self.stop["time"] if self.stop is not None else time.time()
            is_own_stop = self.stop is None or self.stop["node"] == node
            earliest = stop_time - (silence_limit(self.context.spec) if is_own_stop else CLOCK_SLACK)
            part["stopped_at"] = max(part["stopped_at"], earliest)
        return part

    def _on_disconnect(self, member: Member, why: str) -> None:
        slot = member.channel.slot
        self._last_seen[slot] = member.channel.last_seen
        if self._started and slot not in self.parts:
            self.members.pop(slot, None)
            self._mark_lost(slot, member.channel.node, why)
        else:
            self._left_early[slot] = why
            self._remove(member)

    def _mark_lost(self, slot: Slot, node: str, why: str) -> None:
        part = lost_part(node, self.node_rank_of(slot), why, time.time(), self._last_seen.get(slot))
        self.parts[slot] = part
        self._check_end(node, part)

    def node_rank_of(self, slot: Slot) -> NodeRank:
        """Return the node rank of an agent; without spares and restarts it is the same number."""
        return NodeRank(slot)

    def _remove(self, member: Member) -> None:
        if self.members.get(member.channel.slot) is member:
            del self.members[member.channel.slot]
        if self._verdict_sent and not self.members:
            self._shut_down()

    # the end of all

    def _stop_all(self, node: str, order: StopOrder) -> None:
        """End the run everywhere but on the node that it began with, which does so itself; later ones only hurry."""
        if not self._started or order.grace >= self._shortest_grace:
            return
        self._shortest_grace = order.grace
        self.context.loop.after(
            overdue_after(self.context.spec, order.grace), "overdue", self._mark_overdue_lost
        )
        if self.stop is None:
            self.stop = {"node": node, "reason": order.reason, "time": time.time()}
        for member in list(self.members.values()):
            if member.channel.node != node:
                member.channel.send("stop", **order_fields(order, self.bounds))
        if node != self.own_node and self.slot not in self.parts:
            self.context.stop(order)

    def _mark_overdue_lost(self) -> None:
        """Whoever has not ended long after the stop is lost: its agent may be there, and never say so."""
        for slot in self.expected - set(self.parts):
            if slot in self.members:
                channel = self.members.pop(slot).channel
                self._last_seen[slot] = channel.last_seen
                channel.close()
            self._mark_lost(slot, self.node_name(slot), "it did not end after the stop")

    def _check_end(self, node: str, part: NodePart) -> None:
        if part["state"] != "SUCCEEDED" and self.stop is None:
            lost = part["state"] == LOST
            reason = (
                f"{node} is lost: {part['reason']}" if lost else f"{node}: {part['reason'] or part['state']}"
            )
            self._stop_all(node, StopOrder(reason[:LONGEST_REASON], FAILURE_WAIT, FAILURE))
        if self.expected <= set(self.parts) and not self._verdict_sent:
            self._all_ended()

    def _all_ended(self) -> None:
        record = make_record(self.context.spec, self._parts_in_order(), self.stop, whole=True)
        self.context.save_record(record)
        self._send_verdict(record=record)

    def _parts_in_order(self) -> List[NodePart]:
        return sorted(self.parts.values(), key=lambda part: int(part["node_rank"]))

    def _send_verdict(self, **verdict: Any) -> None:
        self._verdict_sent = True
        self.context.loop.cancel("overdue")
        text = render_message("verdict", verdict)
        for member in list(self.members.values()):
            member.channel.send_text(text)
        if self.members:
            self.context.loop.after(FINAL_GRACE, "farewell", self._shut_down)
        else:
            self._shut_down()

    def _shut_down(self) -> None:
        self.context.loop.cancel("farewell")
        self.context.loop.cancel("overdue")
        if self.listener is not None:
            self.listener.close()
        for member in self.members.values():
            member.channel.close()
        self.members.clear()
        self.context.leave()


CLEAR_LIMIT = 60.0  # seconds for GPU memory to become free

RUNNING, CLEARING, PAUSING, GATHERING, OVER = range(5)  # GATHERING: see failover.py
# the moments that this hub waits for
ROUND_TIMERS = ("clear", "again", "hold", "departure", "gather", "overdue")


class RestartHub(Hub):
    """The gang as the slot that leads it sees it."""

    def __init__(self, state: GangState) -> None:
        super().__init__(state.context)
        self.state = state
        self.roster, self.policy = state.roster, state.restarts.policy
        self.slot = self.roster.own_slot
        self.phase = RUNNING
        self.clear: Dict[Slot, Cleared] = {}
        self.restart_reason = RestartReason("", "", "")
        self._ready: Dict[Slot, Ready] = {}
        self._master_port: Optional[int] = None
        self._lost_by_silence = False
        self._go_time = 0.0
        self._given_cause: Optional[RestartReason] = None  # what no part tells
        self._lost_spares: List[NodePart] = []  # of lost nodes without a rank, which are judged too
        self._reset_round()

    def _reset_round(self) -> None:
        self.expected = set(self.roster.node_ranks)
        self.parts, self.clear, self._ready = {}, {}, {}
        self.stop, self._master_port, self._sent_go = None, None, False
        self._shortest_grace = float("inf")
        self.phase = RUNNING

    def node_rank_of(self, slot: Slot) -> NodeRank:
        """Return the node rank that the attempt gives a slot; its own number if none."""
        return self.roster.node_ranks.get(slot, NodeRank(slot))

    def open(self) -> None:
        """Let the others in, and tell the client where."""
        self.listener = self.state.listener
        if self.listener is not None:
            self.listener.open(self.accept)
            self.context.report("hub", port=self.listener.port)

    def accept(self, channel: SecureChannel) -> bool:
        """Take a peer in, unless it is here or was given up."""
        return channel.slot not in self.roster.lost and super().accept(channel)

    def on_go(self) -> None:
        """GO was given here; with the first one nobody comes any more."""
        if not self._started:
            self._started = True
            self.state.close()
            for slot in self.roster.all_slots - {self.slot} - set(self.members) - set(self.parts):
                self._mark_lost(slot, self.roster.node(slot), self._absence_reason(slot))

    # who is here

    def _on_disconnect(self, member: Member, why: str) -> None:
        if self.phase == OVER or not self._started:
            super()._on_disconnect(member, why)
        else:
            self.members.pop(member.channel.slot, None)
            self._last_seen[member.channel.slot] = member.channel.last_seen
            self._lost_by_silence |= member.channel.unanswered_beats >= self._beat_limit
            self._mark_lost(member.channel.slot, member.channel.node, why)

    def _mark_lost(self, slot: Slot, node: str, why: str) -> None:
        self.roster.mark_lost(slot, why)
        self.state.restarts.show_roster()
        self._send_all("lost", seat=slot, why=why)
        if self.phase == RUNNING and slot in self.expected and slot not in self.parts:
            super()._mark_lost(slot, node, why)
        elif self.phase == RUNNING and self.roster.in_minority:
            slot_count = self.roster.slot_count
            reason = f"only {slot_count - len(self.roster.lost)} of {slot_count} nodes are left"
            self._stop_all("", StopOrder(reason, FAILURE_WAIT, FAILURE))
        self._advance()

    def _send_all(self, kind: str, **facts: Any) -> None:
        for member in list(self.members.values()):
            member.channel.send(kind, **facts)

    # what they say

    def _on_message(self, member: Member, message: Message) -> None:
        slot = member.channel.slot
        if isinstance(message, (Failed, Ended, Ready, Listening)) and message.attempt != self.roster.attempt:
            return
        if isinstance(message, Cleared):
            self._on_clear(slot, message)
        elif isinstance(message, Ready):
            self._on_ready(slot, message)
        elif isinstance(message, Listening):
            self._on_listening(slot, message)
        else:
            super()._on_message(member, message)

    def on_startup_event(self, event: str, facts: JsonObject) -> None:
        """Our own part of a later attempt has come so far."""
        if event == "port":
            self._master_port = int(facts["port"])
        elif event == "ready":
            self._on_ready(self.slot, Ready(self.roster.attempt, self._master_port, self.state.address))
        elif event == "listening":
            self._start_others(int(facts["port"]))

    # an attempt ends

    def _stop_all(self, node: str, order: StopOrder) -> None:
        self.state.record_stop(order)
        if self.phase == RUNNING:
            super()._stop_all(node, order)
        elif self.phase != OVER and order.kind in (STOP, TIME):
            state = "TIMEOUT" if order.kind == TIME else "CANCELLED"
            self._finish(None, state, order.reason)

    def on_end(self, part: NodePart) -> None:
        """Take our own part; before the first GO there is nobody to wait for."""
        if not self._started:
            self.state.close()
        super().on_end(part)

    def on_cleared(self, unfit: str, progress: Optional[bool]) -> None:
        """We could begin anew ourselves."""
        self._on_clear(self.slot, Cleared(unfit, progress))

    def _on_clear(self, slot: Slot, message: Cleared) -> None:
        self.clear[slot] = message
        self._advance()

    def _all_ended(self) -> None:
        """Judge the attempt: it is the last, or all that is left of it must go first."""
        self.phase = CLEARING
        for name in ROUND_TIMERS:
            self.context.loop.cancel(name)
        parts = self._parts_in_order()
        if all(part["state"] == "SUCCEEDED" for part in parts) or self.state.stop_order is not None:
            self._finish(None)
            return
        if self.roster.in_minority:
            here = len(self._present_slots)
            self._finish(self.roster.find_shortage(here, here) or MAJORITY)
            return
        self.restart_reason = self._find_reason(parts)
        gave_up = self.policy.refuse(self.restart_reason.reason, self.roster.attempt - 1)
        if gave_up is not None:
            self._finish(gave_up)
            return
        self.context.loop.after(CLEAR_LIMIT, "clear", self._decide)
        self._advance()

    def _find_reason(self, parts: List[NodePart]) -> RestartReason:
        """Find the reason; a node that cannot even begin is of no more use than one that is lost."""
        known, self._given_cause = self._given_cause, None
        parts, self._lost_spares = [*parts, *self._lost_spares], []
        found = judge_record(make_record(self.context.spec, parts, self.stop, whole=True))
        if known is not None and found.reason != NODE_LOST:
            return known
        for slot, part in self.parts.items():
            if part["state"] == "FAILED_SETUP" and found.reason == CODE and part["node"] == found.node:
                self.roster.mark_unfit(slot, part["reason"])
                return RestartReason(NODE_LOST, found.node, found.text)
        return found

    @property
    def _present_slots(self) -> Set[Slot]:
        return {self.slot, *self.members} - self.roster.lost

    def _advance(self) -> None:
        """Go on with what nobody is missing for any more."""
        if self.phase == CLEARING and self._present_slots & self.expected <= set(self.clear):
            self._decide()

    def _fit_slots(self) -> Set[Slot]:
        """Name who could take part: spares at once, others when nothing is left there."""
        for slot in self._present_slots & self.expected:
            message = self.clear.get(slot)
            self.roster.mark_unfit(
                slot, message.unfit if message else "the last attempt has not been cleared away"
            )
        return self._present_slots - self.roster.unfit

    def _decide(self) -> None:
        self.context.loop.cancel("clear")
        entry = self._attempt_entry()
        too_few = self.roster.find_shortage(len(self._present_slots), len(self._fit_slots()))
        if self.roster.lacks_progress(entry):
            self._finish(NO_PROGRESS)
        elif too_few is not None:
            self._finish(too_few)
        else:
            self._pause_before_next(entry)

    def _attempt_entry(self) -> JsonObject:
        """Write down the attempt; what a lost node has brought about is not known, without a GO there is nothing."""
        reports = [self.clear[slot].progress if slot in self.clear else None for slot in self.expected]
        began = self._sent_go or self.roster.attempt == 1
        progress = True if True in reports else False if began and None not in reports else None
        why = {
            "reason": self.restart_reason.reason,
            "node": self.restart_reason.node,
            "text": self.restart_reason.text,
        }
        times = {"began": self.state.restarts.began, "ended": time.time()}
        return {"attempt": self.roster.attempt, **why, **times, "progress": progress}

    def _pause_before_next(self, entry: JsonObject) -> None:
        self.phase = PAUSING
        self.roster.add_attempt(entry)
        seconds = self.policy.pause_before(self.roster.attempt)
        if self._lost_by_silence:  # who was cut off needs as long as we did to notice, and to end its part
            seconds = max(seconds, silence_limit(self.context.spec) / 4)
        self._lost_by_silence = False
        self._send_all("pause", entry=entry, seconds=seconds, **self.roster.to_fields())
        self.state.restarts.on_pause(entry, seconds)
        self._go_time = time.monotonic() + seconds
        self.context.loop.after(max(0.0, seconds - self.policy.warm), "again", self._start_next_attempt)

    # the next attempt

    def _start_next_attempt(self) -> None:
        fit_slots = self._fit_slots()
        too_few = self.roster.find_shortage(len(self._present_slots), len(fit_slots))
        if too_few is not None or not self.roster.assign(fit_slots):
            self._finish(too_few or NODES)
            return
        self._reset_round()
        time_left = self.state.restarts.time_left
        self._send_all("again", time_left=time_left, **self.roster.to_fields())
        self.context.loop.after(self._ready_limit, "departure", self._on_ready_timeout)
        self.state.begin()

    def _on_ready_timeout(self) -> None:
        late_slots = sorted(self.expected - set(self._ready)) or [self._first_slot]
        names = ", ".join(self.roster.node(slot) for slot in late_slots)
        reason = f"{names}: not ready within {self._ready_limit:g} s"
        for slot in late_slots:
            self.roster.mark_unfit(slot, f"not ready within {self._ready_limit:g} s")
        self._given_cause = RestartReason(NODE_LOST, self.roster.node(late_slots[0]), reason)
        self._stop_all("", StopOrder(reason, FAILURE_WAIT, FAILURE))

    @property
    def _ready_limit(self) -> float:
        """The seconds that a new attempt has to get ready: its gates, and what the job has done before them."""
        return READY_LIMIT + time_to_prepare(self.context.spec)

    @property
    def _first_slot(self) -> Slot:
        """The slot of node rank 0."""
        return next(slot for slot in self.expected if self.node_rank_of(slot) == 0)

    def _on_ready(self, slot: Slot, message: Ready) -> None:
        if slot in self.expected:
            if self.node_rank_of(slot) == 0 and message.port is None:
                raise ChannelError("it is ready for the master's place, and holds no port")
            self._ready[slot] = message
            self._send_go_if_ready()

    def _on_listening(self, slot: Slot, message: Listening) -> None:
        """Believe nobody but rank 0, and only once it was let go, that it listens."""
        if slot in self.expected and self.node_rank_of(slot) == 0 and self._sent_go:
            self._start_others(message.port)

    def _send_go_if_ready(self) -> None:
        """Let rank 0 go, once, when all gates are ready and the pause is over."""
        if self.phase != RUNNING or self._sent_go or self.stop or not self.expected <= set(self._ready):
            return
        wait = self._go_time - time.monotonic()
        if wait > 0:
            self.context.loop.after(wait, "hold", self._send_go_if_ready)
            return
        self._sent_go = True
        self._master_port = self._ready[self._first_slot].port
        self._send_go(self._first_slot)
        if not self.context.spec["module"] and self._master_port is not None:
            self._start_others(self._master_port)

    def _start_others(self, port: int) -> None:
        """Rank 0 listens: let the rest go, unless the attempt is ending already."""
        if self.stop:
            return
        self.context.loop.cancel("departure")
        self._master_port = port
        for slot in self.expected:
            if self.node_rank_of(slot) != 0:
                self._send_go(slot)

    def _send_go(self, slot: Slot) -> None:
        first_slot, port = self._first_slot, self._master_port
        address = self.roster.address(first_slot) or self._ready[first_slot].address
        if slot == self.slot:
            self.state.restarts.on_go(address, int(port or 0))
        elif slot in self.members:
            self.members[slot].channel.send("go", master_addr=address, master_port=port)

    # the end of all

    def _finish(self, gave_up: Optional[str], state: str = "", reason: str = "") -> None:
        """Tell all that there will be no further attempt."""
        self.phase = OVER
        for name in ROUND_TIMERS:
            self.context.loop.cancel(name)
        record = make_record(self.state.spec, self._parts_in_order(), self.stop, whole=True)
        record = self.state.with_history(record, gave_up, state=state, reason=reason)
        end = {"gave_up": gave_up, "state": state, "reason": reason}
        self.context.save_record(record)
        self.state.restarts.conclude(end)
        self._send_verdict(record=record, end=end)

    def leave(self) -> None:
        """Close every connection."""
        self.phase = OVER
        for name in (*ROUND_TIMERS, "farewell"):
            self.context.loop.cancel(name)
        for member in self.members.values():
            member.channel.close()
        self.members.clear()

    def _shut_down(self) -> None:
        self.state.close()
        super()._shut_down()
