"""Numbers that a rank has written: its loss, its rate; in its logs, and in TensorBoard's event files.

They are read when a report is made, never while the run goes on. A log of any length costs the same: what is longer
than MAX_READ is read in pieces over its whole length. Patterns of a job are regular expressions that its user wrote,
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

if TYPE_CHECKING:
    from re import Pattern


TIME_LIMIT = 3.0  # seconds for all logs of a node
MAX_READ = 24 << 20  # bytes of a log
PIECE = 256 << 10
MAX_LINE = 1000  # bytes; longer ones are left out
MAX_NAMES = 24
MAX_KEPT = 20_000  # values of a name before they are thinned
MAX_NAME = 48  # characters
EVENT_FILE_MARK = "events.out.tfevents."
MAX_FILES, MAX_FOLDERS, DEEPEST = 8, 400, 5
MAX_EVENT_BYTES = 16 << 20
MAX_RECORD = 1 << 20  # bytes
Field = Tuple[int, Union[int, bytes]]

# Python writes up to 22 decimals. What follows a number makes it another one: 0.5s, 1.2.3, or one that is longer.
NUMBER = r"[-+]?(?:\d{1,20}(?:\.\d{0,30})?(?:[eE][-+]?\d{1,3})?|nan|inf)(?!\w|\.\d)"
# HF Trainer: {'loss': 0.69, 'grad_norm': 1.2}   Lightning: [00:01<00:02, 3.1it/s, train_loss=0.12]
# Megatron: iteration 100/ 5000 | lm loss: 6.7E+00 | grad norm: 1.2   others: loss=0.1, loss: 0.1, loss 0.1
NAMED = re.compile(
    r"(?<![\w.])['\"]?((?:[a-z]{1,12}[ _/-]){0,2}(?:loss|accuracy|acc|perplexity|ppl|reward"
    r"|grad[ _]norm|learning[ _]rate|lr|mfu|throughput|tokens_per_s(?:ec(?:ond)?)?|tok/s|f1|bleu|wer))"
    r"(?:_(?:step|epoch))?['\"]?[ \t]?[=:]?[ \t]{0,3}"
    rf"({NUMBER})",
    re.IGNORECASE,
)
RATE = re.compile(
    r"(?<![\w.])(\d{1,12}(?:\.\d{1,6})?) ?((?:it|tokens|tok|samples|steps|img|images|seq)/s)(?:ec)?\b"
)
STEP = re.compile(
    r"\b(?:global_step|iteration|step|iter)['\"]?[ \t]?[=:]?[ \t]{0,8}(\d{1,12})\b", re.IGNORECASE
)
HINTS = (
    b"loss",
    b"Loss",
    b"acc",
    b"/s",
    b"lr",
    b"ppl",
    b"norm",
    b"reward",
    b"mfu",
    b"perpl",
    b"tokens_per",
    b"put",
    b"f1",
    b"bleu",
    b"wer",
)


class Scalar(NamedTuple):
    """One value: when it was written, its step if the line has one, and the number; not-a-number as it is."""

    time: float
    step: Optional[int]
    value: float


def find_values(line: str, patterns: Mapping[str, Pattern[str]]) -> Dict[str, float]:
    """Return the numbers of a line by name; the job's own patterns come first, then those that are known."""
    found: Dict[str, float] = {}
    for name, pattern in patterns.items():
        match = pattern.search(line)
        value = _number(match.group(1)) if match else None
        if value is not None:
            found[name] = value
    for match in NAMED.finditer(line):
        name = re.sub(r"[ /-]", "_", match.group(1).strip().lower())[:MAX_NAME]
        value = _number(match.group(2))
        if value is not None:
            found.setdefault(name, value)
    for match in RATE.finditer(line):
        found.setdefault(match.group(2), float(match.group(1)))
    return found


def _number(text: Optional[str]) -> Optional[float]:
    try:
        return float(text or "")
    except ValueError:
        return None


def compile_patterns(patterns: Mapping[str, str]) -> Dict[str, Pattern[str]]:
    """Compile the job's patterns; one that is none is left out."""
    compiled = {}
    for name, text in list(patterns.items())[:MAX_NAMES]:
        try:
            pattern = re.compile(str(text)[:MAX_LINE])
        except (re.error, OverflowError, RecursionError):
            continue
        if pattern.groups >= 1:
            compiled[str(name)[:MAX_NAME]] = pattern
    return compiled


class LogScalars:
    """The numbers in the logs of one rank."""

    def __init__(self, patterns: Mapping[str, Pattern[str]]) -> None:
        self._patterns = patterns
        self.values: Dict[str, List[Scalar]] = {}
        self.cut = False  # whether not all was read

    def read(self, path: str) -> None:
        """Read one log."""
        index = TimeIndex(path)
        found: List[Tuple[int, Optional[int], Dict[str, float]]] = []
        try:
            for offset, line in _lines(path):
                values = find_values(line, self._patterns)
                if values:
                    step = STEP.search(line)
                    found.append((offset, int(step.group(1)) if step else None, values))
        except TooSlowError:
            self.cut = True
            raise
        finally:
            self._keep(index, found)
            index.close()

    def _keep(self, index: TimeIndex, found: List[Tuple[int, Optional[int], Dict[str, float]]]) -> None:
        stride = 1 + len(found) // MAX_KEPT
        for offset, step, values in found[::stride]:
            time = index.time_marks(offset, offset)[0][1]
            for name, value in values.items():
                if name in self.values or len(self.values) < MAX_NAMES:
                    self.values.setdefault(name, []).append(Scalar(time, step, value))


def _lines(path: str) -> Iterator[Tuple[int, str]]:
    """Yield the lines that may hold a number of interest, with their places; a bar that redraws itself is many."""
    with os.fdopen(open_log(path), "rb") as source:
        size = os.fstat(source.fileno()).st_size
        pieces = max(1, min(MAX_READ, size) // PIECE)
        stride = PIECE if size <= MAX_READ else size // pieces
        rest, place = b"", 0
        for begin in range(0, size, stride):
            source.seek(begin)
            if begin != place:
                rest = b""
            content = rest + source.read(PIECE)
            start = begin - len(rest)
            place = begin + PIECE
            lines = content.replace(b"\r", b"\n").split(b"\n")
            rest = lines.pop() if begin + PIECE < size else b""
            rest = rest[-MAX_LINE - 1 :] if len(rest) <= MAX_LINE else b""
            for line in lines:
                if len(line) <= MAX_LINE and any(hint in line for hint in HINTS):
                    yield start, line.decode("utf-8", "replace")
                start += len(line) + 1


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
