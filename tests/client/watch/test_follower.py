"""The time of a line between moments that are known; the rest of a line that came in pieces."""

from __future__ import annotations

from typing import Any

import pytest

from clusterctl.client.watch.follower import FollowParser, LogLines, interpolate_times
from clusterctl.protocol.untrusted import Untrusted


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


def test_the_rest_of_a_line_is_known_by_what_came_before_it() -> None:
    """By file and place, also on a stream that was opened again; a line found further on is not the rest."""
    parser = FollowParser()
    frames: tuple[tuple[str, bytes, dict[str, Any], bool], ...] = (
        ("a", b"one\ntw", {}, False),
        ("b", b"x\n", {}, False),
        ("a", b"o, and", {}, True),
        ("a", b" on\nthree", {}, True),
        ("a", b"found\n", {"places": [40], "next": 50}, False),
        ("a", b"four", {"offset": 50}, False),
        ("a", b"later\n", {"offset": 90}, False),
    )
    for file, body, more, continues in frames:
        known = parser.offsets.get("gpu01", {}).get(file, 0)
        header = Untrusted({"log": file, "rank": 0, "stream": "stdout", "offset": known, **more})
        (entry,) = parser.parse("gpu01", header, body)
        assert isinstance(entry, LogLines)
        assert entry.continues == continues, body
