"""Further attempts, as the gang orders them: its calls become events.

Between attempts the run's state is WAITING; its end is recorded when the gang has decided that it is one.
`Progress` sees whether an attempt got on: any files below the output directory that matter were made or changed by it.
Its walk runs in a thread of its own, is bounded, and may hang in a file system without harm: then nothing is known.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Callable, FrozenSet, Iterator, List, Optional, Pattern

from ...protocol.ranks import NodeRank
from ..gang.roster import Policy, Roster, read_policy
from ..lifecycle.events import AttemptCalled, Concluded, Event, GangGo, Paused
from ..lifecycle.state import RunState
from ..runtime.event_loop import Loop, call_in_thread, run_in_thread
from ..state.run_record import Record

if TYPE_CHECKING:
    from ...protocol.messages.files import AttemptEnd, RestartsEnd, Spec


class Restarts:
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
        self._post(Paused(entry, seconds, text, recorded["attempts"], recorded["ranks"]))

    def start_next_attempt(self) -> None:
        """Begin the current attempt of the roster, with the rank that it gives us, or none."""
        node_rank = self.roster.node_ranks.get(self.roster.own_slot)
        shown_rank = self.roster.own_slot if node_rank is None else node_rank
        spec: Spec = {**self._spec, "attempt": self.roster.attempt, "node_rank": NodeRank(shown_rank)}
        self._post(AttemptCalled(spec, node_rank, self.time_left_given))

    def on_go(self, address: str, port: int) -> None:
        """The gang says GO; it cannot know yet of a gate that has just ended."""
        self._post(GangGo(address, port))

    def conclude(self, end: RestartsEnd) -> None:
        """There will be no further attempt."""
        self._post(Concluded(end))


MOST_FILES = 20000  # entries that are looked at
SCAN_LIMIT = 5.0  # seconds for the look at the end

FileMarks = Optional[
    FrozenSet[int]
]  # of every file its path, size and time of change; None if there are too many


class Progress:
    """Compares what is there before the start with what is there after the end."""

    def __init__(self, loop: Loop, root: str, pattern: str) -> None:
        self._loop = loop
        self._root = root
        self._pattern = glob_to_regex(pattern)
        self._before: List[FileMarks] = []

    def begin(self) -> None:
        """Look at what is there."""
        run_in_thread(lambda: self._before.append(self._scan()))

    def finish(self, on_result: Callable[[Optional[bool]], None]) -> None:
        """Call `on_result` with whether anything is new; with None if that is not known in time."""
        call_in_thread(
            self._loop, "progress", SCAN_LIMIT, self._scan, lambda after: on_result(self._compare(after))
        )

    def _scan(self) -> FileMarks:
        """Look at the directory; only here, for its path alone may lead through a file system that hangs."""
        return scan_files(os.path.realpath(os.path.expanduser(self._root)), self._pattern)

    def _compare(self, after: FileMarks) -> Optional[bool]:
        before = self._before[0] if self._before else None
        return None if before is None or after is None else bool(after - before)


def scan_files(root: str, pattern: Pattern[str]) -> FileMarks:
    """Mark every file below a directory whose path from there is wanted."""
    file_marks = set()
    for count, entry in enumerate(_walk(root)):
        if count >= MOST_FILES:
            return None
        path = os.path.relpath(entry.path, root)
        with suppress(OSError):
            if pattern.fullmatch(path):
                status = entry.stat(follow_symlinks=False)
                file_marks.add(hash((path, status.st_size, status.st_mtime_ns)))
    return frozenset(file_marks)


def _walk(root: str) -> Iterator[os.DirEntry[str]]:
    directories = [root]
    while directories:
        with suppress(OSError), os.scandir(directories.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    directories.append(entry.path)
                yield entry


def glob_to_regex(pattern: str) -> Pattern[str]:
    """Turn a glob into a regular expression for paths: `*` stays within a name, `**` does not."""
    text, position = "", 0
    for match in re.finditer(r"\*\*/|\*\*|\*|\?", pattern):
        text += re.escape(pattern[position : match.start()])
        text += {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}[match[0]]
        position = match.end()
    return re.compile(text + re.escape(pattern[position:]), re.DOTALL)
