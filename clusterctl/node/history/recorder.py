"""The agent's side: a thread that samples this machine and the run's ranks every two seconds.

A thread, because a driver or a file server that hangs must not keep the agent from its work; it shares nothing with
the agent but the list of ranks.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, Callable, Dict, List, Mapping, Optional, Set

from ...protocol.run_paths import RunPaths
from .gpus import Gpus
from .machine import MachineSampler
from .ring import INTERVAL, MOST_COLUMNS, NAN, RingSet

if TYPE_CHECKING:
    from .ring import Column

MOST_ERRORS = 5  # after which nothing is sampled any more


class HistoryRecorder:
    """Samples one run on this node; `ranks` gives the pids of its ranks, `spared` takes the sampler's."""

    def __init__(self, rundir: str, ranks: Callable[[], Mapping[int, int]], spared: Set[int]) -> None:
        self._rundir, self._ranks, self._spared = rundir, ranks, spared
        self._gpus: Optional[Gpus] = None
        self._stopped = threading.Event()
        self._columns: List[Column] = []
        self._set: Optional[RingSet] = None

    def start(self) -> None:
        """Sample from now on."""
        try:
            threading.Thread(target=self._run, daemon=True).start()
        except RuntimeError:  # no thread to be had: there will be no history
            self._stopped.set()

    def stop(self) -> None:
        """Sample no more; called from another thread than the samples are taken in; that thread is not waited for."""
        self._stopped.set()
        if self._gpus is not None:
            self._gpus.stop()

    def _run(self) -> None:
        errors = 0
        machine, gpus = MachineSampler(self._rundir), Gpus(self._spared)
        self._gpus = gpus
        machine.sample(self._ranks())  # the first rates need a moment before them
        pause = INTERVAL / 2
        try:
            while errors < MOST_ERRORS and not self._stopped.wait(pause):
                began = time.monotonic()
                try:
                    self._record({**machine.sample(self._ranks()), **gpus.sample()}, machine, gpus)
                except (OSError, ValueError) as error:  # a full disk, a file that is not as it should be
                    errors += 1
                    print("history: %s: %s" % (type(error).__name__, error), file=sys.stderr)
                pause = max(INTERVAL / 2, INTERVAL - (time.monotonic() - began))
        finally:
            gpus.stop()

    def _record(self, values: Dict[Column, float], machine: MachineSampler, gpus: Gpus) -> None:
        fresh = [column for column in values if column not in self._columns]
        if self._set is None or (fresh and len(self._columns) < MOST_COLUMNS):
            self._columns = (self._columns + sorted(fresh))[:MOST_COLUMNS]
            if self._set is not None:
                self._set.close()
            about = {**machine.about(), "gpus": gpus.about()}
            self._set = RingSet(RunPaths(self._rundir).samples, self._columns, about)
        self._set.add(time.time(), [values.get(column, NAN) for column in self._columns])
