"""Agent side of further attempts, progress.

Whether an attempt got on: whether files below the output directory that matter were made or changed by it.

The walk runs in a thread of its own, is bounded, and may hang in a file system without harm: then nothing is known.

Further attempts on this node: what follows one that has ended, until the gang says that there will be no more.

Between attempts the run's state is WAITING; its end is recorded when the gang has decided that it is one.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from typing import Any, Callable, Dict, FrozenSet, Iterator, List, Optional, Pattern, Protocol, Tuple

from ..runtime.event_loop import Loop, call_in_thread, run_in_thread
from ..state.run_record import time_to_prepare
from ..supervise.agent_api import Host
from ..supervise.attempt import Attempt
from .listener import Door
from .membership import STOP, TIME, Facts, Order, Part, Side
from .roster import Course, Policy, read_policy

MOST = 20000  # entries that are looked at
LIMIT = 5.0  # seconds for the look at the end

Marks = Optional[
    FrozenSet[int]
]  # of every file its path, size and time of change; None if there are too many


class Progress:
    """Compares what is there before the start with what is there after the end."""

    def __init__(self, loop: Loop, root: str, pattern: str) -> None:
        self._loop = loop
        self._root = root
        self._wanted = translate(pattern)
        self._before: List[Marks] = []

    def begin(self) -> None:
        """Look at what is there."""
        run_in_thread(lambda: self._before.append(self._look()))

    def end(self, done: Callable[[Optional[bool]], None]) -> None:
        """Call `done` with whether anything is new; with None if that cannot be told in time."""
        call_in_thread(self._loop, "progress", LIMIT, self._look, lambda after: done(self._compare(after)))

    def _look(self) -> Marks:
        """Look at the directory; only here, for its path alone may lead through a file system that hangs."""
        return marks(os.path.realpath(os.path.expanduser(self._root)), self._wanted)

    def _compare(self, after: Marks) -> Optional[bool]:
        before = self._before[0] if self._before else None
        return None if before is None or after is None else bool(after - before)


def marks(root: str, wanted: Pattern[str]) -> Marks:
    """Mark every file below a directory whose path from there is wanted."""
    found = set()
    for count, entry in enumerate(_walk(root)):
        if count >= MOST:
            return None
        path = os.path.relpath(entry.path, root)
        with suppress(OSError):
            if wanted.fullmatch(path):
                seen = entry.stat(follow_symlinks=False)
                found.add(hash((path, seen.st_size, seen.st_mtime_ns)))
    return frozenset(found)


def _walk(root: str) -> Iterator[os.DirEntry[str]]:
    waiting = [root]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                yield entry


def translate(pattern: str) -> Pattern[str]:
    """Turn a glob into a regular expression for paths: `*` stays within a name, `**` does not."""
    text, place = "", 0
    for found in re.finditer(r"\*\*/|\*\*|\*|\?", pattern):
        text += re.escape(pattern[place : found.start()])
        text += {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}[found[0]]
        place = found.end()
    return re.compile(text + re.escape(pattern[place:]), re.DOTALL)


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


class Standing:
    """The run's course, this node's part of the attempt, and a door for the time when this agent leads."""

    def __init__(self, side: Side, restarts: Restarts, succeed: Callable[[int], None]) -> None:
        self.side = side
        self.restarts = restarts
        self.course: Course = restarts.course
        self.succeed = succeed  # the hub, given by its seat, is lost, and our part has ended
        self.door: Optional[Door] = None
        self.wish: Optional[Order] = None  # somebody's, or the time limit's: nothing is tried again
        self.part: Optional[Part] = None
        self.clear: Optional[Facts] = None
        self.idle = bool(side.spec.get("spare"))
        self.last_seen: Dict[int, float] = {}  # the last sign of life of those who led, by seat
        self.until = 0.0  # when the search for the next hub is given up; 0 where there is one

    @property
    def address(self) -> str:
        """Return where the others reach this node; a run of one node may not know its own."""
        return str(self.side.spec.get("address") or self.side.spec["master_addr"])

    @property
    def spec(self) -> Facts:
        """Return the spec of a record that we write."""
        return {**self.side.spec, "hub": self.side.spec["node"]}

    def hear_wish(self, order: Order) -> None:
        """Remember that somebody, or the time limit, wants the end."""
        if self.wish is None and order.kind in (STOP, TIME):
            self.wish = order

    def begin(self) -> None:
        """Another attempt begins here; nothing of the one before counts any more."""
        self.part, self.clear = None, None
        self.idle = self.course.here not in self.course.ranks
        self.restarts.again()

    def found(self) -> None:
        """Somebody leads again."""
        self.until = 0.0

    def close(self) -> None:
        """Let nobody in any more."""
        if self.door is not None:
            self.door.close()
            self.door = None

    def story(self, record: Facts, gave_up: Optional[str], **end: str) -> Facts:
        """Add to a record what went before the last attempt, and why no other followed."""
        history: List[Dict[str, object]] = self.course.history
        return {**record, "attempts": history, "roster": self.course.roster, "gave_up": gave_up, **end}
