"""A peer: its table has the method of each event by phases; in a phase that a row does not name nothing changes.

An event is a message of the hub, the end of the connection to it, the end of this node's own part (Ended), GO from the
client, what our own check of the hub's node found (NodeChecked), or a timer of the peer (in small letters).

How to read the table, which is at the end of `Peer`: node 0 is lost in the pause between two attempts. A peer whose
part has ended is in ENDED, a spare in IDLE. Closed calls `lost`, which marks node 0 as lost and elects the next hub
(failover.py): the lowest slot that is left becomes a hub in GATHERING, if more than half of all slots are left (spares
and lost ones count among all) and they are enough for the job; else the run ends. The others go to REJOINING: Welcome
calls `rejoined`, which sends Hello with what this node knows and returns to ENDED or IDLE, where Pause and NextAttempt
come as from node 0; if the new hub was quicker than its Welcome, `catch_up` does both. Closed and Unreachable call
`lost` again, for the next hub. A hub that accepts and then sends nothing is closed by the silence limit; one that
beats, but does not go on, by the timer `hub`, which `rejoined` starts.
"""

from __future__ import annotations

import time
from enum import Enum
from typing import Optional, Tuple, Union

from ...protocol.messages import gang as messages
from ...protocol.messages.gang import Message
from ...protocol.ranks import NodeRank, Slot
from ...protocol.reasons import FAILURE
from ..runtime.connections import ChannelError
from .attempts import lost_part, make_record
from .channel import Connector, SecureChannel
from .limits import (
    FAILURE_WAIT,
    SUSPECTED_AFTER,
    beat_interval,
    failure_order,
    limit_grace,
    overdue_after,
    read_bounds,
    silence_limit,
    silent_beats,
)
from .node_check import describe_loss
from .role import Closed, GangState, Role, Unreachable, make_table


class Phase(Enum):
    """How far this node is."""

    CONNECTING = "connecting to node 0"
    JOINED = "the hub has welcomed us; GO has not come"
    RUNNING = "our part of an attempt is starting or running"
    IDLE = "we have no rank in this attempt: a spare"
    ENDED = "our part has ended: the hub decides what follows"
    ORPHANED = "the hub is lost, and our part is ending"
    REJOINING = "connecting to the next hub"
    LEAVING = "before GO: our part ends or has ended, and nothing follows"
    OVER = "the record is kept, or this role is given up"


SETTLED = (Phase.JOINED, Phase.IDLE, Phase.ENDED)  # there is a hub, and no rank of ours runs
# in no run that is never started again
OF_RESTARTS = (
    messages.SlotLost,
    messages.Pause,
    messages.NextAttempt,
    messages.Go,
    messages.CheckpointOrder,
)

CHECKED_AFTER = SUSPECTED_AFTER + 1  # beats: we may have counted just after the hub's last one
HUB_LIMIT = 150.0  # seconds beyond what a hub gives the others to end, in which it has sent what follows
FINAL_SEND_TIME = 0.2  # seconds for the last messages to arrive before the connection is closed
NO_REPORT = "it did not report how the run ended"


