"""What `--since` understands."""

from __future__ import annotations

import time
from datetime import datetime, timezone

import pytest

from clusterctl.cli.actions.logs import parse_since
from clusterctl.errors import UsageError

NOW = datetime(2026, 11, 21, 14, 5, 30)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("10m", datetime(2026, 11, 21, 13, 55, 30)),
        ("1d2h", datetime(2026, 11, 20, 12, 5, 30)),
        ("30s", datetime(2026, 11, 21, 14, 5)),
        ("14:05", datetime(2026, 11, 21, 14, 5)),
        ("14:06", datetime(2026, 11, 20, 14, 6)),
        ("9:15:20", datetime(2026, 11, 21, 9, 15, 20)),
        ("2026-11-20", datetime(2026, 11, 20)),
        ("2026-11-20T23:59", datetime(2026, 11, 20, 23, 59)),
        ("2026-11-20 23:59:01", datetime(2026, 11, 20, 23, 59, 1)),
        ("2026-11-20T12:00Z", datetime(2026, 11, 20, 12, tzinfo=timezone.utc)),
        ("2026-11-20T12:00+08:00", datetime(2026, 11, 20, 4, tzinfo=timezone.utc)),
    ],
)
def test_spans_times_and_dates(text: str, moment: datetime) -> None:
    """Without a zone they are this machine's; a time of day that is still to come was yesterday's."""
    assert parse_since(text, NOW) == moment.timestamp()


@pytest.mark.parametrize(
    "text", ["", "10", "m", "25:00", "14:60", "yesterday", "2026-13-01", "999999d999999d", "-5m"]
)
def test_what_is_neither(text: str) -> None:
    """A number without a unit could be anything."""
    with pytest.raises(UsageError, match="--since") as raised:
        parse_since(text, NOW)
    assert raised.value.code == "CC-USE-035"


def test_a_span_is_a_span_when_the_clocks_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour before half past three is half past one on the day on which summer time begins."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    now = datetime(2026, 3, 29, 3, 30)
    spans = [now.timestamp() - parse_since(text, now) for text in ("1h", "2d")]
    monkeypatch.undo()
    time.tzset()
    assert spans == [3600, 2 * 86400]
