"""Samples of a run in files of bounded size.

    <rundir>/samples/<set>.<level>     a set has fixed columns; the next one begins when a column is new
        one line of JSON: {"columns": [[group, name, quantity], ...], "about": {...}}
        records in a ring: time (8 bytes), then a number for each column (4 bytes), not-a-number where it is unknown

Level 0 has every sample of the last two hours, the others are thinned: of what happens in between they have the
mean, and of some quantities the peak. Nothing here needs to survive a crash whole: what cannot be read is left out.
"""

from __future__ import annotations

import json
import math
import os
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from ...protocol.untrusted import MalformedError, Untrusted, parse_object

if TYPE_CHECKING:
    Column = Tuple[str, str, str]  # group, name in it, quantity

INTERVAL = 2.0  # seconds between two samples
LEVELS = ((INTERVAL, 3600), (30.0, 2880), (600.0, 1008))  # seconds and records: 2 hours, a day, a week
MAX_BYTES = 2 << 20  # of records in a file
MAX_HEADER = 1 << 17  # bytes
MAX_SETS = 6  # of columns; the oldest go
MAX_COLUMNS = 600
MAX_NAME = 64  # characters
PEAKS = ("memory", "rss", "temperature", "throttle", "xid")  # of these the highest counts, not the mean
NAN = float("nan")


