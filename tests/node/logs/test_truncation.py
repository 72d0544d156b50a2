"""Logs that would be too long: the middle goes, beginning and newest lines stay, and readers say what is gone."""

from __future__ import annotations

import errno
import itertools
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from clusterctl.node.logs import lines, recorder
from clusterctl.node.logs.lines import LineReader
from clusterctl.node.logs.reader import tail_position
from clusterctl.node.logs.recorder import SizeLimit, punch
from clusterctl.node.logs.truncation import Truncation, read_truncation
from clusterctl.node.state.run_record import Record
from clusterctl.node.state.workdir import reserve_disk

MB = 1 << 20


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory on a file system that can free a part of a file."""
    probe = tmp_path / "probe"
    probe.write_bytes(bytes(8192))
    with probe.open("r+b") as sink:
        try:
            punch(sink.fileno(), 0, 4096)
        except OSError as error:
            pytest.skip(f"{tmp_path} is on a file system that cannot free a part of a file: {error.strerror}")
    return tmp_path


def record_in(folder: Path) -> Record:
    """A run's record."""
    return Record(str(folder), {"state": "RUNNING"})


def events(folder: Path) -> list[dict[str, Any]]:
    """Read what was recorded."""
    path = folder / "events.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def fill(path: Path, size: int, begin: int = 0) -> int:
    """Append numbered lines; gives the number of the next."""
    with path.open("ab") as sink:
        for number in itertools.count(begin):
            if sink.tell() >= size:
                return number
            sink.write(b"line %d %s\n" % (number, b"x" * (number % 150)))
    raise AssertionError


def held(path: Path) -> int:
    """Give the bytes that a file takes on the disk."""
    return path.stat().st_blocks * 512


def read_all(path: Path) -> tuple[list[bytes], list[tuple[int, int]]]:
    """Read all lines, and what was passed over."""
    reader, lines, gone = LineReader(str(path)), [], []
    while True:
        _, block = reader.read(last=True)
        if reader.skipped != (0, 0):
            gone.append(reader.skipped)
        elif not block:
            return lines, gone
        lines += block.splitlines()