class Peer(Role[Phase]):
    """The gang as any node but the one that leads it sees it."""

    def __init__(self, state: GangState, hub_slot: Slot) -> None:
        super().__init__(state)
        spec = state.context.spec
        self.phase = Phase.CONNECTING
        self._hub_slot = hub_slot
        self._bounds = read_bounds(spec)
        self._connector = Connector(
            self.context.loop,
            spec,
            self.context.token,
            self.roster.own_slot,
            self._open_channel,
            self._on_unreachable,
        )
        self._channel: Optional[SecureChannel] = None
        self._hub_address = ""
        self._hub_is_gone = False  # its node answered nothing since it is silent
        self._lost_reason = ""  # of the hub, before GO
        self._is_stopped_by_hub = False
        self._grace = float(spec.get("grace") or 0.0)  # the longest that a node of this run may take to end
        self._beat_limit = silent_beats(spec, beat_interval(spec))

    def _handle(self, message: Message) -> None:
        if not (self.state.policy.never and isinstance(message, OF_RESTARTS)):
            self._on_event(type(message), message)

    def open(self) -> None:
        """Listen in a run that may start again: this node may have to be the hub."""
        if not self.state.policy.never:
            super().open()

    def join(self, port: int) -> None:
        """Go to node 0."""
        self._connect(str(self.context.spec["master_addr"]), port)

    def rejoin(self, address: str, port: int) -> None:
        """Connect to the next hub; nothing of ours is running."""
        self._enter(Phase.REJOINING)
        self._connect(address, port)

    def _connect(self, address: str, port: int) -> None:
        self._hub_address = address
        self._connector.connect(address, port)

    def report(self, message: Message) -> None:
        """Report it to the hub; what the end of our own part means is in the table."""
        if isinstance(message, messages.Ended):
            self._handle(message)
        elif isinstance(message, messages.StopOrder):
            self.state.record_stop(message)
            self._send(limit_grace(message, self._bounds))
            self._record_grace(message)
        else:
            self._send(message)

    def beat(self) -> None:
        """Count the hub's silence; a hub whose node does not answer either is not waited for (see node_check.py)."""
        channel, checks = self._channel, self.state.checks
        if channel is None:
            return
        channel.unanswered_beats += 1
        if channel.unanswered_beats > self._beat_limit:
            self._close_channel(f"it was silent for {silence_limit(self.context.spec):g} s")
        elif channel.unanswered_beats == CHECKED_AFTER:
            self._hub_is_gone = False
            if checks.has_answered(self._hub_slot):
                checks.start(self._hub_slot, [self._hub_listener], self._report_hub_check)
        elif channel.unanswered_beats > CHECKED_AFTER and self._hub_is_gone:
            self._close_channel(describe_loss(self.context.spec))

    @property
    def _hub_listener(self) -> Tuple[str, int]:
        return self._hub_address, self._connector.port

    def _report_hub_check(self, answers: bool) -> None:
        self._handle(messages.NodeChecked(self._hub_slot, answers))

    def _hub_checked(self, message: messages.NodeChecked) -> None:
        self._hub_is_gone = not message.answers

    def _check_node(self, message: messages.CheckNode) -> None:
        """Connect to a node that is silent for the hub, and report whether it answers."""
        self.state.checks.start(
            message.slot,
            self.roster.find_listener(message.slot),
            lambda answers: self._send(messages.NodeChecked(message.slot, answers)),
        )

    def _send(self, message: Message) -> None:
        if self._channel is not None:
            attempt = None if self.state.policy.never else self.roster.attempt
            self._channel.send(messages.render_message(message, attempt))

    # the hub

    def _open_channel(self, channel: SecureChannel) -> None:
        self._channel = channel
        channel.open(self._handle, self._on_closed)

    def _joined(self, _: messages.Welcome) -> None:
        self._connector.stop()
        self._enter(Phase.JOINED)
        self.context.report("joined", {})
        self.state.checks.check_once(self._hub_slot, [self._hub_listener])

    def _rejoined(self, _: messages.Welcome) -> None:
        """Send the next hub what is known here, and how our part ended."""
        self._connector.stop()
        self._enter(Phase.IDLE if self.state.idle else Phase.ENDED)
        self.context.report("joined", {})
        self.state.checks.check_once(self._hub_slot, [self._hub_listener])
        self.state.election_deadline = 0.0
        self._send(messages.Hello(self.state.part, self.roster.view()))
        self._wait_for_hub()
        if self.state.cleared is not None:
            self._send(self.state.cleared)
        if self.state.stop_order is not None:
            self._send(limit_grace(self.state.stop_order, self._bounds))

    def _answer(self, message: messages.HubBeat) -> None:
        self._send(messages.BeatReply(message.at, time.time(), self.context.quiet()))
        self.context.on_quiet(message.quiet)

    def _wait_for_hub(self) -> None:
        """The run ends and our part has: a hub that never reports what follows counts as lost."""
        self._wait(self._hub_limit, "hub")

    @property
    def _hub_limit(self) -> float:
        limit = float(self.context.spec.get("hub_limit") or HUB_LIMIT)
        return overdue_after(self.context.spec, self._grace) + limit

    def _drop_hub(self) -> None:
        self._close_channel(NO_REPORT)

    def _close_channel(self, why: str) -> None:
        if self._channel is not None:
            self._channel.close()
            self._on_closed(why)

    def _on_closed(self, why: str) -> None:
        channel, self._channel = self._channel, None
        self.state.hub_left = time.monotonic()
        if channel is not None:
            self.state.last_seen[self._hub_slot] = channel.last_seen
        self._connector.stop()
        self._handle(Closed(why))

    def _on_unreachable(self, why: str) -> None:
        self.state.hub_left = time.monotonic()
        self._on_event(Unreachable, Unreachable(why))

    # before GO

    def _begin(self) -> None:
        self._enter(Phase.IDLE if self.state.idle else Phase.RUNNING)

    def _lost_early(self, closed: Closed) -> None:
        """The hub is lost: end here, and report it to the client."""
        self._lost_reason = closed.why
        self._stop_without_hub(closed.why, f"is lost: {closed.why}", FAILURE_WAIT)

    def _stop_early(self, unreachable: Unreachable) -> None:
        """The hub cannot be reached."""
        self._stop_without_hub(unreachable.why, f"could not be reached: {unreachable.why}", 0.0)

    def _stop_without_hub(self, why: str, reason: str, grace: float) -> None:
        self._enter(Phase.LEAVING)
        self.context.report("join_failed", {"error": why, "port": self._connector.port})
        self.context.stop(messages.StopOrder(f"{self._hub} {reason}", grace, FAILURE))

    @property
    def _hub(self) -> str:
        return f"node {self._hub_slot} ({self.roster.node(self._hub_slot)})"

    def _ended_early(self, message: messages.Ended) -> None:
        """Report it to the hub if there is one; it answers only if it has GO, as one that has stopped us."""
        self._enter(Phase.LEAVING)
        if self._channel is None:
            self.leave()
        else:
            self._send(message)
            self._wait(self._hub_limit if self._is_stopped_by_hub else FINAL_SEND_TIME, "final_grace")

    def _ended_leaving(self, _: messages.Ended) -> None:
        self._save_early_record()
        self.leave()

    def _lost_leaving(self, closed: Closed) -> None:
        self._lost_reason = closed.why
        self._save_early_record()
        self.leave()

    def _save_early_record(self) -> None:
        """Keep what is known here: our part, and that the hub is gone."""
        if self._lost_reason and self.state.part is not None:
            last_seen, name = self.state.last_seen.get(self._hub_slot), self.roster.node(self._hub_slot)
            hub = lost_part(name, NodeRank(0), self._lost_reason, time.time(), last_seen)
            self.context.save_record(
                make_record(self.context.spec, [hub, self.state.part], None, whole=False)
            )

    # an attempt and its end

    def _pass_go(self, message: messages.Go) -> None:
        self.roster.agree()
        self.context.on_go(message.address, message.port)

    def _agree(self, _: messages.Go) -> None:
        """Take that the others have GO: a spare counts for a majority too."""
        self.roster.agree()

    def _mark_lost(self, message: messages.SlotLost) -> None:
        if message.slot == self.roster.own_slot:
            raise ChannelError("it reports that this node is lost")
        self.roster.mark_lost(message.slot, message.why)

    def _stop(self, order: messages.StopOrder) -> None:
        """End our part; a spare has none, but for a stop that ends the run."""
        self._is_stopped_by_hub = True
        self.state.record_stop(order)
        self._record_grace(order)
        if not (self.state.idle and order.kind == FAILURE):
            self.context.stop(order)

    def _stop_ended(self, order: messages.StopOrder) -> None:
        """Only the others are waited for."""
        self.state.record_stop(order)
        self._record_grace(order)

    def _record_grace(self, order: messages.StopOrder) -> None:
        self._grace = max(self._grace, min(order.grace, self._bounds.grace))
        if self.phase is Phase.ENDED:
            self._wait_for_hub()

    def _ended(self, message: messages.Ended) -> None:
        self._enter(Phase.ENDED)
        self._send(message)
        if message.part["state"] != "SUCCEEDED":
            self._wait_for_hub()

    def _pause(self, message: messages.Pause) -> None:
        if self.phase is Phase.JOINED:  # GO was given, also where the client's has not come yet
            self._begin()
        self.roster.apply(message.roster)
        self.context.on_pause(message.entry, message.seconds)
        self._wait_for_hub()

    def _catch_up(self, message: Message) -> None:
        """The next hub went on before it could welcome us."""
        self._rejoined(messages.Welcome())
        self._handle(message)

    def _order_keeper(self, message: messages.CheckpointOrder) -> None:
        self.state.checkpoints.on_order(message.order)

    def _refuse_next(self, message: messages.NextAttempt) -> None:
        """No hub begins an attempt before it has our part of the one before."""
        raise ChannelError(f"it began attempt {message.roster.attempt} after {self.roster.attempt}")

    def _start_next(self, message: messages.NextAttempt) -> None:
        if message.roster.attempt <= self.roster.attempt:
            self._refuse_next(message)
        self.roster.apply(message.roster)
        self._enter(Phase.RUNNING if self.roster.own_slot in self.roster.node_ranks else Phase.IDLE)
        self.context.loop.cancel("hub")
        self.state.time_left, self.state.resume = message.time_left, message.resume
        self.state.begin()

    def _verdict(self, verdict: messages.Verdict) -> None:
        """Keep the hub's record, unless it is wrong about our own end."""
        part = self.state.part
        if part is None and not self.state.idle:
            return
        ends = [(one["node"], one["state"]) for one in verdict.record["parts"]]
        if part is not None and (self.context.spec["node"], part["state"]) not in ends:
            raise ChannelError("it sent a record without this node's own part")
        self._enter(Phase.OVER)
        self._connector.stop()
        self.context.save_record(verdict.record)
        self._send(messages.Ack())
        self._wait(FAILURE_WAIT, "final_grace")
        self.context.conclude(verdict.end or {})

    # the hub is lost after GO

    def _lost_running(self, closed: Closed) -> None:
        """End our part first."""
        self._enter(Phase.ORPHANED)
        self.roster.mark_lost(self._hub_slot, closed.why)
        self.context.stop(failure_order(f"{self._hub} is lost: {closed.why}"))

    def _lost(self, closed: Union[Closed, Unreachable]) -> None:
        """Nothing of ours is running: find the next hub."""
        self.roster.mark_lost(self._hub_slot, closed.why)
        self._elect()

    def _follow(self, _: messages.Ended) -> None:
        self._elect()

    def _elect(self) -> None:
        """See failover.py: the lowest slot that is left leads, or the run ends."""
        self._enter(Phase.OVER)
        self.context.loop.cancel("final_grace")
        self.state.elect(self._hub_slot)

    def _gone(self, _: Closed) -> None:
        """The hub has gone, and its record is here."""
        self.leave()

    def leave(self) -> None:
        """Close the connection."""
        self._enter(Phase.OVER)
        self.context.loop.cancel("final_grace")
        self.state.checks.close()
        self._connector.stop()
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        self.state.close()
        self.context.leave()

    table = make_table(
        {
            "GO": {_begin: (Phase.JOINED,)},
            messages.Ended: {
                _ended_early: (Phase.CONNECTING, Phase.JOINED),
                _ended: (Phase.RUNNING, Phase.IDLE),
                _follow: (Phase.ORPHANED,),
                _ended_leaving: (Phase.LEAVING,),
            },
            messages.HubBeat: {_answer: tuple(phase for phase in Phase if phase is not Phase.ORPHANED)},
            messages.CheckNode: {_check_node: (*SETTLED, Phase.RUNNING)},
            messages.NodeChecked: {_hub_checked: (*SETTLED, Phase.RUNNING)},
            messages.Welcome: {_joined: (Phase.CONNECTING,), _rejoined: (Phase.REJOINING,)},
            messages.StopOrder: {
                _stop: (Phase.CONNECTING, Phase.JOINED, Phase.RUNNING, Phase.IDLE),
                _stop_ended: (Phase.ENDED,),
            },
            messages.Verdict: {_verdict: (*SETTLED, Phase.REJOINING, Phase.LEAVING)},
            messages.SlotLost: {_mark_lost: (*SETTLED, Phase.RUNNING, Phase.REJOINING)},
            messages.Pause: {_pause: SETTLED, _catch_up: (Phase.REJOINING,)},
            messages.NextAttempt: {
                _start_next: SETTLED,
                _refuse_next: (Phase.RUNNING,),
                _catch_up: (Phase.REJOINING,),
            },
            messages.CheckpointOrder: {_order_keeper: (*SETTLED, Phase.RUNNING)},
            messages.Go: {_pass_go: (Phase.RUNNING,), _agree: (Phase.IDLE,)},
            Closed: {
                _lost_early: (Phase.CONNECTING, Phase.JOINED),
                _lost_running: (Phase.RUNNING,),
                _lost: (Phase.IDLE, Phase.ENDED, Phase.REJOINING),
                _lost_leaving: (Phase.LEAVING,),
                _gone: (Phase.OVER,),
            },
            Unreachable: {_stop_early: (Phase.CONNECTING,), _lost: (Phase.REJOINING,)},
            "hub": {_drop_hub: (Phase.IDLE, Phase.ENDED)},
            "final_grace": {leave: (Phase.LEAVING, Phase.OVER)},
        }
    )
