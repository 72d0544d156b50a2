"""An end to what does not look at the time itself: a regular expression."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import Any, Iterator


class TooSlowError(Exception):
    """The time is over."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TooSlowError after so many seconds, also out of a regular expression; only in the main thread."""

    def stop(*_: Any) -> None:
        raise TooSlowError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
