"""Numbers that a rank has written: its loss, its rate; in its logs (log_values.py), and in TensorBoard's event files.

They are read when a report or a page is made. A log of any length costs the same: what is longer than MAX_READ is read
in pieces over its whole length. Patterns of a job are regular expressions that its user wrote,
and lines are what anybody printed: lines are short, and a timer ends it all (Python looks for signals while it
matches), so that no pattern can hold the node up. Event files hold TFRecords, of whose protobuf messages three fields
are read:

    record    length (8 bytes), its checksum (4), the message, its checksum (4)
    Event     1: wall_time (double)   2: step (varint)   5: summary
    Summary   1: value, repeated
    Value     1: tag (text)   2: simple_value (float)   8: tensor { 1: type   4: bytes or 5: floats }

Such a file may be anything: every length is checked before it is used, and nothing is read beyond MAX_EVENT_BYTES.
"""

from __future__ import annotations

import os
import re
import struct
from typing import (
    TYPE_CHECKING,
    Any,
    BinaryIO,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Tuple,
    Union,
)

from ...protocol.untrusted import MAX_TIME
from ..logs.log_file import open_log
from ..logs.time_index import TimeIndex
from ..runtime.time_limit import TooSlowError
from .log_values import MAX_NAME, LineReader, Position, has_hint
from .log_words import STEP_RATE

if TYPE_CHECKING:
    from re import Pattern

    from ...protocol.messages.evidence import PrintedProgress


TIME_LIMIT = 3.0  # seconds for all logs of a node
MAX_READ = 24 << 20  # bytes of a log
PIECE = 256 << 10
MAX_LINE = 8000  # bytes; longer ones are left out. RL trainers print a step in one
MAX_PATTERN_LINE = 1000  # characters in which a job's pattern searches
MAX_BARS = 16
MAX_NAMES = 24
MAX_KEPT = 20_000  # values of a name before they are thinned
EVENT_FILE_MARK = "events.out.tfevents."
MAX_FILES, MAX_FOLDERS, DEEPEST = 8, 400, 5
MAX_EVENT_BYTES = 16 << 20
MAX_RECORD = 1 << 20  # bytes
Field = Tuple[int, Union[int, bytes]]
_Found = Tuple[int, Position, Dict[str, float]]  # offset, where the training is, its numbers


class Scalar(NamedTuple):
    """One value: when it was written, its step or its epoch if the line has one; not-a-number as it is."""

    time: float
    step: Optional[int]
    value: float
    epoch: Optional[float] = None


def match_patterns(line: str, patterns: Mapping[str, Pattern[str]]) -> Dict[str, float]:
    """Return the numbers that the job's own patterns find in a line."""
    found: Dict[str, float] = {}
    for name, pattern in patterns.items():
        match = pattern.search(line[:MAX_PATTERN_LINE])
        try:
            if match and match.end(1) < MAX_PATTERN_LINE:  # else it may be cut
                found[name] = float(match.group(1) or "")
        except ValueError:
            continue
    return found


def compile_patterns(patterns: Mapping[str, str]) -> Dict[str, Pattern[str]]:
    """Compile the job's patterns; one that is none is left out."""
    compiled = {}
    for name, text in list(patterns.items())[:MAX_NAMES]:
        try:
            pattern = re.compile(str(text)[:MAX_PATTERN_LINE])
        except (re.error, OverflowError, RecursionError):
            continue
        if pattern.groups >= 1:
            compiled[str(name)[:MAX_NAME]] = pattern
    return compiled


class _Bar:
    """A bar of progress that names nothing: where it was seen first and last, and the rates that it has shown."""

    def __init__(self, offset: int) -> None:
        self.first = self.last = offset
        self.step = 0
        self.rates: List[_Found] = []


