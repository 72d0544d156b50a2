"""What a node has on record of a run, read from its answer to `history`: samples, journal, output, numbers.

A log may have been replaced by something that is no file: what follows logs reports that by the same value.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from clusterctl.errors import NodeError
from clusterctl.plans.diagnose.evidence import NodeEvidence, parse_evidence
from clusterctl.protocol.end_record import MAX_RANK
from clusterctl.protocol.untrusted import MAX_TIME, MalformedError, Untrusted, parse_object, parse_rows
from clusterctl.translation import to_translate, tr

MAX_PATH = 1000  # characters of a path below a run's directory
KINDS: Mapping[str, str] = {
    "link": to_translate("link"),
    "directory": to_translate("directory"),
    "pipe": to_translate("pipe"),
    "socket": to_translate("socket"),
    "device": to_translate("device"),
}
MAX_COLUMNS, MAX_ROWS, MAX_NAME = 600, 2000, 64
MAX_BODY = 4 << 20  # bytes, unpacked
MAX_COLLECTIVES, MAX_COLLECTIVE_VALUES = 8 << 20, 300_000  # bytes, unpacked; values
MAX_VALUE = 1e30
MAX_GPUS, MAX_LANES = 64, 64
MAX_FILES = 20_000  # of the code
MAX_EVENTS, MAX_EVENT = 2000, 4096
MAX_WORDS, MAX_WORD, MAX_VARIABLES = 400, 2000, 200
MAX_RANKS, MAX_LINES, MAX_LINE = 64, 100, 400
MAX_SCALARS = 64
MAX_STEP = 1 << 53

Column = tuple[str, str, str]  # group, name in it, quantity
Values = tuple[float | None, ...]


@dataclass(frozen=True)
class Machine:
    """What does not change of a node; memory in bytes, also of its GPUs; the most PCIe lanes that each GPU can use."""

    cores: int | None = None
    memory: int | None = None
    gpus: tuple[tuple[str, float | None], ...] = ()
    lanes: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class History:
    """Samples: for each time, which is by this machine's clock, a value of each column; of `width` seconds."""

    times: tuple[float, ...] = ()
    columns: Mapping[Column, Values] = field(default_factory=dict)
    width: float = 2.0
    machine: Machine = Machine()

    def list_names(self, group: str, quantity: str) -> list[str]:
        """Name what has a quantity, in order."""
        found = [name for own, name, kind in self.columns if (own, kind) == (group, quantity)]
        return sorted(found, key=lambda name: (int(name) if name.isdecimal() else -1, name))

    def over_time(self, group: str, quantity: str, combine: Callable[[list[float]], float]) -> list[float]:
        """Combine a quantity of all members of a group at each moment; a moment without any is left out."""
        columns = [
            values for (own, _, kind), values in self.columns.items() if (own, kind) == (group, quantity)
        ]
        rows = zip(*columns, strict=True) if columns else ()
        return [combine(known) for row in rows if (known := pick(row))]

    def values(self, group: str, name: str, quantity: str) -> Values:
        """Return the values of a column; empty if there is none."""
        return self.columns.get((group, name, quantity), ())


@dataclass(frozen=True)
class JournalEvent:
    """A line of a node's journal: when by this machine's clock, what, and its facts, not parsed yet."""

    time: float
    name: str
    facts: Untrusted


@dataclass(frozen=True)
class Launched:
    """What was started on a node; `job` has other keys of the job's file, each as a text."""

    argv: tuple[str, ...] = ()
    module: str = ""
    python: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    nics: tuple[str, ...] = ()
    address: str = ""
    nproc: int | None = None
    gpus: tuple[int, ...] = ()
    about: Mapping[str, str] = field(default_factory=dict)
    job: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ScalarPoint:
    """One number of the run; a value of None is one that is not finite. An epoch stands where there is no step."""

    time: float
    step: int | None
    value: float | None
    epoch: float | None = None


@dataclass(frozen=True)
class Scalars:
    """The numbers of one name, of a rank's log or of TensorBoard; `count` is how many there were before thinning."""

    name: str
    source: str
    count: int
    points: tuple[ScalarPoint, ...]


@dataclass(frozen=True)
class Progress:
    """How far the training is by its own log: step of total, epoch of epochs, each as far as it prints it.

    If there is an epoch, the step may be one of this epoch.
    """

    step: int | None = None
    total: int | None = None
    epoch: float | None = None
    epochs: int | None = None


@dataclass(frozen=True)
class ReplacedLog:
    """The log, and what is there now: one of KINDS."""

    node: str
    file: str
    kind: str

    @property
    def error(self) -> NodeError:
        """Return what is reported of it."""
        return NodeError("CC-RUN-036", node=self.node, file=self.file, kind=tr(KINDS[self.kind]))


