"""Further attempts on this node: what follows one that has ended, until the gang says that there will be no more.

Between attempts the run's state is WAITING; its end is recorded when the gang has decided that it is one.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, Optional, Protocol, Tuple

from ..gang.membership import JsonObject
from ..gang.roster import Policy, Roster, read_policy
from ..state.run_record import time_to_prepare
from .agent_api import AgentApi
from .attempt import Attempt
from .progress import Progress

READY_LIMIT = 300.0  # seconds for a new attempt's gates
NOT_NEEDED = "this spare was not needed"


class RestartableAgent(AgentApi, Protocol):
    """The agent, as it goes from one attempt to the next."""

    attempt: Attempt

    def begin_attempt(self, spec: JsonObject, *, idle: bool) -> None:
        """Put a new attempt in the place of one that has ended."""

    def start_up(self) -> None:
        """Set out for GO."""

    def set_time_limit(self, seconds: float) -> None:
        """End the run in so many seconds."""


class Restarts:
    """What an agent does for attempts other than the first."""

    def __init__(self, agent: RestartableAgent) -> None:
        self._agent = agent
        self.policy: Policy = read_policy(agent.spec["restart"])
        self.roster = Roster(agent.spec)
        self._progress = self._new_progress()
        self._part: Optional[JsonObject] = None
        self._leftovers: List[JsonObject] = []
        self._agent_lost_reason = ""
        self.time_left_given: Optional[float] = None
        self._concluded = False

    def _new_progress(self) -> Progress:
        return Progress(self._agent.loop, str(self._agent.spec["output_dir"]), self.policy.progress)

    def begin(self) -> None:
        """Look at what is there before the attempt."""
        self._progress.begin()

    # the end of an attempt

    def on_attempt_ended(self, part: JsonObject, leftovers: List[JsonObject]) -> None:
        """Wait for what the gang makes of it, and look whether this node could go on."""
        agent, attempt = self._agent, self._agent.attempt
        self._part, self._leftovers = part, leftovers
        account = {"ended": attempt.process_tree.signalled(), "left": leftovers}
        outcome = {"attempt": self.roster.attempt, "state": part["state"], "reason": part["reason"]}
        agent.record.add_event("attempt_ended", **outcome, **account)
        agent.record.set(state="WAITING", reason="waits for the other nodes", left=leftovers)
        agent.gang.on_end(part)
        if not self._concluded:
            self._report_cleared()

    def _report_cleared(self) -> None:
        """Tell the gang when the GPUs' memory is free and it is known whether there was progress."""
        answers: Dict[str, Any] = {}
        attempt = self._agent.attempt

        def collect(name: str) -> Callable[[Any], None]:
            def on_answer(answer: Any) -> None:
                answers[name] = answer
                if len(answers) == 2 and not self._concluded and attempt is self._agent.attempt:
                    self._agent.gang.on_cleared(self._unfit_reason(), answers["progress"])

            return on_answer

        attempt.gpu_memory_wait.when_free(lambda: collect("memory")(None))
        self._progress.finish(collect("progress"))

    def _unfit_reason(self) -> str:
        if self._agent_lost_reason:
            return self._agent_lost_reason
        if self._leftovers:
            return "%d processes could not be ended" % len(self._leftovers)
        return "the memory of its GPUs is still in use" if self._agent.attempt.gpu_memory_wait.held else ""

    def on_agent_lost(self, reason: str) -> None:
        """Go to the end of this attempt, as guardian or agent can look after it no more, and no further."""
        self._agent_lost_reason = reason
        attempt = self._agent.attempt
        if attempt.idle or attempt.ended:
            self.conclude({"state": "FAILED", "reason": reason})
            self._agent.gang.leave()
        else:
            attempt.stop_unsupervised(reason)

    # what the gang decides

    def show_roster(self) -> None:
        """Let who watches see at once who is lost: SSH may reach it, and nothing from there need be waited for."""
        self._agent.record.set(roster=self.roster.entries)

    def on_pause(self, entry: JsonObject, seconds: float) -> None:
        """There will be another attempt, soon."""
        agent = self._agent
        most = self.policy.max_restarts
        text = "restart %d of %d in %g s: %s" % (self.roster.attempt, most, seconds, entry["text"])
        agent.record.add_event("pausing", attempt=entry["attempt"], reason=entry["text"], seconds=seconds)
        part = None if agent.attempt.idle else self._part
        part = part or {"state": None, "reason": "", "node_rank": None}
        own_end = {"node_rank": part["node_rank"], "state": part["state"], "reason": part["reason"]}
        cause = {"cause_reason": entry["reason"], "node": entry["node"], "text": entry["text"]}
        about = {"attempt": entry["attempt"], "began": entry["began"], "ended": entry["ended"]}
        earlier = [other for other in agent.record.state["attempts"] if other["attempt"] != entry["attempt"]]
        attempts = [*earlier, {**about, **own_end, **cause}]
        attempts[-1].update(progress=entry["progress"], ranks=agent.record.state["ranks"])
        agent.record.set(state="WAITING", reason=text, attempts=attempts, roster=self.roster.entries)

    def start_next_attempt(self) -> None:
        """Begin the current attempt of the roster, with the rank that it gives us, or none."""
        agent, node_rank = self._agent, self.roster.node_ranks.get(self.roster.own_slot)
        attempt_number = self.roster.attempt
        agent.record.add_event("attempt", attempt=attempt_number, node_rank=node_rank)
        agent.loop.cancel("go")  # a spare may be called in before the client's GO has come to it
        shown_rank = self.roster.own_slot if node_rank is None else node_rank
        fields = {"attempt": attempt_number, "node_rank": shown_rank, "roster": self.roster.entries}
        agent.record.set(**fields, ranks={}, torchrun=None, master=None)
        self._start_time_limit()
        limit = 2 * (READY_LIMIT + time_to_prepare(agent.spec))
        agent.begin_attempt(
            {**agent.spec, "attempt": attempt_number, "node_rank": shown_rank}, idle=node_rank is None
        )
        if node_rank is None:
            agent.record.set(state="WAITING", reason="spare")
        else:  # WAITING as well, until GO
            self._part, self._leftovers = None, []
            agent.loop.after(limit, "go", lambda: agent.attempt.cancel("no GO came"))
            self._progress = self._new_progress()
            agent.start_up()

    def _start_time_limit(self) -> None:
        """Keep the job's time limit too, where it has not been counted until now."""
        if self.time_left_given is not None and self._agent.record.state["began"] is None:
            self._agent.record.set(began=time.time())
            self._agent.set_time_limit(self.time_left_given)

    def on_go(self, address: str, port: int) -> None:
        """The gang says GO; it cannot know yet of a gate that has just ended."""
        if not self._agent.attempt.ended:
            self._agent.attempt.startup.on_go(port, address)

    def conclude(self, end: JsonObject) -> None:
        """Record the end: the last attempt's as this node saw it, unless it has come about in between."""
        if self._concluded:
            return
        self._concluded = True
        agent = self._agent
        state, reason = self._own_end(end)
        account = {"ended": agent.attempt.process_tree.signalled(), "left": self._leftovers}
        agent.record.add_event("ended", state=state, reason=reason, **account)
        agent.record.set(state=state, reason=reason, gave_up=end.get("gave_up"), roster=self.roster.entries)
        agent.client.send_event("ended", state=state, reason=reason)
        agent.client.close()
        agent.attempt.gpu_memory_wait.when_free(lambda: agent.locks.on_order("unlock"))

    def _own_end(self, end: JsonObject) -> Tuple[str, str]:
        idle = self._agent.attempt.idle
        if end.get("state") and (self._agent_lost_reason or not idle):
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
