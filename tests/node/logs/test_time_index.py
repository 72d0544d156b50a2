"""The index of a log: when each of its bytes was written, as far as looking now and then can tell."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clusterctl.node.logs.time_index import RECORD, SizeIndex, TimeIndex, index_path

T = 1_790_000_000.0


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """An empty log file."""
    path = tmp_path / "stdout.log"
    path.touch()
    return path


def write(log: Path, size: int, moment: float) -> None:
    """Make the log longer by so many bytes, last written to at a moment."""
    with log.open("ab") as sink:
        sink.write(b"x" * size)
    os.utime(log, (moment, moment))


def grown(log: Path, *steps: tuple[int, float, float]) -> SizeIndex:
    """Let a log grow: bytes, when they were written, and when that was looked at; all after T."""
    growth = SizeIndex(str(log), T)
    for size, written, looked in steps:
        if size:
            write(log, size, T + written)
        growth.check(T + looked)
    growth.write()
    return growth


def times(log: Path, start: int, end: int) -> list[tuple[int, float]]:
    """Read the knots, in seconds after T."""
    found = TimeIndex(str(log))
    try:
        return [(place, round(moment - T, 3)) for place, moment in found.time_marks(start, end)]
    finally:
        found.close()


def test_time_goes_with_the_bytes(log: Path) -> None:
    """Between two looks at a log that grows all the time."""
    grown(log, (100, 0.5, 0.5), (100, 1.0, 1.0), (200, 1.5, 1.5))

    assert times(log, 0, 400) == [(0, 0.0), (100, 0.5), (200, 1.0), (400, 1.5)]
    assert times(log, 50, 300) == [(50, 0.25), (100, 0.5), (200, 1.0), (300, 1.25)]
    assert times(log, 100, 200) == [(100, 0.5), (200, 1.0)]


def test_a_lonely_line_has_the_time_of_its_write(log: Path) -> None:
    """Not that of the look; and what comes after a pause does not begin before its end."""
    grown(log, (10, 0.3, 0.5), (0, 0, 1.0), (0, 0, 60.0), (10, 60.4, 60.5))

    assert times(log, 0, 20) == [(0, 0.0), (10, 0.3), (10, 60.0), (20, 60.4)]
    assert times(log, 10, 20)[0] == (10, 60.0)
    assert times(log, 0, 10)[-1] == (10, 0.3)


@pytest.mark.parametrize("skew", [-3600, 3600])
def test_the_clock_of_a_file_server_is_not_believed(log: Path, skew: float) -> None:
    """A time that lies before the last look or after this one counts as that of this look."""
    grown(log, (100, 0.5, 0.5), (100, 1.0 + skew, 1.0), (100, 1.5 + skew, 1.5))
    assert times(log, 100, 300)[-2:] == [(200, 1.0), (300, 1.5)]


def test_a_clock_that_is_set_back_makes_no_time_run_backward(log: Path) -> None:
    """The order of a log is never in doubt."""
    grown(log, (100, 10.0, 10.0), (100, 3.0, 3.0), (100, 4.0, 4.0), (100, 11.0, 11.0))

    moments = [moment for _, moment in times(log, 0, 400)]
    assert moments == sorted(moments)


def test_without_an_index_all_is_as_old_as_the_last_write(log: Path) -> None:
    """And it is known that this is a guess; of what comes after we came it is none."""
    write(log, 100, T + 5)
    found = TimeIndex(str(log))
    assert found.time_marks(10, 90) == [(10, T + 5), (90, T + 5)]
    assert (found.is_guess(99), found.is_guess(100)) == (True, False)
    write(log, 50, T + 8)
    found._checked_at = T + 7
    found.update(log.stat(), T + 9)
    assert found.time_marks(100, 150) == [(100, T + 7), (150, T + 8)]


def test_what_comes_after_the_index_was_opened(log: Path) -> None:
    """Who follows looks himself, and keeps no more than he needs."""
    grown(log, (100, 0.5, 0.5))
    found = TimeIndex(str(log))
    found._checked_at = T + 1
    for number in range(100):
        write(log, 10, T + 2 + number)
        found.update(log.stat(), T + 2 + number)
        place = 100 + 10 * number
        assert found.time_marks(place, place + 10)[-1] == (place + 10, T + 2 + number)
        found.forget_before(place + 10)
    assert len(found._recent) < 5
    assert not found.is_guess(0)


@pytest.mark.parametrize(("moment", "place"), [(-1, 0), (0.2, 0), (0.7, 100), (1.2, 200), (99, 300)])
def test_where_to_begin_for_a_moment(log: Path, moment: float, place: int) -> None:
    """Nothing that is younger stands before that place."""
    grown(log, (100, 0.5, 0.5), (100, 1.0, 1.0), (100, 1.5, 1.5))
    assert TimeIndex(str(log)).offset_at(T + moment) == place


def test_a_log_that_another_program_cut_begins_again(log: Path) -> None:
    """What the index reported before is wrong now, and gone."""
    growth = grown(log, (100, 0.5, 0.5), (100, 1.0, 1.0))
    log.write_bytes(b"")
    write(log, 50, T + 2)
    growth.check(T + 2)
    growth.write()

    assert times(log, 0, 50) == [(0, 1.0), (50, 2.0)]


def test_a_torn_record_is_no_record(log: Path) -> None:
    """A full disk or a power cut in the middle of one."""
    grown(log, (100, 0.5, 0.5), (100, 1.0, 1.0))
    with Path(index_path(str(log))).open("ab") as index:
        index.write(RECORD.pack(250, T + 2)[:11])

    assert times(log, 0, 200) == [(0, 0.0), (100, 0.5), (200, 1.0)]


def test_records_wait_for_a_disk_that_is_full(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are written when there is room again; if that takes long, there are fewer, not none."""
    growth = SizeIndex(str(log), T)
    monkeypatch.setattr("clusterctl.node.logs.time_index.MAX_UNWRITTEN", 256)
    with monkeypatch.context() as full:
        full.setattr("clusterctl.node.logs.time_index.os.pwrite", lambda *_: 7)
        for number in range(768):
            growth.size -= 1
            growth._add_marks(os.stat_result((0, 0, 0, 0, 0, 0, number * 10, 0, T + number, 0)), T + number)
            growth.write()
        assert len(growth._marks) <= 256
    write(log, 7680, T + 768)
    growth.check(T + 768)
    growth.write()

    found = times(log, 0, 7680)
    assert len(found) > 128
    assert abs(TimeIndex(str(log)).time_marks(1500, 1510)[0][1] - T - 150) < 5


