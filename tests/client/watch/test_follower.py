"""The time of a line between moments that are known."""

from __future__ import annotations

import pytest

from clusterctl.client.watch.follower import interpolate_times


@pytest.mark.parametrize(
    ("time_marks", "places", "times"),
    [
        ([(0, 1.0), (100, 2.0)], [50, 100], [1.5, 2.0]),
        ([(0, 1.0), (100, 2.0), (100, 9.0), (200, 10.0)], [100, 150, 200], [2.0, 9.5, 10.0]),
        ([(0, 5.0)], [0, 10], [5.0, 5.0]),
        ([(0, 1.0), (0, 3.0), (10, 4.0)], [5, 10, 99], [3.5, 4.0, 4.0]),
        ([(10, 1.0), (20, 2.0)], [], []),
    ],
)
def test_time_goes_with_the_bytes(
    time_marks: list[tuple[int, float]], places: list[int], times: list[float]
) -> None:
    """What ends where a moment is known has that moment; a pause belongs to what comes after it."""
    assert list(interpolate_times(time_marks, places)) == times
