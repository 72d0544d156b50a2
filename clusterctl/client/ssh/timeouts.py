"""Step limits, watchdog, retry while busy.

Time limits: how long each step may take, and the one thread that ends the steps that overrun.

paramiko waits without a limit in places (a channel's exec, a full send buffer). Hanging up the socket ends
every such wait at once, so that is what an alarm does: no polling, and no limit that only mostly holds.
"""

from __future__ import annotations

import heapq
import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from clusterctl.errors import ServerBusy
from clusterctl.translation import trn


@dataclass(frozen=True)
class Timeouts:
    """The limits of the steps to a node, in seconds."""

    connect: float = 10.0  # name and TCP
    handshake: float = 20.0  # the server's greeting and the key exchange
    login: float = 30.0  # an ssh-agent may want to be touched
    channel: float = 15.0
    start: float = 60.0  # start-up files, `activate` and the interpreter, from a cold network home
    send: float = 60.0  # one frame


class Alarm:
    """One limit that is running; `expired`: its time is up."""

    def __init__(self, action: Callable[[], None]) -> None:
        self.expired = False
        self.cancelled = False
        self.action = action


class Watchdog:
    """Rings alarms from one thread, which starts with the first of them."""

    def __init__(self) -> None:
        self._alarms: list[tuple[float, int, Alarm]] = []
        self._changed = threading.Condition()
        self._order = itertools.count()
        self._thread: threading.Thread | None = None

    def set(self, seconds: float, action: Callable[[], None]) -> Alarm:
        """Call `action` after `seconds`, from the watchdog's thread, unless the alarm is cancelled."""
        alarm = Alarm(action)
        due = time.monotonic() + seconds
        with self._changed:
            heapq.heappush(self._alarms, (due, next(self._order), alarm))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="time limits", daemon=True)
                self._thread.start()
            elif self._alarms[0][2] is alarm:
                self._changed.notify()
        return alarm

    def cancel(self, alarm: Alarm) -> None:
        """Keep an alarm from ringing; once this returns it will not."""
        with self._changed:
            alarm.cancelled = True

    @contextmanager
    def limit(self, seconds: float, action: Callable[[], None]) -> Iterator[Alarm]:
        """Hold an alarm for the length of a block."""
        alarm = self.set(seconds, action)
        try:
            yield alarm
        finally:
            self.cancel(alarm)

    def _run(self) -> None:
        with self._changed:
            while True:
                now = time.monotonic()
                while self._alarms and (self._alarms[0][2].cancelled or self._alarms[0][0] <= now):
                    alarm = heapq.heappop(self._alarms)[2]
                    if not alarm.cancelled:
                        alarm.expired = True
                        alarm.action()
                self._changed.wait(self._alarms[0][0] - now if self._alarms else None)


WATCHDOG = Watchdog()


T = TypeVar("T")

RETRY_LIMIT = 25.0  # seconds after which no further try begins
FIRST_WAIT, MAX_WAIT, GROWTH = 0.15, 3.0, 1.5  # seconds, and a factor from one wait to the next


def retry_while_busy(
    attempt: Callable[[], T], limit: float | None = None, *, on_busy: Callable[[], None] = lambda: None
) -> T:
    """Call `attempt` until the server is not busy, and `on_busy` each time that it is.

    The last such error holds how often it was tried.
    """
    began, wait, tries = time.monotonic(), FIRST_WAIT, 0
    while True:
        try:
            return attempt()
        except ServerBusy as error:
            tries += 1
            on_busy()
            pause = wait * random.uniform(0.5, 1.5)  # many nodes may wait for the same server
            wait = min(MAX_WAIT, wait * GROWTH)
            spent = time.monotonic() - began
            if spent + pause > (RETRY_LIMIT if limit is None else limit):
                retries = trn(
                    "tried {n} time in {spent:.0f} s", "tried {n} times in {spent:.0f} s", tries, spent=spent
                )
                error.evidence = "\n".join(filter(None, [error.evidence, retries]))
                raise
        time.sleep(pause)
