"""The hub: who is here, the stop, the record, further attempts; its table has the method of each event by phases.

An event is a message of a peer, the same from this node's own agent, the end of a connection, or a timer of the hub (in
small letters). In a phase that its row does not name an event changes nothing, and a timer is cancelled.

How to read the table, which is at the end of `Hub`: node 0 is lost in the pause between two attempts, and this node is
the next hub (see peer.py). It begins in GATHERING. Hello has the state of a peer. When all that are left have come,
or the limit `gather` is over, `judge_gathered` writes the part of node 0 as LOST, takes the newest that is known, and
judges the attempt as any other: the run ends, or CLEARING waits for Cleared, which a peer that has sent it before
sends again behind its Hello. `decide` then begins a whole new pause; PAUSING and STARTING follow as always, without
node 0. The run ends instead when too few nodes are left; StopOrder ends it too, with a shorter limit for those that
have not come yet.
"""

from __future__ import annotations

import math
import time
from functools import partial
from typing import TYPE_CHECKING, Dict, List, Optional, Set, Union

from ...protocol.frames import CLOCK_SLACK
from ...protocol.messages import gang as messages
from ...protocol.messages.gang import Message
from ...protocol.ranks import Slot
from ...protocol.reasons import CODE, FAILURE, NODE_LOST, TIME
from ...protocol.states import LOST, STOPPED, TIMEOUT
from ..runtime.connections import ChannelError
from ..state.run_record import time_to_prepare
from .attempts import RestartReason, correct_clock, judge_record, lost_part
from .channel import SecureChannel
from .limits import (
    FINAL_GRACE,
    READY_LIMIT,
    beat_interval,
    failure_order,
    find_cut_off_end,
    limit_grace,
    overdue_after,
    read_bounds,
    silence_limit,
    silent_beats,
    time_to_restore,
)
from .membership import Clocks, Member
from .node_check import SilentNodes, describe_loss
from .role import Closed, GangState, Role, make_table
from .round import Phase, Round

if TYPE_CHECKING:
    from ...protocol.messages.files import AttemptEnd, EndState, PartRecord, RestartsEnd


ATTEMPT = (Phase.STARTING, Phase.RUNNING, Phase.STOPPING)
NOT_OVER = tuple(phase for phase in Phase if phase is not Phase.OVER)
CLEAR_LIMIT = 60.0  # seconds for GPU memory to become free
GATHER_SILENCES = 1.25  # silences in which the others must have come to the next hub


