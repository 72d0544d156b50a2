"""Waiting for events: a test fails when an event does not come, not when it comes late."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

# Only a guard against hanging, in seconds: on a machine ten times slower honest work ends long before.
HANG = 180.0


def wait_until(condition: Callable[[], Any], what: str, *, every: float = 0.02) -> Any:
    """Wait until a condition holds and return its value; fails with `what` if it never does.

    Looking takes a fifth of the time at most: the other tests need the processors.
    """
    deadline = time.monotonic() + HANG
    while True:
        began = time.monotonic()
        value = condition()
        if value:
            return value
        now = time.monotonic()
        assert now < deadline, f"not after {HANG:g} s: {what}"
        time.sleep(min(max(every, 4 * (now - began)), 1.0))
