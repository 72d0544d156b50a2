"""The updates that `follow` streams carry, and how each stream resumes where it broke."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING

from clusterctl.client.rpc import tasks
from clusterctl.client.rpc.session import Session
from clusterctl.client.rpc.tasks import measure_clock
from clusterctl.client.watch.streams import StreamEnd, Streams
from clusterctl.errors import ClusterctlError
from clusterctl.plans.runs.history import ReplacedLog, parse_replaced
from clusterctl.plans.runs.state import NodeState, attempt_of, parse_state
from clusterctl.protocol.end_record import parse_rank
from clusterctl.protocol.ranks import NodeRank, Rank
from clusterctl.protocol.untrusted import MAX_TIME, MalformedError, Untrusted, parse_object
from clusterctl.specs.inventory.model import Node
from clusterctl.translation import tr

if TYPE_CHECKING:
    from typing import Literal

    from clusterctl.protocol.messages.verbs import FollowChoice, LogChoice, StreamName

TimeMark = tuple[int, float]  # so many bytes had been written by then


def interpolate_times(marks: Sequence[TimeMark], offsets: Iterable[int]) -> Iterator[float]:
    """Yield the time of each offset, which come in order; at least one time mark is known."""
    index = 0
    for offset in offsets:
        while index < len(marks) - 1 and marks[index][0] < offset:
            index += 1
        high, later = marks[index]
        low, earlier = marks[max(0, index - 1)]
        exact = index == 0 or offset >= high or high == low
        yield later if exact else earlier + (later - earlier) * (offset - low) / (high - low)


MAX_FILES = 10_000  # logs of one node, of all attempts
MAX_BYTES = 1 << 62  # of a file
MAX_TIME_MARKS = 10_000
MAX_PATH_LENGTH = 1000  # characters of a path below a run's directory


@dataclass(frozen=True)
class LogLines:
    """Complete lines of one file; `sizes` counts each line's bytes in the file, its newline included."""

    node: str
    rank: Rank | None
    stream: StreamName | Literal[""]
    file: str
    offset: int
    time: float | None
    lines: tuple[str, ...]
    sizes: tuple[int, ...]
    written_at: float | None = None  # when the last was written, by the node's clock, if that can be trusted
    initial_size: int = 0  # where a tail was asked for: how long the file was then
    node_rank: NodeRank | None = None  # of the node in the attempt that wrote it, where that is known
    line_offsets: tuple[int, ...] = ()  # where each line begins, if they do not follow one another
    times: tuple[float, ...] = ()  # when each line was written, by our clock, if that was asked for
    began: float = 0.0  # with times: nothing that this node sends later is older
    times_guessed: bool = False  # whether the times are no better than when the file was last written
    gone: tuple[int, int] | None = None  # what was dropped before these lines, to hold the limit on the log
    continues: bool = False  # whether the first is the rest of a long line, the last of the entry before

    @property
    def offsets(self) -> tuple[int, ...]:
        """Return where each line begins in the file, in bytes."""
        return self.line_offsets or tuple(accumulate(self.sizes[:-1], initial=self.offset))[: len(self.sizes)]

    def cut(self, lines: slice, gone: tuple[int, int] | None) -> LogLines:
        """Keep some of the lines, with what was dropped before them."""
        return replace(
            self,
            lines=self.lines[lines],
            sizes=self.sizes[lines],
            line_offsets=self.offsets[lines],
            times=self.times[lines],
            gone=gone,
            continues=self.continues and lines.start == 0,
        )


@dataclass(frozen=True)
class StateChange:
    """A node's part of the run has moved on."""

    node: str
    state: NodeState


@dataclass(frozen=True)
class NodeEvent:
    """One line of a node's events.jsonl."""

    node: str
    event: Untrusted


Update = LogLines | ReplacedLog | StateChange | NodeEvent | StreamEnd


