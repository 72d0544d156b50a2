"""What an agent asks of its gang and the gang has of its agent; a peer as the hub sees it.

The limits are in `limits`, the record of a run's end is made by `attempts`.
"""

from __future__ import annotations

import time
from collections import deque
from typing import (
    TYPE_CHECKING,
    Any,
    Deque,
    Dict,
    List,
    Optional,
    Tuple,
)

from ...protocol.messages.gang import BeatReply, HubBeat, Message, StopOrder, render_message
from ..runtime.connections import ChannelError
from ..runtime.event_loop import Loop
from .channel import SecureChannel
from .limits import SUSPECTED_AFTER

if TYPE_CHECKING:
    from ...protocol.messages.checkpoints import KeeperOrder, KeeperReport, Restore
    from ...protocol.messages.files import (
        AttemptEnd,
        CheckpointState,
        GangRecord,
        JournalFacts,
        PartRecord,
        RestartsEnd,
        RosterEntry,
        Spec,
    )
    from ...protocol.messages.verbs import AnyEventFacts, EventFacts, EventName
    from .attempts import Roster


CLOCKS_PERIOD = 300  # beats between two records of the others' clocks
CLOCK_SAMPLES = 16  # answers; the quickest of them measures a peer's clock best
OPEN_BEATS = 64  # questions that an answer can still be to


class GangContext:
    """What the gang's code has of its agent; `node/supervise/events.py` does these things."""

    def __init__(self, loop: Loop, spec: Spec, token: bytes) -> None:
        self.loop = loop
        self.spec = spec
        self.token = token
        self.gang = Gang(self)  # this node's place in it: hub or peer, another one after a hub is lost

    def report(self, event: EventName, facts: AnyEventFacts) -> None:
        """Send an event to the client."""

    def stop(self, order: StopOrder) -> None:
        """End this node's part."""

    def save_record(self, record: GangRecord) -> None:
        """Write the record of the run's end."""

    def save_clocks(self, clocks: Dict[str, int]) -> None:
        """Record the clocks of the other nodes, minus ours, in microseconds."""

    def leave(self) -> None:
        """End the agent when its own part has ended: nothing is left to wait for."""

    def quiet(self) -> float:
        """Return for how many seconds no rank here has made progress; 0 if that is not known."""
        return 0.0

    def on_quiet(self, seconds: float) -> None:
        """Take for how many seconds no rank of the whole run has made progress."""

    # further attempts, of a run that may be started again

    @property
    def began(self) -> Optional[float]:
        """When the attempt got its GO here."""
        return None

    @property
    def time_left(self) -> Optional[float]:
        """What is left of the job's time, in seconds."""
        return None

    def save_roster(self, entries: List[RosterEntry]) -> None:
        """Record which nodes are lost."""

    def on_pause(self, entry: AttemptEnd, seconds: float) -> None:
        """Wait for another attempt, after the one of this entry."""

    def start_next_attempt(
        self, roster: Roster, time_left: Optional[float], resume: Optional[Restore]
    ) -> None:
        """Begin the current attempt of the roster, with the rank that it gives this node, or none.

        `resume`: the checkpoint that it goes on from, if there is one.
        """

    def on_go(self, address: str, port: int) -> None:
        """Send GO to the attempt."""

    def conclude(self, end: RestartsEnd) -> None:
        """End the run: there will be no further attempt."""

    # checkpoints, of a job that keeps them

    def order_keeper(self, order: KeeperOrder) -> None:
        """Send an order to this node's keeper."""

    def save_checkpoints(self, states: List[CheckpointState], events: List[JournalFacts]) -> None:
        """Record how far the checkpoints are, and what has become of some."""


class Gang:
    """What an agent asks of its gang; this one has no others."""

    def __init__(self, context: GangContext) -> None:
        self.context = context

    @property
    def roster_entries(self) -> Optional[List[RosterEntry]]:
        """What is known of the nodes of a run that may be started again; None of any other."""
        return None

    def open(self) -> None:
        """Begin, before anything is started."""

    def join(self, port: int) -> None:
        """Connect to the hub."""

    def set_listen_addresses(self, addresses: List[Any]) -> None:
        """Take where each of the others listens: [slot, address, port]."""

    def on_startup_event(self, event: EventName, facts: EventFacts) -> None:
        """Take how far a later attempt has come here."""

    def on_cleared(self, unfit: str, progress: Optional[bool]) -> None:
        """Report that nothing is left here of the attempt; `unfit`: why this node cannot take part in another."""

    def on_keeper_report(self, report: KeeperReport) -> None:
        """Report what this node's keeper has found or done."""

    def leave(self) -> None:
        """Take part no more; the others will notice."""
        self.context.leave()

    def on_go(self) -> None:
        """Take GO, which was given here."""

    def report(self, message: Message) -> None:
        """Report a failure here, or that the run was stopped here, or its time was up."""

    def on_end(self, part: PartRecord) -> None:  # noqa: ARG002, RUF100 - there is no other node to send it to
        """Report that this node's part has ended; `leave` is called when the others know."""
        self.context.leave()

    def beat(self) -> None:
        """Send a sign of life, and count silence."""
        self.context.on_quiet(self.context.quiet())


class Member:
    """A peer that is here, and how far its clock is from ours."""

    def __init__(self, channel: SecureChannel) -> None:
        self.channel = channel
        self.joined = False
        self.quiet = 0.0  # seconds without progress of any of its ranks, as it has answered last
        self._sent_beats: Deque[float] = deque(maxlen=OPEN_BEATS)
        self._clock_samples: Deque[Tuple[float, float]] = deque(maxlen=CLOCK_SAMPLES)

    def send_beat(self, quiet: float = 0.0) -> None:
        """Ask for the peer's time; `quiet` is for how long no rank of the run has made progress."""
        self.channel.unanswered_beats += 1
        self._sent_beats.append(time.time())
        self.channel.send(render_message(HubBeat(self._sent_beats[-1], quiet)))

    def on_reply(self, reply: BeatReply) -> None:
        """Take the answer; ChannelError if it is to nothing that was asked."""
        if reply.at not in self._sent_beats:
            raise ChannelError("it answered a beat that was not sent")
        self.quiet, now = reply.quiet, time.time()
        if now >= reply.at:
            self._clock_samples.append((now - reply.at, reply.time - (reply.at + now) / 2))

    @property
    def is_responding(self) -> bool:
        """Whether it has answered all beats, but for the one that was sent last."""
        return self.channel.unanswered_beats <= 1

    @property
    def is_silent(self) -> bool:
        """Whether it has missed so many beats that its node may be gone."""
        return self.channel.unanswered_beats >= SUSPECTED_AFTER

    @property
    def has_clock(self) -> bool:
        """Whether it has answered often enough to compare its clock."""
        return len(self._clock_samples) >= CLOCK_SAMPLES // 2

    @property
    def offset(self) -> float:
        """Return the peer's clock minus ours."""
        return min(self._clock_samples)[1] if self._clock_samples else 0.0


class Clocks:
    """Records now and then how far the others' clocks are from ours: `diagnose --slow` compares times by them."""

    def __init__(self, context: GangContext) -> None:
        self._context = context
        self._beats_left = 0

    def record(self, members: Dict[str, Member]) -> None:
        """Take a beat, of these nodes."""
        self._beats_left -= 1
        if self._beats_left <= 0 and members and all(member.has_clock for member in members.values()):
            self._beats_left = CLOCKS_PERIOD
            offsets = {node: round(member.offset * 1e6) for node, member in members.items()}
            self._context.save_clocks(offsets)
