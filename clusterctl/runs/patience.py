"""Try again when a server has no room for a login just now; never after a refusal."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from clusterctl.errors import ServerBusy

T = TypeVar("T")

PATIENCE = 25.0  # seconds after which no further try begins
FIRST_WAIT, LONGEST_WAIT, GROWTH = 0.15, 3.0, 1.5  # seconds, and a factor from one wait to the next


def insist(
    attempt: Callable[[], T], patience: float | None = None, *, busy: Callable[[], None] = lambda: None
) -> T:
    """Call `attempt` until it is not told that the server is busy, and `busy` each time that it is.

    The last such error says how often it was.
    """
    began, wait, tries = time.monotonic(), FIRST_WAIT, 0
    while True:
        try:
            return attempt()
        except ServerBusy as error:
            tries += 1
            busy()
            pause = wait * random.uniform(0.5, 1.5)  # many nodes may wait for the same server
            wait = min(LONGEST_WAIT, wait * GROWTH)
            spent = time.monotonic() - began
            if spent + pause > (PATIENCE if patience is None else patience):
                told = f"tried {tries} times in {spent:.0f} s"
                error.evidence = "\n".join(filter(None, [error.evidence, told]))
                raise
        time.sleep(pause)