def test_the_middle_of_the_longest_goes(folder: Path) -> None:
    """All together stay within the limit; first and last lines are there, and nothing in between is torn."""
    limit, (long, short) = SizeLimit(record_in(folder), 4 * MB), (folder / "long.log", folder / "short.log")
    fill(short, MB // 2)
    number = 0
    for size in range(MB // 2, 12 * MB, MB // 2):
        number = fill(long, size, number)
        limit.enforce({str(path): path.stat().st_size for path in (long, short)})
        assert held(long) + held(short) < 4 * MB + 64 * 1024
    lines, ((begin, end),) = read_all(long)

    numbers = [int(line.split()[1]) for line in lines]
    (gap,) = [place for place, (a, b) in enumerate(itertools.pairwise(numbers)) if b != a + 1]
    assert numbers[0] == 0 and numbers[-1] == number - 1
    assert gap > 1000 and len(numbers) - gap > 1000
    assert all(len(line.split(b" ")[2]) == int(line.split(b" ")[1]) % 150 for line in lines)
    assert sum(map(len, lines)) + len(lines) == long.stat().st_size - (end - begin)
    assert read_truncation(str(short)) is None
    assert [event["event"] for event in events(folder)] == ["logs_cut"]


def test_tails_reach_over_the_hole(folder: Path) -> None:
    """Without reading zeros."""
    limit, log = SizeLimit(record_in(folder), 2 * MB), folder / "a.log"
    last = fill(log, 6 * MB)
    for _ in range(9):
        limit.enforce({str(log): log.stat().st_size})
    lines, _ = read_all(log)
    for count in (1, 10, len(lines) - 10, len(lines) + 10):
        reader = LineReader(str(log), tail_position(str(log), count, None, True))
        first = reader.read()[1].splitlines()[0]
        assert first == lines[max(0, len(lines) - count)]
    assert lines[-1].split()[1] == b"%d" % (last - 1)


def test_a_reader_that_is_slower_than_the_cut(folder: Path) -> None:
    """It meets the hole where it did not expect it: no zeros come out, and every line is whole."""
    limit, log = SizeLimit(record_in(folder), MB), folder / "a.log"
    reader, lines, lost, number = LineReader(str(log)), [], 0, 0
    for size in range(1 << 18, 8 * MB, 1 << 18):
        number = fill(log, size, number)
        limit.enforce({str(log): size})
        if size % (1 << 20) == 0:
            lines += reader.read(most=1 << 17)[1].splitlines()
            lost += reader.skipped[1] - reader.skipped[0]
    while True:
        block = reader.read()[1]
        lost += reader.skipped[1] - reader.skipped[0]
        if not block and reader.skipped == (0, 0):
            break
        lines += block.splitlines()

    numbers = [int(line.split()[1]) for line in lines]
    assert lost > 4 * MB and numbers == sorted(set(numbers)) and numbers[-1] == number - 1
    assert not any(b"\0" in line for line in lines)


def test_a_line_without_end_is_cut_as_well(folder: Path) -> None:
    """There is no beginning of a line to go by."""
    limit, log = SizeLimit(record_in(folder), MB), folder / "a.log"
    log.write_bytes(b"y" * 4 * MB)
    for _ in range(9):
        limit.enforce({str(log): 4 * MB})
    content = b"".join(read_all(log)[0])
    assert held(log) <= MB
    assert set(content) == {ord("y")} and len(content) >= MB - 2 * 4096


def test_zeros_that_the_job_wrote_are_its_own(folder: Path) -> None:
    """A log with zeros and without a cut is shown as it is."""
    log = folder / "a.log"
    log.write_bytes(b"a\0b\n" * 3)
    assert read_all(log) == ([b"a\0b"] * 3, [])


def test_writers_are_not_disturbed(folder: Path) -> None:
    """Whoever holds the file open and writes on finds nothing changed."""
    limit, log = SizeLimit(record_in(folder), MB), folder / "a.log"
    done = threading.Event()

    def write() -> None:
        with log.open("wb", buffering=0) as sink:
            for number in range(60000):
                sink.write(b"line %d %s\n" % (number, b"x" * (number % 150)))
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not done.wait(0.01):
        limit.enforce({str(log): log.stat().st_size if log.exists() else 0})
    writer.join()
    for _ in range(9):
        limit.enforce({str(log): log.stat().st_size})
    lines, _ = read_all(log)
    assert lines[0].startswith(b"line 0 ") and lines[-1].startswith(b"line 59999 ")
    assert held(log) < MB + 64 * 1024


def test_where_nothing_can_be_freed_it_is_reported_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run goes on, its logs as long as they are; no reader sees a hole that is not there."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(recorder, "punch", refuse)
    limit, log = SizeLimit(record_in(folder), MB), folder / "a.log"
    fill(log, 3 * MB)
    for _ in range(3):
        limit.enforce({str(log): 3 * MB})
    (event,) = events(folder)
    assert (event["event"], event["limit"], event["why"]) == ("logs_unbounded", MB, "Operation not supported")
    assert read_truncation(str(log)) is None
    assert len(read_all(log)[1]) == 0


def test_no_limit_and_small_logs_are_left_alone(folder: Path) -> None:
    """`log_limit: 0`; and logs of many ranks of which none is long."""
    log = folder / "a.log"
    fill(log, 3 * MB)
    SizeLimit(record_in(folder), 0).enforce({str(log): 3 * MB})
    SizeLimit(record_in(folder), 4 * MB).enforce({str(log): 3 * MB})
    assert read_truncation(str(log)) is None
    assert recorder.MAX_CUT >= recorder.MAX_HEAD


def test_a_log_that_another_program_removed_does_not_end_the_limit(folder: Path) -> None:
    """Nor does one that he emptied: the others are held all the same, and no hole is reported that is gone."""
    limit, (one, two) = SizeLimit(record_in(folder), MB), (folder / "a.log", folder / "b.log")
    fill(one, 2 * MB)
    fill(two, 3 * MB)
    for _ in range(9):
        limit.enforce({str(path): path.stat().st_size for path in (one, two)})
    one.unlink()
    limit.enforce({str(one): 9 * MB, str(two): 3 * MB})  # the agent has not looked yet
    for _ in range(9):
        limit.enforce({str(one): 0, str(two): two.stat().st_size})
        fill(two, two.stat().st_size + MB)
    limit.enforce({str(one): 0, str(two): two.stat().st_size})
    assert held(two) <= MB + 64 * 1024
    assert read_truncation(str(one)) is None
    assert [event["event"] for event in events(folder)] == ["logs_cut"]


def test_a_full_disk_does_not_end_the_limit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is when room is needed most: what was kept in reserve is given for the word, and it is tried again."""
    reserve_disk(str(folder))
    limit, log, write = SizeLimit(record_in(folder), MB), folder / "a.log", recorder.write_atomically

    def fails(path: str, content: bytes) -> None:
        if (folder / "ballast").exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        write(path, content)

    monkeypatch.setattr(recorder, "write_atomically", fails)
    fill(log, 3 * MB)
    limit.enforce({str(log): 3 * MB})
    assert read_truncation(str(log)) is None and not (folder / "ballast").exists()
    limit._shorten(str(log), 3 * MB, 1000)
    assert read_truncation(str(log)) is not None and (folder / "ballast").exists()


def test_a_hole_that_grows_while_it_is_skipped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No zeros come out between the word and the deed."""
    limit, log = SizeLimit(record_in(folder), MB), folder / "a.log"
    last = fill(log, 6 * MB)
    limit._shorten(str(log), 6 * MB, 1000)
    looked, look = [], lines.read_truncation

    def grow(path: str) -> Truncation | None:
        found = look(path)
        if len(looked) < 5:
            looked.append(found)
            limit._shorten(path, 6 * MB, 1000)
        return found

    monkeypatch.setattr(lines, "read_truncation", grow)
    shown, ((begin, end),) = read_all(log)
    assert not any(b"\0" in line for line in shown)
    assert shown[-1].startswith(b"line %d " % (last - 1)) and len(looked) == 5
    assert sum(map(len, shown)) + len(shown) == log.stat().st_size - (end - begin)
