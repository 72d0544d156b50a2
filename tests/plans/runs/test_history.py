"""What a node answers to `history`, read with bounds."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import pytest

from clusterctl.plans.runs.history import Progress, RecordParser, parse_history, parse_journal
from clusterctl.protocol.untrusted import Untrusted

COLUMNS = [["node", "", "cpu"], ["rank", "10", "rss"], ["rank", "9", "rss"]]


def packed(times: list[float], *columns: list[float]) -> bytes:
    """Pack times and values as a node does."""
    values = b"".join(struct.pack(f"<{len(column)}f", *column) for column in columns)
    return zlib.compress(struct.pack(f"<{len(times)}d", *times) + values)


def header(**changes: Any) -> Untrusted:
    """Give the header of two samples."""
    return Untrusted(
        {"columns": COLUMNS, "rows": 2, "width": 2.0, "time": 5.0, "about": {"cores": 4}, **changes}
    )


def test_samples_are_read_by_column() -> None:
    """Not-a-number is unknown; ranks are in order of their numbers."""
    nan = float("nan")
    history = parse_history(header(), packed([1.0, 3.0], [0.5, nan], [1, 2], [3, 4]))
    assert history.times == (1.0, 3.0) and history.machine.cores == 4
    assert history.values("node", "", "cpu") == (0.5, None)
    assert history.list_names("rank", "rss") == ["9", "10"]
    assert history.values("rank", "99", "rss") == ()


@pytest.mark.parametrize(
    ("changes", "body"),
    [
        ({}, b""),
        ({}, b"no zlib"),
        ({}, packed([1.0], [1], [1], [1])),
        ({"rows": 1 << 40}, packed([1.0], [1], [1], [1])),
        ({"rows": -1}, b""),
        ({}, packed([3.0, 1.0], [1, 1], [1, 1], [1, 1])),
        ({}, packed([1.0, float("inf")], [1, 1], [1, 1], [1, 1])),
        ({}, zlib.compress(bytes(1 << 20))),
        ({"columns": "x"}, packed([1.0, 3.0], [1, 1], [1, 1], [1, 1])),
    ],
)
def test_samples_that_are_not_what_they_claim_are_left_out(changes: dict[str, Any], body: bytes) -> None:
    """Lengths that differ, times that go back, a body that unpacks to more than was announced."""
    assert parse_history(header(**changes), body).times == ()


def test_a_journal_is_read_line_by_line() -> None:
    """What is no event is left out: the first line may have been cut."""
    lines = b'ed"}\n{"time": 2, "event": "ready"}\n{"time": "x", "event": "a"}\n{"time": 1, "event": "preparing"}\n[]\n'
    assert [(event.time, event.name) for event in parse_journal(lines)] == [
        (1.0, "preparing"),
        (2.0, "ready"),
    ]


@pytest.mark.parametrize(
    ("progress", "expected"),
    [
        ({"step": 30, "total": 100, "epoch": None, "epochs": None}, Progress(30, 100)),
        ({"step": None, "total": None, "epoch": 1.5, "epochs": 3}, Progress(epoch=1.5, epochs=3)),
        ({"step": 300, "total": 100, "epoch": -1, "epochs": 0}, Progress(300)),
        ({"step": "7", "total": 1 << 80}, Progress()),
        (None, None),
        ("x", None),
    ],
)
def test_progress_is_what_can_be(progress: Any, expected: Progress | None) -> None:
    """A step beyond the last has no total; what is no number is not there."""
    parser = RecordParser("gpu01", 10)
    points = [[4.0, None, 0.5, 1.25], [5.0, None, 0.5, "x"], [6.0, 1, 0.5]]
    parser.add(Untrusted({"scalars": [{"name": "loss", "points": points}], "progress": progress}), b"")
    record = parser.finish(0.0)
    assert record.progress == expected
    assert [point.epoch for point in record.scalars[0].points] == [1.25, None, None]


def test_times_are_moved_to_this_clock() -> None:
    """All of an answer, by the difference at the time that the node gave."""
    parser = RecordParser("gpu01", 10)
    parser.add(Untrusted({"history": header()._values}), packed([1.0, 3.0], [1, 1], [1, 1], [1, 1]))
    assert parser.is_complete(details=False) and not parser.is_complete(details=True)
    parser.add(Untrusted({"journal": 1}), b'{"time": 2, "event": "ready"}')
    rows = [[4.0, 7, 0.5], [5.0, None, None], ["x"], [6.0, -3, 1e99]]
    parser.add(Untrusted({"scalars": [{"name": "loss", "points": rows}, 3], "cut": True}), b"")
    record = parser.finish(105.0)
    assert parser.is_complete(details=True) and record.scalars_cut
    assert (record.history.times, record.journal[0].time) == ((101.0, 103.0), 102.0)
    assert [(point.time, point.step, point.value) for point in record.scalars[0].points] == [
        (104.0, 7, 0.5),
        (105.0, None, None),
        (106.0, None, None),
    ]
