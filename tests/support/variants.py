"""Cases that prove once more, with another value, what their neighbours prove: only `./test --all` runs them."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

VARIANT = pytest.mark.variant


def first(count: int, cases: Iterable[str]) -> list[object]:
    """Give all cases as parameters of a test; those after the first `count` are variants."""
    return [
        case if place < count else pytest.param(case, marks=VARIANT, id=case)
        for place, case in enumerate(cases)
    ]
