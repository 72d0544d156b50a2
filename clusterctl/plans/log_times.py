"""When the lines of a log were written: between two moments that are known, time goes with the bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

Knot = tuple[int, float]  # so many bytes had been written by then


def times_at(knots: Sequence[Knot], places: Iterable[int]) -> Iterator[float]:
    """Give the time of each place, which come in order; at least one knot is known."""
    number = 0
    for place in places:
        while number < len(knots) - 1 and knots[number][0] < place:
            number += 1
        high, later = knots[number]
        low, earlier = knots[max(0, number - 1)]
        known = number == 0 or place >= high or high == low
        yield later if known else earlier + (later - earlier) * (place - low) / (high - low)
