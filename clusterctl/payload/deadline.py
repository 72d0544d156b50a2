"""How a run ends: workers first, torchrun when it had time to report them, then what outlived it."""

from __future__ import annotations

import time
from typing import Callable, List, Optional

from .ending import LEFT_AFTER, Sweep, living
from .loop import Loop
from .processes import Stat

SUMMARY_TIME = 0.7  # seconds that torchrun has, once its workers are killed, to say what happened
OUTLIVED_WAIT = 1.0  # seconds that processes have which outlive torchrun
ROUND = 0.02
FOREVER = float("inf")


class Deadline:
    """The moments from which workers and then torchrun are killed; they only ever come closer."""

    def __init__(
        self,
        loop: Loop,
        sweep: Sweep,
        torchrun: Callable[[], Optional[int]],
        done: Callable[[List[Stat]], None],
    ) -> None:
        self._loop = loop
        self._sweep = sweep
        self._torchrun = torchrun
        self._done = done
        self._workers_at = FOREVER
        self._all_at = FOREVER
        self._outlived = False
        self.over = False

    def within(self, seconds: float) -> None:
        """Kill the workers after so many seconds, and torchrun a moment later."""
        moment = time.monotonic() + seconds
        self._bring_closer(moment, moment + SUMMARY_TIME)
        self._schedule()

    def now(self) -> None:
        """Kill everything."""
        moment = time.monotonic()
        self._bring_closer(moment, moment)
        self.look()

    def look(self) -> None:
        """Kill what is due; done when torchrun has ended and nothing is left that can be ended."""
        if self.over:
            return
        now = time.monotonic()
        torchrun = self._torchrun()
        if now >= self._workers_at:
            spare = (torchrun,) if torchrun is not None and now < self._all_at else ()
            self._sweep.kill(living(spare))
        overdue = now >= self._all_at + LEFT_AFTER
        if torchrun is None or overdue:
            rest = self._sweep.rest()
            if not rest or overdue:
                self.over = True
                self._loop.drop("end")
                self._done(rest)
                return
            self._clear(rest, now)
        self._schedule()

    def _clear(self, rest: List[Stat], now: float) -> None:
        if not self._outlived:
            self._outlived = True
            self._bring_closer(now + OUTLIVED_WAIT, now + OUTLIVED_WAIT)
        if now < self._all_at:
            self._sweep.ask(rest)
        else:
            self._sweep.kill(rest)

    def _bring_closer(self, workers_at: float, all_at: float) -> None:
        self._workers_at = min(self._workers_at, workers_at)
        self._all_at = min(self._all_at, all_at)

    def _schedule(self) -> None:
        if self._outlived or self._workers_at < FOREVER:
            wait = 0.0 if self._outlived else self._workers_at - time.monotonic()
            self._loop.after(max(ROUND, wait), "end", self.look)