def test_a_burst_after_a_silence_is_not_spread_over_the_silence(log: Path) -> None:
    """Also before the agent has written down that it came: it waits for seconds at most, and for none after a pause."""
    growth = grown(log, (100, 0.5, 0.5))
    write(log, 200, T + 600)
    moments = [moment for _, moment in times(log, 100, 300)]
    assert moments[0] >= 600 - 6 and moments[-1] == 600
    assert TimeIndex(str(log)).offset_at(T + 540) >= 100

    growth._checked_at = T + 599  # it looks every two seconds
    growth.check(T + 600.2)
    assert growth.paused
    growth.write()
    assert not growth.paused


def test_a_log_that_was_removed_begins_again(log: Path) -> None:
    """If it comes back, its index is not the old one's."""
    growth = grown(log, (100, 0.5, 0.5))
    log.unlink()
    assert growth.check(T + 1) is False and growth.size == 0
    write(log, 30, T + 2)
    growth.check(T + 2)
    growth.write()
    assert times(log, 0, 30)[-1] == (30, 2.0)


def test_many_short_looks_make_no_long_header(log: Path) -> None:
    """Of a log that grew by a byte each time."""
    growth = SizeIndex(str(log), T)
    for number in range(5000):
        growth._add_marks(os.stat_result((0, 0, 0, 0, 0, 0, number + 1, 0, T + number, 0)), T + number)
    log.write_bytes(b"\n" * 5000)
    os.utime(log, (T + 5000, T + 5000))
    growth.write()
    knots = times(log, 0, 5000)
    assert len(knots) < 1100 and knots == sorted(knots)
