"""Ranks that have written their traceback and do not exit: found here, ended by the agent as any failed rank.

Such a rank hangs while its interpreter shuts down: it waits for a thread, or in a destructor for other ranks. Three
things must hold, so that a rank that has survived an exception is never taken for one: its last words are a traceback,
it has written nothing for `zombie_after` seconds, and its main thread is no longer in the script. The third needs the
rank's stacks; of a rank that is not prepared for `diagnose` nothing is decided.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Callable, Dict, Iterable, List, NamedTuple, Optional, Tuple

from ...protocol.ranks import Rank
from ...protocol.run_paths import RunPaths
from ..diagnose.stacks import StackRequest, is_script_over, read_markers
from ..runtime.event_loop import Loop
from ..runtime.processes import Stat, find_process
from ..state.workdir import read_tail
from .torchrun import Worker

if TYPE_CHECKING:
    from ...protocol.messages.files import Spec

TAIL_BYTES = 16 << 10  # of stderr
LONGEST_EXCEPTION = 300  # characters
ANSWER_TIME = 0.5  # seconds for the stacks
SHORTEST_PAUSE, LONGEST_PAUSE = 0.5, 5.0  # seconds between two looks


class Zombie(NamedTuple):
    """A rank that has failed and does not exit."""

    rank: Rank
    process: Stat
    exception: str
    seconds: float  # without output


class Zombies:
    """Looks at the ranks now and then; calls `on_found` for each that has failed and does not exit."""

    def __init__(self, loop: Loop, rundir: str, spec: Spec, on_found: Callable[[Zombie], None]) -> None:
        self._loop, self._rundir, self._on_found = loop, rundir, on_found
        self._limit = float(spec.get("zombie_after") or 0.0)
        self._folder = RunPaths(rundir).diagnosis(spec["attempt"])
        self._pause = min(LONGEST_PAUSE, max(SHORTEST_PAUSE, self._limit / 4))
        self._asked: List[Tuple[Worker, str, StackRequest]] = []
        self._dismissed: Dict[Rank, float] = {}  # of ranks that are none, when they had written last

    def watch(self, workers: Callable[[], Iterable[Worker]]) -> None:
        """Begin to look, unless the job switches it off."""
        if self._limit > 0:
            self._loop.after(self._pause, "zombies", lambda: self._scan(workers))

    def stop(self) -> None:
        """Look no more."""
        self._loop.cancel("zombies")

    def _scan(self, workers: Callable[[], Iterable[Worker]]) -> None:
        """Request the stacks of ranks whose last words are old and a traceback."""
        self._asked = [
            (worker, exception, request)
            for worker in workers()
            for exception in [self._find_exception(worker)]
            if exception
            for request in [self._request_stacks(worker)]
            if request is not None
        ]
        if self._asked:
            self._loop.after(ANSWER_TIME, "zombies", lambda: self._decide(workers))
        else:
            self.watch(workers)

    def _find_exception(self, worker: Worker) -> str:
        last = self._last_output(worker)
        if worker.ended or last is None or time.time() - last < self._limit:
            return ""
        if self._dismissed.get(worker.rank) == last:
            return ""
        exception = last_exception(read_tail(self._file(worker, "stderr"), TAIL_BYTES))
        if not exception:
            self._dismissed[worker.rank] = last
        return exception

    def _request_stacks(self, worker: Worker) -> Optional[StackRequest]:
        marker = read_markers(self._folder).get(worker.identity, {})
        request = StackRequest(self._folder, worker.identity, marker)
        return request if not request.find_obstacle() and request.send() else None

    def _decide(self, workers: Callable[[], Iterable[Worker]]) -> None:
        asked, self._asked = self._asked, []
        self.watch(workers)
        for worker, exception, request in asked:
            process = find_process(worker.identity)
            last = self._last_output(worker)
            stacks = request.read()
            if process is None or last is None or not stacks:
                continue
            if is_script_over(stacks):
                self._on_found(Zombie(worker.rank, process, exception, time.time() - last))
            else:
                self._dismissed[worker.rank] = last

    def _last_output(self, worker: Worker) -> Optional[float]:
        times = []
        for stream in ("stdout", "stderr"):
            try:
                times.append(os.stat(self._file(worker, stream)).st_mtime)
            except OSError:
                continue
        return max(times, default=None)

    def _file(self, worker: Worker, stream: str) -> str:
        return os.path.join(self._rundir, worker.folder or "", "%s.log" % stream)


def last_exception(stderr: str) -> str:
    """Give the exception with which a text of stderr ends, but for a few lines; empty if there is none."""
    if "Traceback (most recent call last)" not in stderr:
        return ""
    from ...protocol.tracebacks import StderrParser, strip_rank

    parser = StderrParser()
    for line in stderr.splitlines():
        parser.feed(line, 0.0)
    return strip_rank(parser.exception)[:LONGEST_EXCEPTION]
