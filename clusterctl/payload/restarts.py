"""Further attempts on this node: what follows one that has ended, until the gang says that there will be no more.

Between attempts the run's state is WAITING; its end is recorded when the gang has decided that it is one.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, Optional, Protocol, Tuple

from .attempt import Attempt
from .course import Course, Policy, read_policy
from .host import Host
from .progress import Progress
from .state import time_to_prepare

Facts = Dict[str, Any]

READY_LIMIT = 300.0  # seconds for a new attempt's gates
NOT_NEEDED = "this spare was not needed"


class Lasting(Host, Protocol):
    """The agent, as it goes from one attempt to the next."""

    attempt: Attempt

    def begin_attempt(self, spec: Facts, *, idle: bool) -> None:
        """Put a new attempt in the place of one that has ended."""

    def depart(self) -> None:
        """Set out for GO."""

    def limit_within(self, seconds: float) -> None:
        """End the run in so many seconds."""


class Restarts:
    """What an agent does for attempts other than the first."""

    def __init__(self, agent: Lasting) -> None:
        self._agent = agent
        self.policy: Policy = read_policy(agent.spec["restart"])
        self.course = Course(agent.spec)
        self._progress = self._new_progress()
        self._part: Optional[Facts] = None
        self._left: List[Facts] = []
        self._guardless = ""
        self.time_given: Optional[float] = None
        self._over = False

    def _new_progress(self) -> Progress:
        return Progress(self._agent.loop, str(self._agent.spec["output_dir"]), self.policy.progress)

    def begin(self) -> None:
        """Look at what is there before the attempt."""
        self._progress.begin()

    # the end of an attempt

    def attempt_ended(self, part: Facts, left: List[Facts]) -> None:
        """Wait for what the gang makes of it, and look whether this node could go on."""
        agent, attempt = self._agent, self._agent.attempt
        self._part, self._left = part, left
        account = {"ended": attempt.sweep.account(), "left": left}
        about = {"attempt": self.course.attempt, "state": part["state"], "reason": part["reason"]}
        agent.record.note("attempt_ended", **about, **account)
        agent.record.set(state="WAITING", reason="waits for the other nodes", left=left)
        agent.gang.ended(part)
        if not self._over:
            self._clear()

    def _clear(self) -> None:
        """Tell the gang when the GPUs' memory is free and it is known whether there was progress."""
        answers: Dict[str, Any] = {}
        attempt = self._agent.attempt

        def take(name: str) -> Callable[[Any], None]:
            def hear(answer: Any) -> None:
                answers[name] = answer
                if len(answers) == 2 and not self._over and attempt is self._agent.attempt:
                    self._agent.gang.cleared(self._unfit(), answers["progress"])

            return hear

        attempt.release.then(lambda: take("memory")(None))
        self._progress.end(take("progress"))

    def _unfit(self) -> str:
        if self._guardless:
            return self._guardless
        if self._left:
            return "%d processes could not be ended" % len(self._left)
        return "the memory of its GPUs is still in use" if self._agent.attempt.release.held else ""

    def lose_agent(self, reason: str) -> None:
        """Go to the end of this attempt, as guardian or agent can look after it no more, and no further."""
        self._guardless = reason
        attempt = self._agent.attempt
        if attempt.idle or attempt.ended:
            self.conclude({"state": "FAILED", "reason": reason})
            self._agent.gang.desert()
        else:
            attempt.lose(reason)

    # what the gang decides

    def show_roster(self) -> None:
        """Let who watches see at once who is lost: SSH may reach it, and nothing from there need be waited for."""
        self._agent.record.set(roster=self.course.roster)

    def pause(self, entry: Facts, seconds: float) -> None:
        """There will be another attempt, soon."""
        agent = self._agent
        most = self.policy.most
        text = "restart %d of %d in %g s: %s" % (self.course.attempt, most, seconds, entry["text"])
        agent.record.note("pausing", attempt=entry["attempt"], reason=entry["text"], seconds=seconds)
        part = None if agent.attempt.idle else self._part
        part = part or {"state": None, "reason": "", "node_rank": None}
        mine = {"node_rank": part["node_rank"], "state": part["state"], "reason": part["reason"]}
        cause = {"cause_reason": entry["reason"], "node": entry["node"], "text": entry["text"]}
        about = {"attempt": entry["attempt"], "began": entry["began"], "ended": entry["ended"]}
        before = [one for one in agent.record.state["attempts"] if one["attempt"] != entry["attempt"]]
        attempts = [*before, {**about, **mine, **cause}]
        attempts[-1].update(progress=entry["progress"], ranks=agent.record.state["ranks"])
        agent.record.set(state="WAITING", reason=text, attempts=attempts, roster=self.course.roster)

    def again(self) -> None:
        """Begin the attempt that the course is at now, with the rank that it gives us, or none."""
        agent, rank = self._agent, self.course.ranks.get(self.course.here)
        number = self.course.attempt
        agent.record.note("attempt", attempt=number, node_rank=rank)
        agent.loop.drop("go")  # a spare may be called in before the client's GO has come to it
        shown = self.course.here if rank is None else rank
        known = {"attempt": number, "node_rank": shown, "roster": self.course.roster}
        agent.record.set(**known, ranks={}, torchrun=None, master=None)
        self._keep_limit()
        limit = 2 * (READY_LIMIT + time_to_prepare(agent.spec))
        agent.begin_attempt({**agent.spec, "attempt": number, "node_rank": shown}, idle=rank is None)
        if rank is None:
            agent.record.set(state="WAITING", reason="spare")
        else:  # WAITING as well, until GO
            self._part, self._left = None, []
            agent.loop.after(limit, "go", lambda: agent.attempt.cancel("no GO came"))
            self._progress = self._new_progress()
            agent.depart()

    def _keep_limit(self) -> None:
        """Keep the job's time limit too, where it has not been counted until now."""
        if self.time_given is not None and self._agent.record.state["began"] is None:
            self._agent.record.set(began=time.time())
            self._agent.limit_within(self.time_given)

    def go(self, address: str, port: int) -> None:
        """The gang says GO; it cannot know yet of a gate that has just ended."""
        if not self._agent.attempt.ended:
            self._agent.attempt.departure.go(port, address)

    def conclude(self, end: Facts) -> None:
        """Record the end: the last attempt's as this node saw it, unless it has come about in between."""
        if self._over:
            return
        self._over = True
        agent = self._agent
        state, reason = self._own_end(end)
        account = {"ended": agent.attempt.sweep.account(), "left": self._left}
        agent.record.note("ended", state=state, reason=reason, **account)
        agent.record.set(state=state, reason=reason, gave_up=end.get("gave_up"), roster=self.course.roster)
        agent.client.tell("ended", state=state, reason=reason)
        agent.client.close()
        agent.attempt.release.then(lambda: agent.claim.obey("unlock"))

    def _own_end(self, end: Facts) -> Tuple[str, str]:
        idle = self._agent.attempt.idle
        if end.get("state") and (self._guardless or not idle):
            return str(end["state"]), str(end["reason"])
        if self._part is not None:  # of an earlier attempt, where this node was fit for no other
            return str(self._part["state"]), str(self._part["reason"])
        return ("SUCCEEDED", NOT_NEEDED) if idle else ("FAILED", "the run ended before this node's part did")

    @property
    def time_left(self) -> Optional[float]:
        """Return what is left of the job's time, in seconds."""
        limit, began = self._agent.spec.get("time_limit"), self._agent.record.state["began"]
        return max(0.0, limit - (time.time() - began)) if limit and began else None

    @property
    def began(self) -> Optional[float]:
        """Return when the attempt got its GO here."""
        return self._agent.attempt.began