class LogScalars:
    """The numbers in the logs of one rank."""

    def __init__(self, patterns: Mapping[str, Pattern[str]]) -> None:
        self._patterns = patterns
        self.values: Dict[str, List[Scalar]] = {}
        self.cut = False  # whether not all was read
        self._newest: Tuple[float, Position] = (0.0, Position())
        self._bar: Tuple[int, Optional[int]] = (0, None)
        self._total: Optional[int] = None

    @property
    def progress(self) -> Optional[PrintedProgress]:
        """Return the newest step; a bar that names nothing stands in where no line has a step."""
        _, position = self._newest
        step, total = position.step, position.total
        if position.within:  # it may count samples
            position = Position(epoch=_axis(position, restarts=True)[1], epochs=position.epochs)
            step = total = None
        elif step is None and self._bar[1]:
            step, total = self._bar
        if step is not None and total is None and self._total is not None and self._total >= step:
            total = self._total
        if step is None and position.epoch is None:
            return None
        return {"step": step, "total": total, "epoch": position.epoch, "epochs": position.epochs}

    def read(self, path: str) -> None:
        """Read one log."""
        index = TimeIndex(path)
        found: List[_Found] = []
        bars: Dict[int, _Bar] = {}
        try:
            for lines in _pieces(path):
                self._read_lines(lines, found, bars)
        except TooSlowError:
            self.cut = True
            raise
        finally:
            found.sort(key=lambda entry: entry[0])
            self._keep(index, found, bars)
            index.close()

    def _read_lines(
        self, lines: Iterator[Tuple[int, bytes]], found: List[_Found], bars: Dict[int, _Bar]
    ) -> None:
        reader = LineReader()
        for offset, raw in lines:
            if not (self._patterns or reader.in_table or has_hint(raw)):
                continue
            line = raw.decode("utf-8", "replace")
            values, position, measured, total = reader.read(line)
            self._total = total or self._total
            values = {**values, **match_patterns(line, self._patterns)}
            if not (measured or position.within) and position.step is not None and position.total:
                self._add_bar(bars, offset, values, position)
            elif values or (position != Position() and (measured or position.within)):
                found.append((offset, position, values))

    @staticmethod
    def _add_bar(bars: Dict[int, _Bar], offset: int, values: Dict[str, float], position: Position) -> None:
        total = position.total or 0
        if total not in bars and len(bars) >= MAX_BARS:
            return
        bar = bars.setdefault(total, _Bar(offset))
        bar.first = min(bar.first, offset)
        if offset >= bar.last:
            bar.last, bar.step = offset, position.step or 0
        if values:
            bar.rates.append((offset, position, values))

    def _keep(self, index: TimeIndex, found: List[_Found], bars: Dict[int, _Bar]) -> None:
        # Trainer shows a bar for the training and one, as nameless, for each evaluation: the training's lasts longest.
        longest = max(bars.items(), key=lambda item: item[1].last - item[1].first, default=None)
        if longest is not None and longest[1].last > longest[1].first:
            self._bar = longest[1].step, longest[0]
            if not any(STEP_RATE in values for _, _, values in found):
                found = sorted(found + longest[1].rates, key=lambda entry: entry[0])
        if found:
            time = index.time_marks(found[-1][0], found[-1][0])[0][1]
            known = [position for _, position, _ in found if position != Position()]
            if known and time >= self._newest[0]:
                self._newest = time, known[-1]
        restarts = _restarts([position for _, position, _ in found])
        stride = 1 + len(found) // MAX_KEPT
        for offset, position, values in found[::stride]:
            time = index.time_marks(offset, offset)[0][1]
            step, epoch = _axis(position, restarts=restarts)
            for name, value in values.items():
                if name in self.values or len(self.values) < MAX_NAMES:
                    self.values.setdefault(name, []).append(Scalar(time, step, value, epoch))


def _restarts(positions: List[Position]) -> bool:
    """Return whether the steps begin again in each epoch."""
    last = Position()
    for position in positions:
        if position.step is None or position.within:
            continue
        if last.step is not None and position.step < last.step:
            is_new = (position.epoch or 0) > (last.epoch or 0)
            if is_new or last.step == last.total or position.step < last.step / 2:
                return True
        last = position
    return False


def _axis(position: Position, *, restarts: bool) -> Tuple[Optional[int], Optional[float]]:
    """Return the step of a value; where the steps are no axis, the epoch with what is done of it."""
    if position.step is not None and not position.within and not restarts:
        return position.step, None
    if position.epoch is None:
        return None, None
    share = position.step / position.total if position.step and position.total else 0.0
    return None, position.epoch + (min(1.0, share) if position.epoch.is_integer() else 0.0)


