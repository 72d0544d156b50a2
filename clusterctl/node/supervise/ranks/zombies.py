"""Ranks that have written their traceback and do not exit: found here, ended by the agent as any failed rank.

Such a rank hangs while its interpreter shuts down: it waits for a thread, or in a destructor for other ranks. All of
this must hold, so that a rank that has survived an exception is never taken for one:

- its stderr ends with a traceback, and it has written nothing for `zombie_after` seconds;
- it reports itself that the exception was not caught (`sys.last_type`);
- two stacks of its main thread, some time apart, are whole, the same, and no longer in the script.

What cannot be found out is undecided, and nothing happens; so of a rank that is not prepared for `diagnose`.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence

from ....protocol.ranks import Rank
from ....protocol.run_paths import RunPaths
from ...diagnose.query import (
    STACKS,
    STATE,
    RankState,
    StackRequest,
    is_script_over,
    read_markers,
    read_state,
)
from ...logs.log_file import read_tail
from ...runtime.event_loop import Loop
from ...runtime.processes import ENDED_STATES, Stat, find_process
from .workers import Worker

if TYPE_CHECKING:
    from ....protocol.messages.files import Spec

TAIL_BYTES = 16 << 10  # of stderr
MAX_EXCEPTION = 300  # characters
ANSWER_TIME = 0.5  # seconds for an answer
MIN_PAUSE, MAX_PAUSE = 0.5, 5.0  # seconds between two looks


class Zombie(NamedTuple):
    """A rank that has failed and does not exit."""

    rank: Rank
    process: Stat
    exception: str
    seconds: float  # without output


class Suspect:
    """A rank whose last words are old and a traceback, while it is asked for the proof."""

    def __init__(self, folder: str, worker: Worker, exception: str, last: float) -> None:
        self.worker, self.exception, self.last = worker, exception, last
        self._base = os.path.join(folder, str(worker.identity.pid))
        self._request = StackRequest(folder, worker.identity, read_markers(folder).get(worker.identity, {}))
        self._stacks: List[str] = []

    def send_question(self) -> bool:
        """Ask how the script has ended; after its exit began the answer is already there."""
        if self._request.find_obstacle():
            return False
        self._request.request(STATE)
        self._request.send_if_still()  # not at the first look
        return True

    def state(self) -> Optional[RankState]:
        """Return what the rank reports of itself."""
        return read_state(self._base)

    def request(self) -> bool:
        """Request the stacks."""
        self._request.request(STACKS)
        return not self._request.find_obstacle()

    def send_signal(self) -> bool:
        """Request them by the signal if the thread that answers has ended, as before destructors run."""
        return self._request.has_grown() or self._request.send_if_still()

    def keep(self) -> bool:
        """Keep the stack of the main thread, if it is whole."""
        stack = self._request.read_main() if self._request.has_grown() else ""
        self._stacks.append(stack)
        return bool(stack)

    def is_over(self) -> bool:
        """Whether the script is, by two stacks that agree."""
        return is_proof(self.state(), self._stacks)


def is_proof(state: Optional[RankState], stacks: List[str]) -> bool:
    """Whether an exception has ended the script: the rank reports it, and two stacks of its main thread show it."""
    if state is None or not state.uncaught or len(stacks) != 2:
        return False
    return stacks[0] == stacks[1] and is_script_over(stacks[0])


class Zombies:
    """Looks at the ranks now and then; calls `on_found` for each that has failed and does not exit."""

    def __init__(self, loop: Loop, rundir: str, spec: Spec, on_found: Callable[[Zombie], None]) -> None:
        self._loop, self._rundir, self._on_found = loop, rundir, on_found
        self._limit = float(spec.get("zombie_after") or 0.0)
        self._folder = RunPaths(rundir).diagnosis(spec["attempt"])
        self._pause = min(MAX_PAUSE, max(MIN_PAUSE, self._limit / 4))
        self._suspects: List[Suspect] = []
        self._dismissed: Dict[Rank, float] = {}  # of ranks that are none, when they had written last

    def watch(self, workers: Callable[[], Iterable[Worker]]) -> None:
        """Begin to look, unless the job switches it off."""
        if self._limit > 0:
            self._loop.after(self._pause, "zombies", lambda: self._scan(workers))

    def stop(self) -> None:
        """Look no more."""
        self._loop.cancel("zombies")

    def _scan(self, workers: Callable[[], Iterable[Worker]]) -> None:
        """Find ranks whose last words are old and a traceback, and ask them step by step."""
        self._suspects = list(filter(None, map(self._suspect, workers())))
        first = (Suspect.request, Suspect.send_signal, Suspect.keep)
        self._advance(workers, (Suspect.send_question, self._is_uncaught, *first, *first, self._report))

    def _advance(
        self, workers: Callable[[], Iterable[Worker]], steps: Sequence[Callable[[Suspect], bool]]
    ) -> None:
        """Take the next step with those of which the steps before have left it open."""
        self._suspects = [suspect for suspect in self._suspects if steps[0](suspect)]
        if self._suspects and len(steps) > 1:
            self._loop.after(ANSWER_TIME, "zombies", lambda: self._advance(workers, steps[1:]))
        else:
            self.watch(workers)

    def _suspect(self, worker: Worker) -> Optional[Suspect]:
        last = self._last_output(worker)
        if last is None or time.time() - last < self._limit or self._dismissed.get(worker.rank) == last:
            return None
        process = find_process(worker.identity)
        if worker.ended or process is None or process.state in ENDED_STATES:
            return None
        from ....protocol.tracebacks import final_exception  # not loaded before a rank is that silent

        exception = final_exception(read_tail(self._file(worker, "stderr"), TAIL_BYTES))
        if exception:
            return Suspect(self._folder, worker, exception[:MAX_EXCEPTION], last)
        self._dismissed[worker.rank] = last
        return None

    def _is_uncaught(self, suspect: Suspect) -> bool:
        """Whether the rank reports it; one that reports that it continues is not asked again."""
        state = suspect.state()
        if state is not None and not state.uncaught:
            self._dismissed[suspect.worker.rank] = suspect.last
        return state is not None and state.uncaught

    def _report(self, suspect: Suspect) -> bool:
        process, last = find_process(suspect.worker.identity), self._last_output(suspect.worker)
        if process is not None and process.running and last == suspect.last and suspect.is_over():
            self._on_found(Zombie(suspect.worker.rank, process, suspect.exception, time.time() - last))
        return False

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
