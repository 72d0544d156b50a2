"""What reaches the rules of a run: its events, one after another; the orders of its client and of its gang."""

from __future__ import annotations

import signal
import socket
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Deque, Dict, List, Optional

from ...protocol.messages.gang import StopOrder
from ..gang.attempts import Roster, spec_of_attempt
from ..gang.membership import GangContext
from ..lifecycle.ending import on_concluded, on_gang_done, on_paused, on_stop_ordered
from ..lifecycle.run import Phase, Run
from ..lifecycle.starting import on_attempt_called, on_gang_go
from ..lifecycle.transitions import counts
from ..runtime.event_loop import Loop
from ..runtime.stream import Stream
from ..state.run_record import Record

if TYPE_CHECKING:
    from ...protocol.messages.checkpoints import KeeperOrder, Restore
    from ...protocol.messages.files import (
        AttemptEnd,
        CheckpointState,
        GangRecord,
        JournalFacts,
        RestartsEnd,
        RosterEntry,
        Spec,
    )
    from ...protocol.messages.verbs import AnyEventFacts, EventName
    from ..lifecycle.run import Event, Processes
    from .keeper import Keeper


SLURM_SIGNAL_WAIT = 1.0  # seconds in which Slurm's signal to all processes has reached each of them
SIGNAL_WAIT = 0.2  # the same for a service manager, or the end of a login session
SEND_TIMEOUT = 5.0  # seconds for a relay that does not read

OnOrder = Callable[[Dict[str, Any]], None]


class Events:
    """Follows the rules of events; what comes of a rule waits its turn."""

    run: Run

    def __init__(self, loop: Loop, spec: Spec) -> None:
        self._loop = loop
        self._wait = SLURM_SIGNAL_WAIT if spec.get("outside_stop") else SIGNAL_WAIT
        self._waiting: Deque[Event] = deque()
        self._held: List[Event] = []  # from the end of a process that perhaps an outside stop has ended
        self._busy = False

    def post(
        self, *events: Event, ended_by: Optional[int] = None, source: Optional[Processes] = None
    ) -> None:
        """Follow the rules of events, unless their source is an attempt that another has replaced.

        `ended_by`: the signal that has ended a worker or torchrun. Slurm, a service manager or the end of a login
        session signals agent and workers at once. The end of a worker may be seen first, and would make the run FAILED:
        it waits a moment for the signal that explains it, with all that follows.
        """
        if source is not None and source is not self.run.processes:
            return
        if not self._held and ended_by == signal.SIGTERM and self.run.phase is Phase.RUNNING:
            self._held.extend(events)
            self._loop.after(self._wait, "outside stop", self._release)
        else:
            (self._held or self._waiting).extend(events)
        if self._busy:
            return
        self._busy = True
        try:
            while self._waiting:
                self.run.replace(now=time.monotonic(), time=time.time())
                event = self._waiting.popleft()
                if counts(event, self.run.phase):
                    event(self.run)
        finally:
            self._busy = False

    def post_stop(self, event: Event) -> None:
        """Follow the rule of a stop, and then those of what was held back for it."""
        held, self._held = self._held, []
        self.post(event, *held)

    def post_first(self, event: Event) -> None:
        """Follow the rule of an error that has ended another one in its middle, before all that waits."""
        self._waiting.appendleft(event)
        self.post()

    def _release(self) -> None:
        """Go on with what was held back, after a stop that has come since then."""
        held, self._held = self._held, []
        self.post(*held)


class Client:
    """The connection to the client that started the run: orders come in, events go out, until GO."""

    def __init__(self, loop: Loop, descriptor: int, on_order: OnOrder, on_left: Callable[[], None]) -> None:
        self._loop = loop
        self._socket = socket.socket(fileno=descriptor)
        self._stream = Stream(descriptor, descriptor)
        self._stream.send_timeout = SEND_TIMEOUT
        self._on_order = on_order
        self._on_left = on_left
        self.connected = True
        loop.watch(descriptor, self._read)

    def send_event(self, event: EventName, facts: AnyEventFacts) -> None:
        """Send an event; a client that is gone misses it."""
        if self.connected:
            try:
                self._stream.send({"event": event, **facts})
            except BrokenPipeError:
                self.close()
                self._on_left()

    def close(self) -> None:
        """End the dialogue."""
        if self.connected:
            self.connected = False
            self._loop.unwatch(self._stream.fileno())
            self._socket.close()

    def _read(self) -> None:
        for header, _ in self._stream.read_available():
            self._on_order(header)
            if not self.connected:
                return
        if self._stream.ended:
            self.close()
            self._on_left()