def _pieces(path: str) -> Iterator[Iterator[Tuple[int, bytes]]]:
    """Yield the lines of each piece with their offsets; a bar that redraws itself is many.

    Those read so far are spread over the whole log: when the time is over, the curve is coarse, but not cut.
    """
    with os.fdopen(open_log(path), "rb") as source:
        size = os.fstat(source.fileno()).st_size
        count = max(1, -(-min(MAX_READ, size) // PIECE))
        stride = PIECE if size <= MAX_READ else size // count
        for number in _spread(count):
            yield _lines(
                source, number * stride if number < count - 1 else max(number * stride, size - PIECE)
            )


def _spread(count: int) -> List[int]:
    """Return 0 to count - 1: both ends first, then the middles of what is between."""
    bits = max(1, (count - 1).bit_length())
    order = sorted(range(count), key=lambda number: int(format(number, "b").zfill(bits)[::-1], 2))
    return list(dict.fromkeys([0, count - 1, *order]))


def _lines(source: BinaryIO, begin: int) -> Iterator[Tuple[int, bytes]]:
    """Yield the lines that begin in a piece, with their offsets."""
    start = max(0, begin - 1)  # one byte more shows whether a line begins here
    source.seek(start)
    end = begin - start + PIECE
    content = source.read(end + MAX_LINE + 1).replace(b"\r", b"\n")
    place = content.find(b"\n") + 1 if begin else 0
    while place < min(end, len(content)) and (place or not begin):
        after = content.find(b"\n", place)
        after = len(content) if after < 0 else after
        if after - place <= MAX_LINE:
            yield start + place, content[place:after]
        place = after + 1


def thin_scalars(values: List[Scalar], points: int) -> List[Scalar]:
    """Keep the first and the last, and of what is between so many at even distances."""
    if len(values) <= points:
        return values
    last = len(values) - 1
    places = sorted({round(place * last / (points - 1)) for place in range(points)})
    return [values[place] for place in places]


def log_files(rundir: str, records: Iterable[Mapping[str, Any]]) -> List[str]:
    """Name the logs of the lowest rank of each attempt."""
    files = []
    for ranks in records:
        numbers = sorted(int(rank) for rank in ranks if rank.isdigit())
        entry = ranks[str(numbers[0])] if numbers else {}
        files += [os.path.join(rundir, entry[name]) for name in ("stdout", "stderr") if entry.get(name)]
    return [file for file in files if os.path.realpath(file).startswith(os.path.realpath(rundir) + os.sep)]


def find_event_files(folders: List[str]) -> List[str]:
    """Find event files below some directories, the newest; no link is followed."""
    found: List[Tuple[float, str]] = []
    for folder in folders:
        for count, (path, folders_inside, names) in enumerate(os.walk(folder)):
            if count >= MAX_FOLDERS:
                break
            if path[len(folder) :].count(os.sep) >= DEEPEST:
                folders_inside.clear()
            for name in names:
                file = os.path.join(path, name)
                if EVENT_FILE_MARK in name and os.path.isfile(file) and not os.path.islink(file):
                    found.append((os.stat(file).st_mtime, file))
    return [file for _, file in sorted(found)[-MAX_FILES:]]


def read_event_file(content: bytes) -> Dict[str, List[Scalar]]:
    """Read the scalars of one file by tag."""
    values: Dict[str, List[Scalar]] = {}
    for message in records(content):
        try:
            time, step, summaries = 0.0, 0, []
            for number, value in fields(message):
                if number == 1 and isinstance(value, bytes) and len(value) == 8:
                    time = struct.unpack("<d", value)[0]
                elif number == 2 and isinstance(value, int):
                    step = value
                elif number == 5 and isinstance(value, bytes):
                    summaries.append(value)
            if not 0.0 < time < MAX_TIME or step >= 1 << 63:
                continue
            for summary in summaries:
                for tag, number_seen in _values(summary):
                    if (tag in values or len(values) < MAX_NAMES) and len(values.get(tag, ())) < MAX_KEPT:
                        values.setdefault(tag, []).append(Scalar(time, step, number_seen))
        except ValueError:  # not a message: the next record may be one
            continue
    return values


def records(content: bytes) -> Iterator[bytes]:
    """Yield the messages of a file; the first length that cannot be right ends it."""
    offset = 0
    while offset + 12 <= len(content):
        (length,) = struct.unpack_from("<Q", content, offset)
        if length > MAX_RECORD or offset + 16 + length > len(content):
            return
        yield content[offset + 12 : offset + 12 + length]
        offset += 16 + length


def fields(message: bytes) -> Iterator[Field]:
    """Yield the fields of a protobuf message: numbers as int, all else as bytes; ValueError where it is none."""
    offset = 0
    while offset < len(message):
        key, offset = _varint(message, offset)
        kind, size = key & 7, 0
        if kind == 0:
            value, offset = _varint(message, offset)
            yield key >> 3, value
            continue
        if kind == 2:
            size, offset = _varint(message, offset)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError("no such kind of field")
        if offset + size > len(message):
            raise ValueError("a field that is too long")
        yield key >> 3, message[offset : offset + size]
        offset += size


def _varint(message: bytes, offset: int) -> Tuple[int, int]:
    value = 0
    for count in range(10):
        if offset + count >= len(message):
            break
        byte = message[offset + count]
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value, offset + count + 1
    raise ValueError("a number without an end")


def _values(summary: bytes) -> Iterator[Tuple[str, float]]:
    for number, value in fields(summary):
        if number != 1 or not isinstance(value, bytes):
            continue
        tag, scalar = "", b""
        for inner, content in fields(value):
            if inner == 1 and isinstance(content, bytes):
                tag = content.decode("utf-8", "replace")[:MAX_NAME]
            elif inner == 2 and isinstance(content, bytes):
                scalar = content
            elif inner == 8 and isinstance(content, bytes):
                scalar = _tensor(content) or scalar
        if tag and len(scalar) == 4:
            yield tag, struct.unpack("<f", scalar)[0]


def _tensor(content: bytes) -> bytes:
    """Return the only float of a tensor, as newer writers store a scalar; nothing of another tensor."""
    found = dict(fields(content))
    data = found.get(4, found.get(5))
    return data if found.get(1) == 1 and isinstance(data, bytes) and len(data) == 4 else b""