class FollowParser:
    """Parses the frames of `follow` streams; remembers how far, so that a stream that was cut can be resumed."""

    def __init__(self, *, live: bool = True) -> None:
        self._live = live
        self.offsets: dict[str, dict[str, int]] = {}
        self.event_offsets: dict[str, int] = {}
        self.positioned: set[str] = set()  # nodes that have reported where the requested tails begin
        self.clock_offsets: dict[str, float] = {}  # each node's clock minus ours, in seconds
        self._node_ranks: dict[str, dict[int, NodeRank | None]] = {}  # of nodes, by attempt
        self._replaced: set[ReplacedLog] = set()
        self._line_open: dict[str, set[str]] = {}  # by node, the files of which a line was sent in part

    def parse(self, node: str, header: Untrusted, body: bytes) -> Iterator[Update]:
        """Yield the updates of one frame; MalformedError if it is not a frame of `follow`."""
        if "state" in header:
            state = parse_state(header.record("state"))
            earlier = {attempt.number: attempt.node_rank for attempt in state.attempts}
            self._node_ranks[node] = {**earlier, state.attempt: state.node_rank}
            yield StateChange(node, state)
        elif "events" in header:
            self.event_offsets[node] = _required_integer(header, "events")
            yield from (NodeEvent(node, event) for event in _parse_events(body))
        elif "positions" in header:
            known = self.offsets.setdefault(node, {})
            known.update(header.named_integers("positions", MAX_FILES))
            self.positioned.add(node)
        elif "replaced_by" in header:
            yield from self._parse_replaced(node, header)
        elif "log" in header:
            yield self._parse_log(node, header, body)

    def _parse_replaced(self, node: str, header: Untrusted) -> Iterator[ReplacedLog]:
        """Yield it once: every stream that is opened again reports it again."""
        replaced = parse_replaced(node, header)
        if replaced is not None and replaced not in self._replaced and len(self._replaced) < MAX_FILES:
            self._replaced.add(replaced)
            yield replaced

    def _parse_log(self, node: str, header: Untrusted, body: bytes) -> LogLines:
        file, offset = header.text("log", MAX_PATH_LENGTH), _required_integer(header, "offset")
        next_offset = header.integer("next", 0, MAX_BYTES)
        offsets = self.offsets.setdefault(node, {})
        if len(offsets) >= MAX_FILES and file not in offsets:
            raise MalformedError("more log files than a run has")
        continues = self._continues(node, file, offset, body)
        offsets[file] = offset + len(body) if next_offset is None else next_offset
        raw_lines = body.split(b"\n")
        if raw_lines[-1] == b"":
            raw_lines.pop()
        entry = LogLines(
            node=node,
            rank=parse_rank(header),
            stream=header.one_of("stream", tasks.STREAMS),
            file=file,
            offset=offset,
            time=time.time() if self._live else None,
            lines=tuple(line.decode("utf-8", "replace") for line in raw_lines),
            sizes=tuple(len(line) + 1 for line in raw_lines),
            initial_size=header.count("before", MAX_BYTES),
            node_rank=self._node_ranks.get(node, {}).get(attempt_of(file)),
            written_at=header.moment("written"),
            line_offsets=header.integers("places", len(raw_lines), 0, MAX_BYTES),
            times_guessed=header.flag("guessed"),
            gone=_parse_dropped(header),
            continues=continues,
        )
        if len(entry.line_offsets) not in (0, len(entry.lines)):
            raise MalformedError("lines without a place")
        if entry.line_offsets[:1] not in ((), (offset,)):  # lines that were searched for, from further on
            entry = replace(entry, continues=False)
        return self._with_times(entry, header) if header.length("time_marks") else entry

    def _continues(self, node: str, file: str, offset: int, body: bytes) -> bool:
        """Return whether these are the bytes after a piece of a line; notes whether they end with one."""
        open_files = self._line_open.setdefault(node, set())
        continues = file in open_files and offset == self.offsets[node].get(file)
        if body.endswith(b"\n"):
            open_files.discard(file)
        elif body:
            open_files.add(file)
        return continues

    def _with_times(self, entry: LogLines, header: Untrusted) -> LogLines:
        clock_offset = self.clock_offsets.get(entry.node, 0.0)
        rows = header.rows("time_marks", MAX_TIME_MARKS)
        pairs = [(row.integer(0, 0, MAX_BYTES), row.number(1, 0.0, MAX_TIME)) for row in rows]
        marks = [
            (offset, moment - clock_offset)
            for offset, moment in pairs
            if offset is not None and moment is not None
        ]
        if not marks:
            raise MalformedError("times of lines that are none")
        marks.sort(key=lambda mark: mark[0])
        ends = [offset + size for offset, size in zip(entry.offsets, entry.sizes, strict=True)]
        return replace(entry, times=tuple(interpolate_times(marks, ends)), began=marks[0][1])


def _parse_events(body: bytes) -> Iterator[Untrusted]:
    for line in body.splitlines():
        with suppress(MalformedError):  # of a disk that was full while it was written
            yield parse_object(line)