class GangOrders(GangContext):
    """The agent of one run, as its gang sees it: orders become events, and it reads how the run goes here.

    Between attempts the run's state is WAITING; its end is recorded when the gang has decided that it is one. Whether
    there is another attempt is not decided here (`node/gang/attempts.py`).
    """

    def __init__(self, loop: Loop, spec: Spec, record: Record, events: Events) -> None:
        super().__init__(loop, spec, b"")
        self._record, self._events = record, events
        self.keeper: Optional[Keeper] = None  # of a job that keeps checkpoints

    def report(self, event: EventName, facts: AnyEventFacts) -> None:
        """Send an event to the client."""
        self._events.run.effects.send_client(event, facts)

    def stop(self, order: StopOrder) -> None:
        """End this node's part."""
        self._events.post_stop(partial(on_stop_ordered, order=order))

    def save_record(self, record: GangRecord) -> None:
        """Write the record of the run's end."""
        self._record.save_gang_record(record)

    def save_clocks(self, clocks: Dict[str, int]) -> None:
        """Record the clocks of the other nodes."""
        self._record.set({"clocks": clocks})

    def leave(self) -> None:
        """End the agent when its own part has ended."""
        self._events.post(partial(on_gang_done))

    def quiet(self) -> float:
        """Return for how many seconds no rank here has made progress."""
        return self._events.run.processes.quiet

    def on_quiet(self, seconds: float) -> None:
        """Take for how many seconds no rank of the whole run has made progress."""
        if self._events.run.phase is Phase.RUNNING:  # what ranks write when they are ended is no progress
            self._events.run.processes.on_quiet(seconds)

    # further attempts

    @property
    def began(self) -> Optional[float]:
        """When the attempt got its GO here."""
        return self._events.run.attempt.began

    @property
    def time_left(self) -> Optional[float]:
        """What is left of the job's time, in seconds."""
        limit, began = self.spec.get("time_limit"), self._events.run.state.began
        return max(0.0, limit - (time.time() - began)) if limit and began else None

    def save_roster(self, entries: List[RosterEntry]) -> None:
        """Record at once which nodes are lost: a client may reach one by SSH, and need not wait for it."""
        self._record.set({"roster": entries})

    def on_pause(self, entry: AttemptEnd, seconds: float) -> None:
        """Wait for another attempt."""
        number, most = entry["attempt"], self.spec["restart"]["max"]
        text = "restart %d of %d in %g s: %s" % (number, most, seconds, entry["text"])
        attempts, ranks = self._record.state["attempts"], self._record.state["ranks"]
        self._events.post(
            partial(on_paused, entry=entry, seconds=seconds, text=text, attempts=attempts, ranks=ranks)
        )

    def start_next_attempt(
        self, roster: Roster, time_left: Optional[float], resume: Optional[Restore]
    ) -> None:
        """Begin the current attempt of the roster, with the rank that it gives this node, or none."""
        spec, node_rank = spec_of_attempt(self.spec, roster), roster.node_ranks.get(roster.own_slot)
        if "checkpoints" in spec:
            spec["resume"] = resume.seal.name if resume is not None else ""
        called = partial(on_attempt_called, spec=spec, node_rank=node_rank, time_left=time_left)
        self._events.post(called if resume is None else partial(called, resume=resume))

    def on_go(self, address: str, port: int) -> None:
        """Send GO to the attempt; the gang cannot know yet of a gate that has just ended."""
        self._events.post(partial(on_gang_go, address=address, port=port))

    def conclude(self, end: RestartsEnd) -> None:
        """End the run; one that is never started again has recorded its end by itself."""
        if self.spec.get("restart"):
            self._events.post(partial(on_concluded, end=end))

    # checkpoints

    def order_keeper(self, order: KeeperOrder) -> None:
        """Send an order to this node's keeper."""
        if self.keeper is not None:
            self.keeper.send(order)

    def save_checkpoints(self, states: List[CheckpointState], events: List[JournalFacts]) -> None:
        """Record how far the checkpoints are, and what has become of some."""
        for facts in events:
            self._record.add_event("checkpoint", facts)
        self._record.set({"checkpoints": states})
