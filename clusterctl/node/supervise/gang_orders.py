"""What the gang does by its agent: its orders become events, and it reads how the run goes here.

Between attempts the run's state is WAITING; its end is recorded when the gang has decided that it is one.
Whether there is another attempt is not decided here (`node/gang/attempts.py`).
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Dict, List, Optional

from ...protocol.messages.gang import StopOrder
from ...protocol.ranks import NodeRank
from ..gang.attempts import Roster
from ..gang.membership import GangContext
from ..lifecycle.ending import on_concluded, on_gang_done, on_paused, on_stop_ordered
from ..lifecycle.run import Phase, Run
from ..lifecycle.starting import on_attempt_called, on_gang_go
from .attempt import Site
from .executor import Executor

if TYPE_CHECKING:
    from ...protocol.messages.files import AttemptEnd, GangRecord, RestartsEnd, RosterEntry, Spec
    from ...protocol.messages.verbs import AnyEventFacts, EventName


class GangOrders(GangContext):
    """The agent of one run, as its gang sees it."""

    def __init__(self, site: Site, spec: Spec, run: Run, executor: Executor) -> None:
        super().__init__(site.loop, spec, b"")
        self._record = site.record
        self._events = site.events
        self._run = run
        self._executor = executor

    def report(self, event: EventName, facts: AnyEventFacts) -> None:
        """Send an event to the client."""
        self._executor.send_client(event, facts)

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
        return self._executor.processes.stall.quiet

    def on_quiet(self, seconds: float) -> None:
        """Take for how many seconds no rank of the whole run has made progress."""
        if self._run.phase is Phase.RUNNING:  # what ranks write when they are ended is no progress
            self._executor.processes.stall.on_gang_quiet(seconds)

    # further attempts

    @property
    def began(self) -> Optional[float]:
        """When the attempt got its GO here."""
        return self._run.attempt.began

    @property
    def time_left(self) -> Optional[float]:
        """What is left of the job's time, in seconds."""
        limit, began = self.spec.get("time_limit"), self._run.state.began
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

    def start_next_attempt(self, roster: Roster, time_left: Optional[float]) -> None:
        """Begin the current attempt of the roster, with the rank that it gives this node, or none."""
        node_rank = roster.node_ranks.get(roster.own_slot)
        shown_rank = roster.own_slot if node_rank is None else node_rank
        spec: Spec = {**self.spec, "attempt": roster.attempt, "node_rank": NodeRank(shown_rank)}
        if "ray" in spec:
            spec["ray"] = {**spec["ray"], "names": roster.names_by_address()}
        self._events.post(partial(on_attempt_called, spec=spec, node_rank=node_rank, time_left=time_left))

    def on_go(self, address: str, port: int) -> None:
        """Send GO to the attempt; the gang cannot know yet of a gate that has just ended."""
        self._events.post(partial(on_gang_go, address=address, port=port))

    def conclude(self, end: RestartsEnd) -> None:
        """End the run; one that is never started again has recorded its end by itself."""
        if self.spec.get("restart"):
            self._events.post(partial(on_concluded, end=end))