def parse_replaced(node: str, raw: Untrusted) -> ReplacedLog | None:
    """Parse what a node reports of a log; None if it is nothing that can be there."""
    kind = raw.one_of("replaced_by", tuple(KINDS))
    return ReplacedLog(node, raw.text("log", MAX_PATH), kind) if kind else None


@dataclass(frozen=True)
class NodeRecord:
    """All that a node has answered; `code` has the hash of each file that it was sent, None if that is not known.

    `collectives` are those that its ranks had entered last when that was kept; `clock` is our clock minus the node's.
    """

    node: str
    history: History = History()
    journal: tuple[JournalEvent, ...] = ()
    launched: Launched = Launched()
    output: Mapping[int, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    scalars: tuple[Scalars, ...] = ()
    scalars_cut: bool = False
    progress: Progress | None = None
    replaced_logs: tuple[ReplacedLog, ...] = ()
    code: Mapping[str, str] | None = None
    collectives: NodeEvidence | None = None
    clock: float = 0.0


class RecordParser:
    """Takes the frames of one node; what is not as it should be is left out."""

    def __init__(self, node: str, points: int) -> None:
        self._record, self._points = NodeRecord(node), points
        self._time: float | None = None
        self._complete, self._has_samples = False, False

    def add(self, header: Untrusted, body: bytes) -> None:
        """Take a frame."""
        record = self._record
        if header.has_record("history"):
            self._has_samples, self._time = True, header.record("history").moment("time")
            self._record = replace(record, history=parse_history(header.record("history"), body))
        elif "journal" in header:
            self._record = replace(record, journal=parse_journal(body))
        elif header.has_record("launched"):
            self._record = replace(record, launched=_parse_launched(header.record("launched")))
        elif "code" in header:
            self._record = replace(record, code=parse_code(body))
        elif "collectives" in header:
            self._record = replace(record, collectives=parse_collectives(record.node, header, body))
        elif header.has_record("output"):
            self._record = replace(
                record, output=_parse_output(header), replaced_logs=_parse_replaced(record.node, header)
            )
        elif header.is_list("scalars"):
            scalars = tuple(map(self._parse_scalars, header.records("scalars", MAX_SCALARS)))
            progress = _parse_progress(header.record("progress")) if header.has_record("progress") else None
            cut = header.flag("cut")
            self._record = replace(record, scalars=scalars, scalars_cut=cut, progress=progress)
            self._complete = True

    def is_complete(self, *, details: bool) -> bool:
        """Return whether all that was asked for is here."""
        return self._complete if details else self._has_samples

    def finish(self, now: float) -> NodeRecord:
        """Return what came, with times by this machine's clock; `now` is its time when the node gave its own."""
        return self._record if self._time is None else shift(self._record, now - self._time)

    def _parse_scalars(self, raw: Untrusted) -> Scalars:
        rows = raw.rows("points", self._points)
        points = [
            ScalarPoint(
                time,
                row.integer(1, 0),
                row.number(2, -MAX_VALUE, MAX_VALUE),
                row.number(3, 0.0, MAX_VALUE),
            )
            for row in rows
            if (time := row.number(0, 0.0, MAX_TIME)) is not None
        ]
        return Scalars(raw.text("name", MAX_NAME), raw.text("source", 20), raw.count("count"), tuple(points))


def shift(record: NodeRecord, seconds: float) -> NodeRecord:
    """Move all times."""
    history = replace(record.history, times=tuple(time + seconds for time in record.history.times))
    journal = tuple(replace(event, time=event.time + seconds) for event in record.journal)
    scalars = tuple(
        replace(one, points=tuple(replace(point, time=point.time + seconds) for point in one.points))
        for one in record.scalars
    )
    return replace(record, history=history, journal=journal, scalars=scalars, clock=record.clock + seconds)


def parse_history(raw: Untrusted, body: bytes) -> History:
    """Read samples; none where the body is not what its header describes."""
    columns = [
        (row.text(0, MAX_NAME), row.text(1, MAX_NAME), row.text(2, MAX_NAME))
        for row in raw.rows("columns", MAX_COLUMNS)
    ]
    rows = raw.count("rows", MAX_ROWS)
    about = raw.record("about")
    gpus = about.records("gpus", MAX_GPUS)
    lanes = {number: most for number, gpu in enumerate(gpus) if (most := gpu.integer("lanes", 1, MAX_LANES))}
    machine = Machine(
        about.integer("cores", 1, 1 << 20),
        about.integer("memory", 1),
        tuple((gpu.text("name", MAX_NAME), gpu.number("memory", 1.0, MAX_VALUE)) for gpu in gpus),
        lanes,
    )
    width = raw.number("width", 0.1, 1e9) or 2.0
    content = _unpack(body, rows * (8 + 4 * len(columns)))
    if content is None or not rows:
        return History(width=width, machine=machine)
    times = struct.unpack_from(f"<{rows}d", content)
    if not all(math.isfinite(time) and 0 <= time <= MAX_TIME for time in times) or list(times) != sorted(
        times
    ):
        return History(width=width, machine=machine)
    values = {
        column: tuple(map(_known, struct.unpack_from(f"<{rows}f", content, rows * (8 + 4 * place))))
        for place, column in enumerate(columns)
    }
    return History(times, values, width, machine)


def _unpack(body: bytes, size: int, most: int = MAX_BODY) -> bytes | None:
    if size > most:
        return None
    decoder = zlib.decompressobj()
    try:
        content = decoder.decompress(body, size + 1)
    except zlib.error:
        return None
    return content if len(content) == size else None


def _known(value: float) -> float | None:
    return value if -MAX_VALUE < value < MAX_VALUE else None  # not-a-number is neither


def parse_journal(body: bytes) -> tuple[JournalEvent, ...]:
    """Read the lines that are events; the first may have been cut."""
    events = []
    for line in body.split(b"\n")[-MAX_EVENTS:]:
        try:
            entry = parse_object(line, MAX_EVENT * 16, 2000)
        except MalformedError:
            continue
        time, name = entry.moment("time"), entry.text("event", 40)
        if time is not None and name:
            events.append(JournalEvent(time, name, entry))
    return tuple(sorted(events, key=lambda event: event.time))


def parse_code(body: bytes) -> dict[str, str] | None:
    """Read which files were sent: of each path what distinguishes its content; None if that cannot be read."""
    try:
        text = zlib.decompressobj().decompress(body, MAX_BODY)
        rows = parse_rows(text, MAX_BODY, MAX_FILES * 8)
    except (zlib.error, MalformedError):
        return None
    named = ((row.name(0, MAX_PATH), row) for row in rows[:MAX_FILES])
    return {name: f"{row.text(1, 4)} {row.integer(2)} {row.text(3, MAX_PATH)}" for name, row in named if name}


def _parse_launched(raw: Untrusted) -> Launched:
    return Launched(
        argv=raw.texts("argv", MAX_WORDS, MAX_WORD),
        module=raw.text("module", MAX_WORD),
        python=raw.text("python", MAX_WORD),
        env=_texts(raw.names("env", MAX_VARIABLES), raw.record("env")),
        nics=raw.texts("nic", 64, MAX_NAME),
        address=raw.text("address", MAX_NAME),
        nproc=raw.integer("nproc", 0, MAX_RANK),
        gpus=raw.integers("gpus", MAX_GPUS),
        about=_texts(raw.names("about", 40), raw.record("about")),
        job=_texts(raw.names("job", 40), raw.record("job")),
    )


def parse_collectives(node: str, header: Untrusted, body: bytes) -> NodeEvidence | None:
    """Read what a node's agent has kept of the collectives; None where the body is not what its header describes."""
    size = header.count("collectives", MAX_COLLECTIVES)
    content = _unpack(body, size, MAX_COLLECTIVES)
    try:
        kept = parse_object(content or b"", MAX_COLLECTIVES, MAX_COLLECTIVE_VALUES)
    except MalformedError:
        return None
    return parse_evidence(kept.record("diagnosis"), node) if kept.has_record("diagnosis") else None


def _texts(names: Sequence[str], values: Untrusted) -> dict[str, str]:
    return {name: values.text(name, MAX_WORD) for name in names}


def _parse_output(header: Untrusted) -> dict[int, Mapping[str, tuple[str, ...]]]:
    return {
        rank: {name: entry.texts(name, MAX_LINES, MAX_LINE) for name in ("stdout", "stderr")}
        for rank, entry in header.numbered_records("output", MAX_RANKS)
    }


def _parse_progress(raw: Untrusted) -> Progress:
    step, total = raw.integer("step", 0, MAX_STEP), raw.integer("total", 1, MAX_STEP)
    if step is not None and total is not None and step > total:
        total = None
    epochs = raw.integer("epochs", 1, MAX_STEP)
    return Progress(step, total, raw.number("epoch", 0.0, MAX_VALUE), epochs)


def _parse_replaced(node: str, header: Untrusted) -> tuple[ReplacedLog, ...]:
    found = (parse_replaced(node, raw) for raw in header.records("replaced", 2 * MAX_RANKS))
    return tuple(log for log in found if log is not None)


def pick(values: Sequence[float | None]) -> list[float]:
    """Leave out what is unknown."""
    return [value for value in values if value is not None]
