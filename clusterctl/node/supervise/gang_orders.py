"""The orders of the gang to its agent about further attempts: its calls become events.

Between attempts the run's state is WAITING; its end is recorded when the gang has decided that it is one.
Whether there is another attempt is not decided here (`node/gang/restart_policy.py`).
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Callable, Optional

from ...protocol.ranks import NodeRank
from ..gang.restart_policy import Policy, read_policy
from ..gang.roster import Roster
from ..lifecycle.ending import on_concluded, on_paused
from ..lifecycle.starting import on_attempt_called, on_gang_go
from ..lifecycle.state import RunState
from ..state.run_record import Record

if TYPE_CHECKING:
    from ...protocol.messages.files import AttemptEnd, RestartsEnd, Spec
    from ..lifecycle.effects import Event


class GangOrders:
    """What the gang of a run that may be started again has of its agent."""

    def __init__(
        self,
        spec: Spec,
        record: Record,
        post: Callable[[Event], None],
        read_agent: Callable[[], RunState],
    ) -> None:
        self._spec = spec
        self._record = record
        self._post = post
        self._read_agent = read_agent
        self.policy: Policy = read_policy(spec["restart"])
        self.roster = Roster(spec)
        self.time_left_given: Optional[float] = None

    @property
    def time_left(self) -> Optional[float]:
        """Return what is left of the job's time, in seconds."""
        limit, began = self._spec.get("time_limit"), self._read_agent().began
        return max(0.0, limit - (time.time() - began)) if limit and began else None

    @property
    def began(self) -> Optional[float]:
        """Return when the attempt got its GO here."""
        return self._read_agent().attempt.began

    def show_roster(self) -> None:
        """Let who watches see at once who is lost: SSH may reach it, and nothing from there need be waited for."""
        self._record.set({"roster": self.roster.entries})

    def on_pause(self, entry: AttemptEnd, seconds: float) -> None:
        """There will be another attempt, soon."""
        most, number = self.policy.max_restarts, self.roster.attempt
        text = "restart %d of %d in %g s: %s" % (number, most, seconds, entry["text"])
        recorded = self._record.state
        attempts, ranks = recorded["attempts"], recorded["ranks"]
        self._post(
            partial(on_paused, entry=entry, seconds=seconds, text=text, attempts=attempts, ranks=ranks)
        )

    def start_next_attempt(self) -> None:
        """Begin the current attempt of the roster, with the rank that it gives us, or none."""
        node_rank = self.roster.node_ranks.get(self.roster.own_slot)
        shown_rank = self.roster.own_slot if node_rank is None else node_rank
        spec: Spec = {**self._spec, "attempt": self.roster.attempt, "node_rank": NodeRank(shown_rank)}
        if "ray" in spec:
            spec["ray"] = {**spec["ray"], "names": self.roster.names_by_address()}
        self._post(partial(on_attempt_called, spec=spec, node_rank=node_rank, time_left=self.time_left_given))

    def on_go(self, address: str, port: int) -> None:
        """The gang says GO; it cannot know yet of a gate that has just ended."""
        self._post(partial(on_gang_go, address=address, port=port))

    def conclude(self, end: RestartsEnd) -> None:
        """There will be no further attempt."""
        self._post(partial(on_concluded, end=end))
