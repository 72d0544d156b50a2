"""What an agent asks of its gang and the gang has of its agent; a peer as the hub sees it; events by phases.

The limits are in `timeouts`, the record of a run's end is made by `end_record`.
"""

from __future__ import annotations

import time
from collections import deque
from enum import Enum
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Deque,
    Dict,
    Generic,
    List,
    NamedTuple,
    Optional,
    Tuple,
    Type,
    TypeVar,
)

from ...protocol.messages.gang import LONGEST_REASON, BeatReply, Bounds, HubBeat, StopOrder
from ...protocol.messages.stop_kinds import FAILURE
from ..runtime.connections import ChannelError
from ..runtime.event_loop import Loop
from .channel import SecureChannel
from .timeouts import FAILURE_WAIT, LONGEST_GRACE, LONGEST_PAUSE, SUSPECTED_AFTER, silence_limit

if TYPE_CHECKING:
    from ...protocol.messages.agent import EventFacts, EventName
    from ...protocol.messages.files import GangRecord, PartRecord, Spec
    from ..state.locks import SendEvent

NON_RANK_FAILURES = 2  # failures of a part that are no rank's: torchrun's, and the guardian's
CLOCKS_PERIOD = 300  # beats between two records of the others' clocks
CLOCK_SAMPLES = 16  # answers; the quickest of them measures a peer's clock best
OPEN_BEATS = 64  # questions that an answer can still be to
DEFAULT_RANKS = 256  # of one node, where the size of the world is the program's own affair


class GangContext(NamedTuple):
    """What the gang's code has of its agent."""

    loop: Loop
    spec: Spec
    token: bytes
    report: SendEvent  # to the client
    stop: Callable[[StopOrder], None]  # end this node's part
    save_record: Callable[[GangRecord], None]  # write the record
    leave: Callable[[], None]  # nothing is left to wait for
    quiet: Callable[[], float] = (
        float  # for how many seconds no rank here has made progress; 0 if that is not known
    )
    on_quiet: Callable[[float], object] = float  # the same of the whole run
    save_clocks: Callable[[Dict[str, int]], object] = dict  # of the other nodes, minus ours, in microseconds


class Gang:
    """What an agent asks of its gang; this one has no others."""

    def __init__(self, context: GangContext) -> None:
        self.context = context

    def open(self) -> None:
        """Begin, before anything is started."""

    def join(self, port: int) -> None:
        """Go to the hub."""

    def set_listen_addresses(self, addresses: List[Any]) -> None:
        """Take where each of the others listens: [slot, address, port]."""

    def on_startup_event(self, event: EventName, facts: EventFacts) -> None:
        """A later attempt has come so far here."""

    def on_cleared(self, unfit: str, progress: Optional[bool]) -> None:
        """Nothing is left here of the attempt that ended; `unfit`: why this node cannot take part in another."""

    def leave(self) -> None:
        """This node can take part no more; the others will notice."""
        self.context.leave()

    def on_go(self) -> None:
        """GO was given here."""

    def on_failure(self, reason: str) -> None:
        """Something failed here."""

    def on_stop(self, order: StopOrder) -> None:
        """The run was stopped here, or its time was up."""

    def on_end(self, part: PartRecord) -> None:  # noqa: ARG002, RUF100 - there is no other node to send it to
        """This node's part has ended; `leave` is called when the others know."""
        self.context.leave()

    def beat(self) -> None:
        """Say that we are here, and count silence."""
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
        self.channel.send(HubBeat(self._sent_beats[-1], quiet))

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


class Closed(NamedTuple):
    """The connection to another agent has ended, or it was silent for too long."""

    why: str


PhaseType = TypeVar("PhaseType", bound=Enum)
IGNORED = "-"


def read_table(text: str, phases: Type[PhaseType]) -> Dict[Tuple[PhaseType, str], str]:
    """Read a table of events by phases into (phase, event) -> method; a timer's name is in small letters."""
    header, *rows = (line.split() for line in text.splitlines() if line.strip())
    return {
        (phases[phase], event): method
        for event, *methods in rows
        for phase, method in zip(header[1:], methods)
    }


class Role(Generic[PhaseType]):
    """A hub or a peer: what it does about an event depends on its phase, by its table."""

    table: Dict[Tuple[PhaseType, str], str]
    phase: PhaseType
    context: GangContext

    def on_go(self) -> None:
        """GO was given here."""
        self._on_event("GO")

    def _on_event(self, event: str, *arguments: Any) -> None:
        method = self.table[self.phase, event]
        if method != IGNORED:
            getattr(self, f"_{method}")(*arguments)

    def _wait(self, seconds: float, timer: str) -> None:
        self.context.loop.after(seconds, timer, lambda: self._on_event(timer))

    def _enter(self, phase: PhaseType) -> None:
        """Begin a phase; what was waited for in the one before, and has no place here, is not any more."""
        self.phase = phase
        for (other, event), method in self.table.items():
            if other is phase and event.islower() and method == IGNORED:
                self.context.loop.cancel(event)


def read_bounds(spec: Spec) -> Bounds:
    """Read the bounds from our own spec."""
    slots, restart = int(spec.get("slots") or spec["nnodes"]), spec.get("restart")
    nodes = [entry["node"] for entry in spec.get("roster") or ()] or spec.get("nodes") or []
    return Bounds(
        run_id=str(spec["run"]),
        nodes=tuple(map(str, nodes)) if len(nodes) == slots else (),
        slots=slots,
        node_ranks=int(spec["nnodes"]),
        failures=int(spec.get("world_size") or DEFAULT_RANKS) + NON_RANK_FAILURES,
        attempts=int(restart["max"]) + slots + 1 if restart else 1,  # each succession may skip a number
        grace=max(float(spec.get("grace") or 0.0), LONGEST_GRACE),
        pause=max(LONGEST_PAUSE, silence_limit(spec)),
    )


def failure_order(reason: str) -> StopOrder:
    """End what is left of an attempt that has failed."""
    return StopOrder(reason[:LONGEST_REASON], FAILURE_WAIT, FAILURE)


def limit_grace(order: StopOrder, bounds: Bounds) -> StopOrder:
    """Ask the others for no more time than they would grant."""
    return order._replace(grace=min(order.grace, bounds.grace))