class Hub(Role[Phase]):
    """The gang as the node that leads it sees it."""

    def __init__(self, state: GangState) -> None:
        super().__init__(state)
        self.policy = state.policy
        self.slot = self.roster.own_slot
        self.phase = Phase.JOINING
        self.members: Dict[Slot, Member] = {}
        self.round = Round(self.roster)
        self._bounds = read_bounds(self.context.spec)
        self._beat_limit = silent_beats(self.context.spec, beat_interval(self.context.spec))
        self._silent_nodes = SilentNodes(state.checks, self.slot, self.roster.slot_count)
        self._clocks = Clocks(state.context)
        self._quiet = 0.0  # seconds without progress of any rank, at the last beat
        self._left_early: Dict[Slot, str] = {}  # why they left before GO
        self._last_seen = dict(state.last_seen)  # the last sign of life of those that left
        # a node that is lost by silence may have ranks until then, if it is only cut off
        self._cut_off_until = 0.0
        self._reason = RestartReason("", "", "")  # why the attempt ended
        self._given_reason: Optional[RestartReason] = None  # what is in no part
        self._go_time = 0.0
        self._views: Dict[Slot, messages.RosterView] = {}  # of those who came to us as the next hub
        self._previous_hub: Optional[Slot] = None
        self._gathering_ends = float("inf")  # by the monotonic clock
        self.checkpoints = state.checkpoints
        self.checkpoints.lead(lambda: self._present_slots, self._send_to)

    def report(self, message: Message, slot: Optional[Slot] = None) -> None:
        """Take a message of this node's own agent as that of a peer, which is named by its slot."""
        method = self._find_method(type(message))
        if method is not None:
            method(self, self.slot if slot is None else slot, message)

    # who is here

    def open(self) -> None:
        """Accept the others, and report the port to the client."""
        super().open()
        if self.state.listener is not None:
            self.state.listener.open(self.accept)
            self.context.report("hub", {"port": self.state.listener.port})

    def accept(self, channel: SecureChannel) -> bool:
        """Take a peer in, unless it is here or was given up."""
        slot = channel.slot
        if slot in self.members or slot in self.roster.lost:
            return False
        member = self.members[slot] = Member(channel)
        self.roster.set_node(slot, channel.node)
        channel.open(partial(self.report, slot=slot), partial(self._on_closed, member))
        self._send_beat(slot, member)
        return True

    def beat(self) -> None:
        """Ask every peer for a sign, and give up those that have been silent for too long."""
        self._quiet = self._find_quiet()
        self.context.on_quiet(self._quiet)
        self._clocks.record({self.roster.node(slot): member for slot, member in self.members.items()})
        for slot, member in list(self.members.items()):
            if not self._is_here(slot, member):  # sending to one before it failed, which may end the run
                continue
            if member.channel.unanswered_beats >= self._beat_limit:
                self._drop_silent(member, f"it was silent for {silence_limit(self.context.spec):g} s")
            elif self._silent_nodes.is_gone(slot, self.members):
                self._drop_silent(member, describe_loss(self.context.spec))
            else:
                self._send_beat(slot, member)

    def _send_beat(self, slot: Slot, member: Member) -> None:
        member.send_beat(self._quiet)
        if self._is_here(slot, member):
            self._silent_nodes.check(slot, self.members, self.roster.find_listener(slot), self.report)

    def _find_quiet(self) -> float:
        """Return the seconds for which no rank of any node has made progress; 0 while one is not known to run."""
        quiet = {slot: member.quiet for slot, member in self.members.items()}
        quiet[self.slot] = self.context.quiet()
        running = self.round.expected - set(self.round.parts) if self.phase is Phase.RUNNING else ()
        return min((quiet.get(slot, 0.0) for slot in running), default=0.0)

    def _is_here(self, slot: Slot, member: Member) -> bool:
        return self.members.get(slot) is member

    def _drop_silent(self, member: Member, why: str) -> None:
        if self.phase is not Phase.JOINING:
            self._cut_off_until = find_cut_off_end(self.context.spec, time.monotonic())
        member.channel.close()
        self._on_closed(member, why)

    def _checked(self, slot: Slot, message: messages.NodeChecked) -> None:
        self._silent_nodes.record(slot, message)

    def _answered(self, slot: Slot, reply: messages.BeatReply) -> None:
        member = self.members[slot]
        member.on_reply(reply)
        if not member.joined:
            member.joined = True
            member.channel.send(messages.render_message(messages.Welcome()))

    def _on_closed(self, member: Member, why: str) -> None:
        slot = member.channel.slot
        if not self._is_here(slot, member):
            return
        del self.members[slot]
        self._silent_nodes.forget(slot)
        self._last_seen[slot] = member.channel.last_seen
        self.report(Closed(why), slot)

    def _closed_early(self, slot: Slot, closed: Closed) -> None:
        """It may come back before GO."""
        self._left_early[slot] = closed.why

    def _lost(self, slot: Slot, closed: Closed) -> None:
        """It is lost, and its part with it: the attempt ends; so it does when too few are left."""
        self._record_loss(slot, closed.why)
        if slot in self.round.expected and slot not in self.round.parts:
            self._add_part(slot, self._part_of_lost(slot, closed.why))
        elif self.roster.in_minority and not self.policy.never:
            self._stop_all(None, failure_order(self.roster.describe_left()))

    def _lost_between(self, slot: Slot, closed: Closed) -> None:
        """It is not waited for any more, and the next attempt begins without it: `_start_next` counts who is left."""
        self._record_loss(slot, closed.why)
        self._decide_if_cleared()
        self._judge_if_gathered()

    def _gone(self, _: Slot, __: Closed) -> None:
        """It has left before it confirmed the record."""
        if not self.members:
            self.leave()

    def _record_loss(self, slot: Slot, why: str) -> None:
        self.roster.mark_lost(slot, why)
        self.checkpoints.on_lost(slot)
        if not self.policy.never:
            self.context.save_roster(self.roster.entries)
            self._send_all(messages.SlotLost(slot, why))

    def _part_of_lost(self, slot: Slot, why: str) -> PartRecord:
        node, node_rank = self.roster.node(slot), self.roster.node_rank(slot)
        return lost_part(node, node_rank, why, time.time(), self._last_seen.get(slot))

    def _send_all(self, message: Message) -> None:
        text = messages.render_message(message)
        for member in list(self.members.values()):
            member.channel.send(text)

    def _send_to(self, slot: Slot, message: Message) -> None:
        if slot in self.members:
            self.members[slot].channel.send(messages.render_message(message))

    @property
    def _present_slots(self) -> Set[Slot]:
        return {self.slot, *self.members} - self.roster.lost

    # the first GO

    def _begin(self) -> None:
        """No other node can join any more; one that is not here has been lost since it joined."""
        early_parts = sorted(self.round.parts.items())
        self._enter(Phase.RUNNING)
        self.state.close()
        for slot in sorted(self.roster.all_slots - {self.slot} - set(self.members) - set(self.round.parts)):
            left = self._left_early.get(slot)
            self._lost(
                slot,
                Closed("it did not come" if left is None else f"it disconnected before the start: {left}"),
            )

        self.checkpoints.begin()
        for slot, part in early_parts:  # a gate that broke while GO was on its way
            self._add_part(slot, part)

    def _record_stop(self, _: Slot, order: messages.StopOrder) -> None:
        self.state.record_stop(order)

    def _ended_early(self, slot: Slot, message: messages.Ended) -> None:
        """Before GO no other part is waited for."""
        if slot == self.slot:
            self.leave()
        else:
            self.round.parts[slot] = self._normalize_part(slot, message.part)

    # an attempt ends

    def _stop_between(self, _: Slot, order: messages.StopOrder) -> None:
        """No part is running: a person's stop, or the time limit, ends the run at once."""
        if order.kind != FAILURE:
            self.state.record_stop(order)
            self._finish_stopped(order)

    def _stop_gathering(self, _: Slot, order: messages.StopOrder) -> None:
        """End the run with the parts of all that come soon: each of them gets the record."""
        if order.kind != FAILURE:
            self.state.record_stop(order)
            self._limit_gathering(FINAL_GRACE)

    def _stop_all(self, origin: Optional[Slot], message: Union[messages.Failed, messages.StopOrder]) -> None:
        """End the attempt but on the node that it began with, which does so itself; later orders only hurry."""
        current, node = self.round, "" if origin is None else self.roster.node(origin)
        if isinstance(message, messages.StopOrder):
            order = message
        elif message.attempt == self.roster.attempt:
            order = failure_order(f"{node}: {message.reason}")
        else:
            return
        self.state.record_stop(order)
        if order.grace >= current.shortest_grace:
            return
        current.shortest_grace = order.grace
        self._enter(Phase.STOPPING)
        self._wait(overdue_after(self.context.spec, order.grace), "overdue")
        if current.stop is None:
            current.stop = {"node": node, "reason": order.reason, "time": time.time(), "kind": order.kind}
        text = messages.render_message(limit_grace(order, self._bounds))
        for slot, member in list(self.members.items()):
            if slot != origin:
                member.channel.send(text)
        if origin != self.slot and self.slot not in current.parts:
            self.context.stop(order)

    def _drop_overdue(self) -> None:
        """A node that has not ended long after the stop is lost: its agent may run, and never report."""
        for slot in sorted(self.round.expected - set(self.round.parts)):
            if slot in self.members:
                channel = self.members.pop(slot).channel
                self._last_seen[slot] = channel.last_seen
                channel.close()
            self._lost(slot, Closed("it did not end after the stop"))

    def _ended(self, slot: Slot, message: messages.Ended) -> None:
        if message.attempt == self.roster.attempt and slot not in self.round.parts:
            own = slot == self.slot
            self._add_part(slot, message.part if own else self._normalize_part(slot, message.part))

    def _normalize_part(self, slot: Slot, reported: PartRecord) -> PartRecord:
        """Put in whose part it is and our clock, and accept no stop before the one that was sent to it."""
        node, stop = self.roster.node(slot), self.round.stop
        part = correct_clock(reported, self.members[slot].offset)
        part = {**part, "node": node, "node_rank": self.roster.node_rank(slot)}
        if part["stopped_at"] is not None:
            is_own_stop = stop is None or stop["node"] == node
            slack = silence_limit(self.context.spec) if is_own_stop else CLOCK_SLACK
            part["stopped_at"] = max(part["stopped_at"], (stop["time"] if stop else time.time()) - slack)
        return part

    def _add_part(self, slot: Slot, part: PartRecord) -> None:
        self.round.parts[slot] = part
        node = self.roster.node(slot)
        if part["state"] != "SUCCEEDED" and self.round.stop is None:
            is_lost = part["state"] == LOST
            how = (
                f"{node} is lost: {part['reason']}"
                if is_lost
                else f"{node}: {part['reason'] or part['state']}"
            )
            self._stop_all(slot, failure_order(how))
        if self.phase in ATTEMPT and self.round.expected <= set(self.round.parts):
            self._judge()

    # whether there is another

    def _judge(self) -> None:
        """All parts have come: this attempt is the last, or all that is left of it must go first."""
        self._enter(Phase.CLEARING)
        parts = self.round.ordered_parts
        succeeded = all(part["state"] == "SUCCEEDED" for part in parts)
        if self.policy.never or succeeded or self.state.stop_order is not None:
            self._finish(None)
            return
        if self.roster.in_minority:
            here = self._present_slots
            self._finish(self.roster.find_shortage(here, here) or messages.MAJORITY)
            return
        self._reason = self._find_reason(parts)
        gave_up = self.policy.refuse(self._reason.reason, self.roster.attempt - 1)
        if gave_up is not None:
            self._finish(gave_up)
            return
        self._wait(CLEAR_LIMIT, "clear")
        self.checkpoints.conclude()
        self._decide_if_cleared()

    def _find_reason(self, parts: List[PartRecord]) -> RestartReason:
        """Find the reason; a node that cannot even begin is of no more use than one that is lost."""
        known, self._given_reason = self._given_reason, None
        previous, self._previous_hub = self._previous_hub, None
        # a lost hub without a rank is judged too
        if previous is not None and previous not in self.round.expected:
            parts = [*parts, self._part_of_lost(previous, self.roster.view().lost.get(previous, ""))]
        found = judge_record(self.state.make_record(parts, self.round.stop, {"gave_up": None}, whole=False))
        if known is not None and found.reason != NODE_LOST:
            return known
        for slot, part in self.round.parts.items():
            if part["state"] == "FAILED_SETUP" and found.reason == CODE and part["node"] == found.node:
                self.roster.mark_unfit(slot, part["reason"])
                return RestartReason(NODE_LOST, found.node, found.text)
        return found

    def _clear(self, slot: Slot, message: messages.Cleared) -> None:
        self.round.cleared[slot] = message
        self._decide_if_cleared()

    def _decide_if_cleared(self) -> None:
        awaited = self.round.uncleared | self.checkpoints.awaited
        if self.phase is Phase.CLEARING and not awaited & self._present_slots:
            self._decide()

    def _decide_late(self) -> None:
        """Wait no longer for what goes on elsewhere, but for keepers, once, if only they know of any checkpoint."""
        seconds = 0.0 if self.round.is_late else self.checkpoints.time_to_report()
        self.round.is_late = True
        if seconds:
            self._wait(seconds, "clear")
        else:
            self._decide()

    def _decide(self) -> None:
        reason = self._reason
        entry: AttemptEnd = {
            "attempt": self.roster.attempt,
            "reason": reason.reason,
            "node": reason.node,
            "text": reason.text,
            "began": self.context.began,
            "ended": time.time(),
            "progress": self.round.progress,
        }
        too_few = self.roster.find_shortage(self._present_slots, self._fit_slots())
        if self.policy.lacks_progress(self.roster.history, entry):
            self._finish(messages.NO_PROGRESS)
        elif too_few is not None:
            self._finish(too_few)
        else:
            self._pause(entry)

    def _fit_slots(self) -> Set[Slot]:
        """Name who could take part: spares at once, others when nothing is left there."""
        for slot in self._present_slots & self.round.expected:
            message = self.round.cleared.get(slot)
            why = message.unfit if message else "the last attempt has not been cleared away"
            self.roster.mark_unfit(slot, why)
        return self._present_slots - self.roster.unfit

    def _pause(self, entry: AttemptEnd) -> None:
        self._enter(Phase.PAUSING)
        self.roster.add_attempt(entry)
        cut_off = math.ceil(10 * (self._cut_off_until - time.monotonic()) - 1e-3) / 10
        seconds = max(self.policy.pause_before(self.roster.attempt), cut_off)
        self._send_all(messages.Pause(entry, seconds, self.roster.view()))
        self.context.on_pause(entry, seconds)
        self._go_time = time.monotonic() + seconds
        self._wait(max(0.0, seconds - self.policy.warm), "pause_over")

    # the next attempt

    def _start_next(self) -> None:
        fit_slots = self._fit_slots()
        too_few = self.roster.find_shortage(self._present_slots, fit_slots)
        if too_few is not None or not self.roster.assign(fit_slots):
            self._finish(too_few or messages.NODES)
            return
        self.round = Round(self.roster)
        self._enter(Phase.STARTING)
        resume = self.state.resume = self.checkpoints.choose()
        self._send_all(messages.NextAttempt(self.context.time_left, self.roster.view(), resume))
        self._wait(self._ready_limit, "ready_limit")
        self.state.begin()

    @property
    def _ready_limit(self) -> float:
        """The seconds that a new attempt has to get ready: its gates, and what the job has done before them."""
        return READY_LIMIT + time_to_prepare(self.context.spec) + time_to_restore(self.state.resume)

    @property
    def _first_slot(self) -> Slot:
        """The slot of node rank 0."""
        return next(slot for slot in self.round.expected if self.roster.node_rank(slot) == 0)

    def _drop_late(self) -> None:
        late_slots = sorted(self.round.expected - set(self.round.ready)) or [self._first_slot]
        why = f"not ready within {self._ready_limit:g} s"
        reason = f"{', '.join(map(self.roster.node, late_slots))}: {why}"
        for slot in late_slots:
            self.roster.mark_unfit(slot, why)
        self._given_reason = RestartReason(NODE_LOST, self.roster.node(late_slots[0]), reason)
        self._stop_all(None, failure_order(reason))

    def _ready(self, slot: Slot, message: messages.Ready) -> None:
        if message.attempt == self.roster.attempt and slot in self.round.expected:
            if slot == self._first_slot and message.port is None:
                raise ChannelError("it is ready as rank 0 but has no master port")
            self.round.ready[slot] = message
            self._send_go()

    def _send_go(self) -> None:
        """Send GO to rank 0, once, when all gates are ready and the pause is over."""
        current = self.round
        if current.go_sent or not current.expected <= set(current.ready):
            return
        wait = self._go_time - time.monotonic()
        if wait > 0:
            self._wait(wait, "hold")
            return
        current.go_sent = True
        self.roster.agree()
        current.master_port = current.ready[self._first_slot].port
        self._send_go_to(self._first_slot)
        if not self.context.spec["module"] and current.master_port is not None:
            self._send_go_to_others(current.master_port)

    def _listening(self, slot: Slot, message: messages.Listening) -> None:
        """Accept this from rank 0 only, and only after its GO."""
        current = message.attempt == self.roster.attempt
        if current and self.round.go_sent and slot == self._first_slot:
            self._send_go_to_others(message.port)

    def _send_go_to_others(self, port: int) -> None:
        self._enter(Phase.RUNNING)
        self.checkpoints.begin()
        self.round.master_port = port
        for slot in sorted(self.round.expected - {self._first_slot} | self.roster.idle_voters):
            self._send_go_to(slot)

    def _send_go_to(self, slot: Slot) -> None:
        first, port = self._first_slot, int(self.round.master_port or 0)
        address = self.roster.address(first) or self.round.ready[first].address
        if slot == self.slot:
            self.context.on_go(address, port)
        else:
            self._send_to(slot, messages.Go(address, port))

    # checkpoints

    def _on_keeper_report(self, slot: Slot, message: messages.CheckpointReport) -> None:
        self.checkpoints.on_report(slot, message.report)
        self._decide_if_cleared()

    def _on_restored(self, slot: Slot, message: messages.CheckpointReport) -> None:
        """A checkpoint whose files no node gives is of no more use; the node that reports it is as good as before."""
        report, node = message.report, self.roster.node(slot)
        if self.checkpoints.reject(slot, report, self.state.resume):
            reason = f"{node}: the checkpoint {report.name} cannot be restored: {report.why}"
            self._given_reason = RestartReason(NODE_LOST, node, reason)

    # after a hub that is lost

    def lead_after(self, lost_slot: Slot) -> None:
        """Lead on: wait for the others."""
        self._previous_hub = lost_slot
        self._cut_off_until = find_cut_off_end(self.context.spec, self.state.hub_left)
        self._enter(Phase.GATHERING)
        if self.state.part is not None:
            self.round.parts[self.slot] = self.state.part
        if self.state.cleared is not None:
            self.round.cleared[self.slot] = self.state.cleared
        if self.state.listener is not None:
            self.state.listener.open(self.accept)
        self._limit_gathering(GATHER_SILENCES * silence_limit(self.context.spec))
        self._judge_if_gathered()

    def _limit_gathering(self, seconds: float) -> None:
        """Wait for the others for at most so long from now; a later limit does not replace an earlier one."""
        now = time.monotonic()
        self._gathering_ends = min(self._gathering_ends, now + seconds)
        self._wait(self._gathering_ends - now, "gather")

    def _hello(self, slot: Slot, hello: messages.Hello) -> None:
        if hello.part is not None:
            self.round.parts[slot] = self._normalize_part(slot, hello.part)
        self._views[slot] = hello.roster
        self._judge_if_gathered()

    def _judge_if_gathered(self) -> None:
        awaited = self.roster.all_slots - {self.slot} - self.roster.lost - set(self._views)
        if self.phase is Phase.GATHERING and not awaited:
            self._judge_gathered()

    def _judge_gathered(self) -> None:
        """A node that has not come is lost; then judge the attempt as any other."""
        self.state.election_deadline = 0.0
        self.state.close()
        present = {slot: view for slot, view in self._views.items() if slot in self.members}
        for view in present.values():
            self.roster.apply(view)
        for slot in self.roster.all_slots - {self.slot} - self.roster.lost - set(present):
            self.roster.mark_lost(slot, "it did not connect to the next hub")
        self.round.attempt, self.round.expected = self.roster.attempt, set(self.roster.node_ranks)
        lost = self.roster.view().lost
        for slot in self.round.expected - set(self.round.parts):
            self.round.parts[slot] = self._part_of_lost(slot, lost.get(slot, ""))
        if self.state.stop_order is not None:
            self._finish_stopped(self.state.stop_order)
        else:
            self._judge()

    # the end of all

    def _finish_stopped(self, order: messages.StopOrder) -> None:
        """The run was stopped, or its time was up, between two attempts."""
        self._finish(None, TIMEOUT if order.kind == TIME else STOPPED, order.reason)

    def _finish(self, gave_up: Optional[str], state: EndState = "", reason: str = "") -> None:
        """Send the record to all: there will be no further attempt."""
        self._enter(Phase.OVER)
        parts, stop = self.round.ordered_parts, self.round.stop
        end: RestartsEnd = {"gave_up": gave_up, "state": state, "reason": reason}
        # those that are cut off from more than half of the others do not decide how the run ended
        whole = self.policy.never or not self.roster.in_minority
        record = self.state.make_record(parts, stop, end, whole=whole)
        self.context.save_record(record)
        self.context.conclude(end)
        self._send_all(messages.Verdict(record, None if self.policy.never else end))
        if self.members:
            self._wait(FINAL_GRACE, "final_grace")
        else:
            self.leave()

    def _record_ack(self, slot: Slot, _: messages.Ack) -> None:
        self.members.pop(slot).channel.close()
        if not self.members:
            self.leave()

    def leave(self) -> None:
        """Close every connection."""
        self._enter(Phase.OVER)
        self.context.loop.cancel("final_grace")
        self.state.checks.close()
        self.state.close()
        for member in self.members.values():
            member.channel.close()
        self.members.clear()
        self.context.leave()

    table = make_table(
        {
            "GO": {_begin: (Phase.JOINING,)},
            messages.BeatReply: {_answered: tuple(Phase)},
            messages.NodeChecked: {_checked: NOT_OVER},
            messages.Failed: {_stop_all: ATTEMPT},
            messages.StopOrder: {
                _record_stop: (Phase.JOINING,),
                _stop_all: ATTEMPT,
                _stop_between: (Phase.CLEARING, Phase.PAUSING),
                _stop_gathering: (Phase.GATHERING,),
            },
            messages.Ended: {_ended_early: (Phase.JOINING,), _ended: ATTEMPT},
            messages.Cleared: {
                _clear: (Phase.RUNNING, Phase.STOPPING, Phase.CLEARING, Phase.PAUSING, Phase.GATHERING)
            },
            messages.CheckpointReport: {
                _on_restored: (Phase.STARTING,),
                _on_keeper_report: (Phase.RUNNING, Phase.STOPPING, Phase.CLEARING, Phase.PAUSING),
            },
            messages.Ready: {_ready: (Phase.STARTING,)},
            messages.Listening: {_listening: (Phase.STARTING,)},
            messages.Hello: {_hello: (Phase.GATHERING,)},
            messages.Ack: {_record_ack: (Phase.OVER,)},
            Closed: {
                _closed_early: (Phase.JOINING,),
                _lost: ATTEMPT,
                _lost_between: (Phase.CLEARING, Phase.PAUSING, Phase.GATHERING),
                _gone: (Phase.OVER,),
            },
            "overdue": {_drop_overdue: (Phase.STOPPING,)},
            "clear": {_decide_late: (Phase.CLEARING,)},
            "pause_over": {_start_next: (Phase.PAUSING,)},
            "hold": {_send_go: (Phase.STARTING,)},
            "ready_limit": {_drop_late: (Phase.STARTING,)},
            "gather": {_judge_gathered: (Phase.GATHERING,)},
            "final_grace": {leave: (Phase.OVER,)},
        }
    )