class Thinner:
    """Puts samples together: means, and peaks of some columns."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._peaks = [quantity in PEAKS for _, _, quantity in columns]
        self._clear()

    def _clear(self) -> None:
        self.count, self._times = 0, 0.0
        self._sums = [0.0] * len(self._peaks)
        self._counts = [0] * len(self._peaks)

    def add(self, moment: float, values: Sequence[float]) -> None:
        """Take a sample in."""
        self.count += 1
        self._times += moment
        for place, value in enumerate(values):
            if math.isnan(value):
                continue
            seen = self._counts[place]
            self._counts[place] = seen + 1
            if not self._peaks[place]:
                self._sums[place] += value
            elif not seen or value > self._sums[place]:
                self._sums[place] = value

    def finish(self) -> Tuple[float, List[float]]:
        """Return the time and the values of all that was added, and begin again."""
        time = self._times / max(1, self.count)
        values = [
            NAN if not seen else total if peak else total / seen
            for total, seen, peak in zip(self._sums, self._counts, self._peaks)
        ]
        self._clear()
        return time, values


class RingFile:
    """One file: records of a fixed size, the oldest of which are overwritten."""

    def __init__(self, path: str, header: bytes, columns: int, most: int) -> None:
        self._format = struct.Struct("<d%df" % columns)
        self._begin = len(header)
        self._capacity = max(16, min(most, MAX_BYTES // self._format.size))
        self._written = 0
        self._descriptor = os.open(
            path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        os.pwrite(self._descriptor, header, 0)

    def add(self, moment: float, values: Sequence[float]) -> None:
        """Write a record."""
        place = self._begin + self._written % self._capacity * self._format.size
        os.pwrite(self._descriptor, self._format.pack(moment, *values), place)
        self._written += 1

    def close(self) -> None:
        """Close it."""
        os.close(self._descriptor)


class RingSet:
    """The files of all levels for one set of columns."""

    def __init__(self, folder: str, columns: Sequence[Column], about: Dict[str, object]) -> None:
        with suppress(FileExistsError):
            os.mkdir(folder, 0o700)  # no parents: a run that was removed stays removed
        sets = _sets(folder)
        for old in sets[: max(0, len(sets) - MAX_SETS + 1)]:
            for level in range(len(LEVELS)):
                _remove(os.path.join(folder, "%d.%d" % (old, level)))
        base = os.path.join(folder, str(sets[-1] + 1 if sets else 0))
        header = json.dumps({"columns": columns, "about": about}).encode("ascii") + b"\n"
        self.columns = list(columns)
        self._files = [
            RingFile("%s.%d" % (base, level), header, len(columns), records)
            for level, (_, records) in enumerate(LEVELS)
        ]
        self._thinners = [Thinner(columns) for _ in LEVELS[1:]]

    def add(self, moment: float, values: Sequence[float]) -> None:
        """Write a sample, and what the coarser levels make of it when their time is full."""
        self._files[0].add(moment, values)
        for thinner, file, (interval, _) in zip(self._thinners, self._files[1:], LEVELS[1:]):
            thinner.add(moment, values)
            if thinner.count * INTERVAL >= interval:
                file.add(*thinner.finish())

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()


def _remove(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)


def _sets(folder: str) -> List[int]:
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    return sorted({int(name.partition(".")[0]) for name in names if name.partition(".")[0].isdigit()})


class Samples(NamedTuple):
    """Samples of one set, the oldest first."""

    columns: List[Column]
    about: Dict[str, object]
    records: List[Tuple[float, ...]]  # time, then a value for each column


def read_samples(folder: str, begin: float, end: float) -> List[Samples]:
    """Read what is there between two moments, of each time from the finest level that has it."""
    return [found for number in _sets(folder) for found in _read_set(folder, number, begin, end)]


def _read_set(folder: str, number: int, begin: float, end: float) -> Iterator[Samples]:
    columns: List[Column] = []
    about: Dict[str, object] = {}
    records: List[Tuple[float, ...]] = []
    for level in range(len(LEVELS)):
        found = read_file(os.path.join(folder, "%d.%d" % (number, level)))
        if found is None or (columns and found.columns != columns):
            continue
        columns, about = found.columns, found.about
        first = records[0][0] if records else end
        older = [record for record in found.records if begin <= record[0] < first]
        records = sorted(older) + records
    if records:
        yield Samples(columns, about, records)


def read_file(path: str) -> Optional[Samples]:
    """Read one file; None if it is none of ours."""
    try:
        with open(path, "rb") as source:
            content = source.read(MAX_HEADER + MAX_BYTES)
    except OSError:
        return None
    head, newline, rest = content.partition(b"\n")
    try:
        header = parse_object(head, MAX_HEADER)
    except MalformedError:
        return None
    columns = [
        (row.text(0, MAX_NAME), row.text(1, MAX_NAME), row.text(2, MAX_NAME))
        for row in header.rows("columns", MAX_COLUMNS)
    ]
    if not newline or not columns:
        return None
    record = struct.Struct("<d%df" % len(columns))
    whole = rest[: len(rest) // record.size * record.size]
    records = [values for values in record.iter_unpack(whole) if is_time(values[0])]
    return Samples(columns, _known(header.record("about")), records)


def _known(about: Untrusted) -> Dict[str, object]:
    """Take what is known of the machine."""
    return {
        "cores": about.integer("cores", 1, 1 << 20),
        "memory": about.integer("memory", 0),
        "gpus": [
            {
                "name": gpu.text("name", MAX_NAME),
                "memory": gpu.number("memory", 0.0),
                "lanes": gpu.integer("lanes", 1, 64),
            }
            for gpu in about.records("gpus", 64)
        ],
    }


def is_time(value: float) -> bool:
    """Return whether a number can be a moment of ours; a slot that was never written holds 0."""
    return math.isfinite(value) and 1.0 < value < 1e11


class Thinned(NamedTuple):
    """Samples of all sets at about so many moments: for each a time, and a value for each column."""

    columns: List[Column]
    about: Dict[str, object]
    width: float  # seconds that a value stands for
    rows: List[Tuple[float, List[float]]]


def thin(found: Sequence[Samples], begin: float, end: float, points: int) -> Thinned:
    """Put samples of several sets together in `points` equal parts of the time."""
    columns = list(dict.fromkeys(column for samples in found for column in samples.columns))[:MAX_COLUMNS]
    width = max(INTERVAL, (end - begin) / max(1, points))
    places = {column: place for place, column in enumerate(columns)}
    parts: Dict[int, Thinner] = {}
    for samples in found:
        own = [places.get(column) for column in samples.columns]
        for record in samples.records:
            values = [NAN] * len(columns)
            for place, value in zip(own, record[1:]):
                if place is not None:
                    values[place] = value
            number = int((record[0] - begin) / width)
            if number not in parts:
                parts[number] = Thinner(columns)
            parts[number].add(record[0], values)
    about = found[-1].about if found else {}
    return Thinned(columns, about, width, [parts[number].finish() for number in sorted(parts)])


def pack(thinned: Thinned) -> bytes:
    """Write times and values as they are sent: all times, then the values of one column after the other."""
    times = struct.pack("<%dd" % len(thinned.rows), *(time for time, _ in thinned.rows))
    columns = zip(*(values for _, values in thinned.rows))
    return times + b"".join(struct.pack("<%df" % len(thinned.rows), *column) for column in columns)
