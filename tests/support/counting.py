"""How much work something is, counted in calls: a number that is the same on every machine, fast or slow."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

SLOPE = 15  # times the calls for ten times the input: 10 is linear, 100 is square


def count_calls(work: Callable[[], object], most: float = float("inf")) -> int:
    """Count the calls of Python and built-in functions in this thread; fails as soon as there are more than `most`."""
    calls = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")
        if calls > most:
            sys.setprofile(None)
            pytest.fail(f"more than {most:g} calls")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


def check_growth(work: Callable[[int], object], size: int) -> None:
    """Check that work of `size` costs at most 15 times as many calls as work of a tenth of it."""
    few = count_calls(lambda: work(size // 10))
    count_calls(lambda: work(size), SLOPE * few)