def _required_integer(header: Untrusted, key: str) -> int:
    value = header.integer(key, 0, MAX_BYTES)
    if value is None:
        raise MalformedError(f"no {key}")
    return value


def _parse_dropped(header: Untrusted) -> tuple[int, int] | None:
    dropped = header.integers("gone", 2, 0, MAX_BYTES)
    return (dropped[0], dropped[1]) if len(dropped) == 2 and dropped[0] <= dropped[1] else None


FIRST_PAUSE = 0.25  # seconds before a cut stream is opened again; doubled each time that fails


class NodeStreams(Streams[Update]):
    """The `follow` streams of a run; each resumes at the byte it had."""

    def __init__(
        self,
        run: tasks.RunHandle,
        request: FollowChoice,
        *,
        notice: Callable[[str], None],
        longest_pause: float,
        clocks: Mapping[str, float] | None = None,
        offsets: Mapping[str, Mapping[str, int]] | None = None,
    ) -> None:
        """Send `request` to every node; `clocks` are the nodes' clocks minus ours, as far as they are known.

        `offsets` are where to go on in each node's files, where something of them was read before.
        """
        self._run, self._base_request = run, request
        self._notice = notice
        self._parser = FollowParser(live=bool(request.get("follow", True)))
        self._parser.clock_offsets.update(clocks or {})
        for name, file_offsets in (offsets or {}).items():
            self._parser.offsets[name] = dict(file_offsets)
            self._parser.positioned.add(name)
        super().__init__(
            run.nodes,
            self._open_stream,
            self._parser.parse,
            pauses=(FIRST_PAUSE, longest_pause),
            is_new=lambda update: not isinstance(update, StateChange),  # each new stream begins with one
        )
        self._measured: set[str] = set()  # whose clock is known as well as it can be
        self.broke_at: dict[str, float] = {}  # since when each node's stream is broken

    @property
    def offsets(self) -> Mapping[str, Mapping[str, int]]:
        """How far each node's files have been read, in bytes."""
        return self._parser.offsets

    def reopen(self, name: str, error: ClusterctlError | None) -> None:
        """Open a stream again after a pause that grows; the first time a notice reports that the connection broke."""
        if name not in self.broke_at:
            self.broke_at[name] = time.monotonic()
            why = error.message if error else tr("the stream ended before the run")
            if name in self.last_received:
                self._notice(tr("{node}: connection lost ({why}); reconnecting", node=name, why=why))
            else:
                self._notice(tr("{node}: no answer yet ({why}); retrying", node=name, why=why))
        super().reopen(name, error)

    def updates(self, wait: float, only: str | None = None) -> Iterator[Update]:
        """Yield what arrives within `wait` seconds; `only` leaves the other nodes unread, so that they wait."""
        for update in super().updates(wait, only):
            if not isinstance(update, StreamEnd) and self.broke_at.pop(update.node, None) is not None:
                self._notice(tr("{node}: reconnected; the output continues", node=update.node))
            yield update

    def _open_stream(self, node: Node, stale: bool) -> Session:
        if stale:
            self._run.cluster.forget(node)  # it may look alive and be dead
        c = self._run.cluster.connection(node)
        request = self._build_request(node.name)
        stream: Session = tasks.follow(c, node, self._run.interpreters[node.name], self._run.run_id, request)
        if request.get("clock"):
            self._parser.clock_offsets[node.name] = measure_clock(stream)
            self._measured.add(node.name)
        return stream

    def _build_request(self, name: str) -> FollowChoice:
        """Request what follows the bytes that were received; a tail is measured only once, at the beginning."""
        parser = self._parser
        request: FollowChoice = {"follow": True, **self._base_request}
        if name in self._measured:
            del request["clock"]  # once is enough, and lines of one file must never be judged by two clocks
        if request["events"] is not None:
            request["events"] = parser.event_offsets.get(name, 0)
        if request["logs"] is not None:
            tail = None if name in parser.positioned else request["logs"].get("tail")
            offsets = dict(parser.offsets.get(name, {}))
            logs: LogChoice = {**request["logs"], "offsets": offsets, "tail": tail}
            request["logs"] = logs
            moment = logs.get("moment")
            if moment is not None and "clock" not in request:  # else the node measures its clock first
                logs["moment"] = moment + parser.clock_offsets.get(name, 0.0)
            if offsets and request["follow"] and logs.get("attempt") is None:
                # what an attempt wrote while we were disconnected is requested too
                first = min(map(attempt_of, offsets))
                logs["since"] = min(first, logs.get("since") or first)
        return request
