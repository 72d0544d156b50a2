"""A span of time has one form, on nodes and on screens."""

from __future__ import annotations

import signal

import pytest

from clusterctl.protocol.exit_status import describe_duration, describe_end, split_status
from clusterctl.specs.text import render_duration, render_seconds

SPANS = [
    (0, "0 s"),
    (59, "59 s"),
    (60, "1m"),
    (425, "7m05s"),
    (3600, "1h"),
    (7500, "2h05m"),
    (86_400, "1d"),
    (273_600, "3d04h"),
    (59 * 60 + 59.7, "1h"),
]


@pytest.mark.parametrize(("seconds", "text"), SPANS)
def test_two_units_at_most(seconds: float, text: str) -> None:
    """The second with two digits; a zero is left out."""
    assert render_duration(seconds) == text
    assert describe_duration(seconds) == text


def test_what_is_measured_has_a_tenth_below_a_minute() -> None:
    """A limit keeps what was written."""
    assert [render_seconds(value) for value in (0.04, 3.64, 59.94, 59.96, 129.9)] == [
        "0.0 s",
        "3.6 s",
        "59.9 s",
        "1m",
        "2m10s",
    ]
    assert describe_duration(1.5) == "1.5 s"


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (3 << 8, "exited with 3"),
        (signal.SIGKILL, "was killed by SIGKILL"),
        (signal.SIGRTMAX - 1, f"was killed by signal {signal.SIGRTMAX - 1}"),
    ],
)
def test_how_a_process_ended(status: int, text: str) -> None:
    """A wait status in words; a signal without a name has its number."""
    assert describe_end(*split_status(status)) == text
