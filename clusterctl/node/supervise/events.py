"""The order in which the events of a run are followed, one after another."""

from __future__ import annotations

import signal
import time
from collections import deque
from typing import TYPE_CHECKING, Deque, List, Optional

from ..lifecycle.run import Phase
from ..lifecycle.transitions import follow
from ..runtime.event_loop import Loop

if TYPE_CHECKING:
    from ...protocol.messages.files import Spec
    from ..lifecycle.run import Event, Run

SLURM_SIGNAL_WAIT = 1.0  # seconds in which Slurm's signal to all processes has reached each of them
SIGNAL_WAIT = 0.2  # the same for a service manager, or the end of a login session


class Events:
    """Follows the rules of events; what comes of a rule waits its turn."""

    run: Run

    def __init__(self, loop: Loop, spec: Spec) -> None:
        self._loop = loop
        self._wait = SLURM_SIGNAL_WAIT if spec.get("outside_stop") else SIGNAL_WAIT
        self._waiting: Deque[Event] = deque()
        self._held: List[Event] = []  # from the end of a process that perhaps an outside stop has ended
        self._busy = False

    def post(self, event: Event) -> None:
        """Follow the rule of an event."""
        if self._held:
            self._held.append(event)
        else:
            self._waiting.append(event)
            self._release()

    def post_end(self, event: Event, signal_number: Optional[int]) -> None:
        """Follow the rule of the end of a worker or torchrun, which a signal may have ended.

        Slurm, a service manager or the end of a login session signals agent and workers at once. The end of a worker
        may be seen first, and would make the run FAILED: it waits a moment for the signal that explains it, with all
        that follows.
        """
        if signal_number == signal.SIGTERM and self.run.phase is Phase.RUNNING and not self._held:
            self._held.append(event)
            self._loop.after(self._wait, "outside stop", self._release)
        else:
            self.post(event)

    def post_stop(self, event: Event) -> None:
        """Follow the rule of a stop, and then those of what was held back for it."""
        self._waiting.append(event)
        self._release()

    def post_first(self, event: Event) -> None:
        """Follow the rule of an error that has ended another one in its middle, before all that waits."""
        self._waiting.appendleft(event)
        self._follow()

    def _release(self) -> None:
        """Go on with what was held back, after a stop that has come since then."""
        self._waiting.extend(self._held)
        self._held.clear()
        if not self._busy:
            self._follow()

    def _follow(self) -> None:
        self._busy = True
        try:
            while self._waiting:
                self.run.replace(now=time.monotonic(), time=time.time())
                follow(self.run, self._waiting.popleft())
        finally:
            self._busy = False
