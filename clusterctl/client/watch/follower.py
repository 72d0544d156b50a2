"""One `follow` stream per node: opened, reopened, read in one loop."""

from __future__ import annotations

import random
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING

from clusterctl.client.rpc import tasks
from clusterctl.client.rpc.fanout import run_on
from clusterctl.client.rpc.session import Session
from clusterctl.client.rpc.tasks import measure_clock
from clusterctl.errors import ClusterctlError, ConnectError, ConnectionLost, HostKeyError, NodeError
from clusterctl.plans.runs.gang_record import attempt_of
from clusterctl.plans.runs.state import NodeState, parse_state
from clusterctl.protocol.end_record import parse_rank
from clusterctl.protocol.ranks import NodeRank, Rank
from clusterctl.protocol.untrusted import LATEST, MalformedError, Untrusted, parse_object
from clusterctl.specs.inventory.model import Node

if TYPE_CHECKING:
    from clusterctl.protocol.messages.verbs import FollowChoice, LogChoice

TimeMark = tuple[int, float]  # so many bytes had been written by then


def interpolate_times(marks: Sequence[TimeMark], offsets: Iterable[int]) -> Iterator[float]:
    """Give the time of each place, which come in order; at least one knot is known."""
    index = 0
    for offset in offsets:
        while index < len(marks) - 1 and marks[index][0] < offset:
            index += 1
        high, later = marks[index]
        low, earlier = marks[max(0, index - 1)]
        exact = index == 0 or offset >= high or high == low
        yield later if exact else earlier + (later - earlier) * (offset - low) / (high - low)


SILENCE_LIMIT = 20.0  # a node says something at least every 2 s; ten times that is a dead connection
HEARTBEAT_INTERVAL = 5.0
CHECK_INTERVAL = 1.0
MAX_FILES = 10_000  # logs of one node, of all attempts
MAX_BYTES = 1 << 62  # of a file
MAX_TIME_MARKS = 10_000
MAX_PATH_LENGTH = 1000  # characters of a path below a run's directory


@dataclass(frozen=True)
class LogLines:
    """Complete lines of one file; `sizes` counts each line's bytes in the file, its newline included."""

    node: str
    rank: Rank | None
    stream: str
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

    @property
    def offsets(self) -> tuple[int, ...]:
        """Give where each line begins in the file, in bytes."""
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


@dataclass(frozen=True)
class StreamEnd:
    """A node's stream is over; `error` says why if it was cut."""

    node: str
    error: ClusterctlError | None


Update = LogLines | StateChange | NodeEvent | StreamEnd


class Follower:
    """Reads the follow sessions of many nodes; remembers offsets, so that a cut stream can be resumed."""

    def __init__(self, *, live: bool = True) -> None:
        self._live = live
        self._sessions: dict[str, Session] = {}
        self._selector = selectors.DefaultSelector()
        self._unread: set[str] = set()
        self._last_beat = self._last_check = time.monotonic()
        self.offsets: dict[str, dict[str, int]] = {}
        self.event_offsets: dict[str, int] = {}
        self.positioned: set[str] = set()  # nodes that have said where the wanted tails begin
        self.last_received: dict[str, float] = {}  # when each node last said anything, beats included
        self.clock_offsets: dict[str, float] = {}  # each node's clock minus ours, in seconds
        self._wakeup_writer, self._wakeup_reader = socket.socketpair()
        self._wakeup_reader.setblocking(False)
        self._selector.register(self._wakeup_reader, selectors.EVENT_READ, None)
        self._node_ranks: dict[str, dict[int, NodeRank | None]] = {}  # of nodes, by attempt

    def add(self, node: str, session: Session) -> None:
        """Begin to read a node's stream."""
        self._sessions[node] = session
        self._selector.register(session, selectors.EVENT_READ, node)

    def wake(self) -> None:
        """Let `updates` return now; from any thread."""
        with suppress(OSError):
            self._wakeup_writer.send(b".")

    @property
    def open(self) -> bool:
        """Tell whether any stream is still open."""
        return bool(self._sessions)

    def is_reading(self, node: str) -> bool:
        """Tell whether a node's stream is still open."""
        return node in self._sessions

    def updates(self, wait: float, only: str | None = None) -> Iterator[Update]:
        """Give what arrives within `wait` seconds, early when something came; `only` leaves other nodes unread."""
        if only is not None:
            self._pause_others(only)
        ready = {key.data for key, _ in self._selector.select(wait)}
        if None in ready:
            self._wakeup_reader.recv(512)
        for node in [name for name in self._sessions if name in ready]:
            yield from self._read(node)
        yield from self._keep_alive(only)

    def _pause_others(self, node: str) -> None:
        for name, session in self._sessions.items():
            if name != node and name not in self._unread:
                self._selector.unregister(session)
                self._unread.add(name)
        if node in self._unread:
            self._selector.register(self._sessions[node], selectors.EVENT_READ, node)
            self._unread.discard(node)

    def close(self) -> None:
        """Leave all streams; the runs go on."""
        for node in list(self._sessions):
            self._close_session(node)
        self._selector.close()
        self._wakeup_writer.close()
        self._wakeup_reader.close()

    def _read(self, node: str) -> Iterator[Update]:
        session = self._sessions[node]
        try:
            for header, body in session.pump():
                self.last_received[node] = time.monotonic()
                yield from self._parse(node, header, body)
        except ClusterctlError as error:
            self._close_session(node)
            yield StreamEnd(node, error)
        except MalformedError as error:
            self._close_session(node)
            yield StreamEnd(node, _malformed_error(node, str(error)))
        else:
            if session.ended:
                self._close_session(node)
                yield StreamEnd(node, None)

    def _keep_alive(self, only: str | None) -> Iterator[Update]:
        """Take notice of nodes that have been silent for too long; tell every node that we are here."""
        now = time.monotonic()
        beat_due, check_due = (
            now - self._last_beat >= HEARTBEAT_INTERVAL,
            now - self._last_check >= CHECK_INTERVAL,
        )
        self._last_beat, self._last_check = (
            now if beat_due else self._last_beat,
            now if check_due else self._last_check,
        )
        for node, session in list(self._sessions.items()) if beat_due or check_due else ():
            try:
                if only in (None, node):
                    session.check_silence(SILENCE_LIMIT)
                if beat_due:
                    session.send_heartbeat()
            except ClusterctlError as error:
                self._close_session(node)
                yield StreamEnd(node, error)

    def _close_session(self, node: str) -> None:
        session = self._sessions.pop(node)
        if node in self._unread:
            self._unread.discard(node)  # its next stream is another one
        else:
            self._selector.unregister(session)
        session.close()

    def _parse(self, node: str, header: Untrusted, body: bytes) -> Iterator[Update]:
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
        elif "log" in header:
            yield self._parse_log(node, header, body)

    def _parse_log(self, node: str, header: Untrusted, body: bytes) -> LogLines:
        file, offset = header.text("log", MAX_PATH_LENGTH), _required_integer(header, "offset")
        next_offset = header.integer("next", 0, MAX_BYTES)
        offsets = self.offsets.setdefault(node, {})
        if len(offsets) >= MAX_FILES and file not in offsets:
            raise MalformedError("more log files than a run has")
        offsets[file] = offset + len(body) if next_offset is None else next_offset
        raw_lines = body.split(b"\n")
        if raw_lines[-1] == b"":
            raw_lines.pop()
        entry = LogLines(
            node=node,
            rank=parse_rank(header),
            stream=header.one_of("stream", ("stdout", "stderr")),
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
        )
        if len(entry.line_offsets) not in (0, len(entry.lines)):
            raise MalformedError("lines without a place")
        return self._with_times(entry, header) if header.length("knots") else entry

    def _with_times(self, entry: LogLines, header: Untrusted) -> LogLines:
        clock_offset = self.clock_offsets.get(entry.node, 0.0)
        rows = header.rows("knots", MAX_TIME_MARKS)
        pairs = [(row.integer(0, 0, MAX_BYTES), row.number(1, 0.0, LATEST)) for row in rows]
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


def _malformed_error(node: str, reason: str) -> NodeError:
    message = f"the node sent what cannot be understood: {reason}"
    return NodeError(message, code="CC-RUN-035", node=node)


FIRST_PAUSE = 0.25  # seconds before a cut stream is opened again; doubled each time that fails
PROCESS_DIED_CODE = "CC-RUN-003"  # the stream's process on the node was killed: worth another try


class NodeStreams:
    """Opens a run's streams in threads of their own and reads them in one; resumes each at the byte it had."""

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
        """Ask for what `request` says; `clock_offsets` are the nodes' clocks minus ours, as far as they are known.

        `offsets` are where to go on in each node's files, where something of them was read before.
        """
        self._run, self._base_request = run, request
        self._nodes = {node.name: node for node in run.nodes}
        self._notice, self._longest_pause = notice, longest_pause
        self._follower = Follower(live=bool(request.get("follow", True)))
        self._follower.clock_offsets.update(clocks or {})
        for name, file_offsets in (offsets or {}).items():
            self._follower.offsets[name] = dict(file_offsets)
            self._follower.positioned.add(name)
        self._opened: deque[tuple[str, Session | None, ClusterctlError | None]] = deque()
        self._measured: set[str] = set()  # whose clock is known as well as it can be
        self.tries: dict[str, int] = {}  # how often in a row each node could not be heard
        self.broke_at: dict[str, float] = {}  # when each node that is not heard now fell away

    @property
    def offsets(self) -> Mapping[str, Mapping[str, int]]:
        """How far each node's files have been read, in bytes."""
        return self._follower.offsets

    @property
    def last_received(self) -> Mapping[str, float]:
        """When each node last said anything, beats included."""
        return self._follower.last_received

    def open_all(self) -> None:
        """Open every node's stream."""
        for node in self._nodes.values():
            self._start_opening(node)

    def reopen(self, name: str, error: ClusterctlError | None) -> None:
        """Open a stream again after a pause that grows; the first time it is said that the connection broke."""
        if name not in self.broke_at:
            self.broke_at[name] = time.monotonic()
            what = error.message if error else "the stream ended before the run"
            broke = "the connection broke" if name in self.last_received else "no answer yet"
            self._notice(f"{name}: {broke} ({what}); trying to come back")
        tries = self.tries[name] = self.tries.get(name, 0) + 1
        longest = min(self._longest_pause, FIRST_PAUSE * 2.0 ** min(tries - 1, 20))
        stale = isinstance(error, (ConnectError, ConnectionLost))
        self._start_opening(self._nodes[name], longest * random.uniform(0.5, 1.0), stale=stale)

    def updates(self, wait: float, only: str | None = None) -> Iterator[Update]:
        """Give what arrives within `wait` seconds; a stream that could not be opened ends as one that was cut.

        `only` leaves the other nodes unread, so that they wait.
        """
        while self._opened:
            name, stream, error = self._opened.popleft()
            if stream is None:
                yield StreamEnd(name, error)
            else:
                self._follower.add(name, stream)
        for update in self._follower.updates(wait, only):
            if not isinstance(update, StreamEnd):
                self._on_reconnected(update.node)
            yield update

    def close(self) -> None:
        """Leave all streams; the run goes on."""
        self._follower.close()

    def _on_reconnected(self, name: str) -> None:
        self.tries.pop(name, None)
        if self.broke_at.pop(name, None) is not None:
            self._notice(f"{name}: back; going on where the stream broke")

    def _start_opening(self, node: Node, pause: float = 0.0, *, stale: bool = False) -> None:
        threading.Thread(target=self._open, args=(node, pause, stale), daemon=True).start()

    def _open(self, node: Node, pause: float, stale: bool) -> None:
        time.sleep(pause)
        opened = run_on(node, lambda node: self._open_session(node, stale))
        self._opened.append((node.name, opened.value, opened.error))
        self._follower.wake()

    def _open_session(self, node: Node, stale: bool) -> Session:
        if stale:
            self._run.cluster.forget(node)  # it may look alive and be dead
        c = self._run.cluster.connection(node)
        request = self._build_request(node.name)
        stream: Session = tasks.follow(c, node, self._run.interpreters[node.name], self._run.run_id, request)
        if request.get("clock"):
            self._follower.clock_offsets[node.name] = measure_clock(stream)
            self._measured.add(node.name)
        return stream

    def _build_request(self, name: str) -> FollowChoice:
        """Ask for what follows on what was heard; a tail is measured only once, at the beginning."""
        follower = self._follower
        request: FollowChoice = {"follow": True, **self._base_request}
        if name in self._measured:
            del request["clock"]  # once is enough, and lines of one file must never be judged by two clocks
        if request["events"] is not None:
            request["events"] = follower.event_offsets.get(name, 0)
        if request["logs"] is not None:
            tail = None if name in follower.positioned else request["logs"].get("tail")
            offsets = dict(follower.offsets.get(name, {}))
            logs: LogChoice = {**request["logs"], "offsets": offsets, "tail": tail}
            request["logs"] = logs
            moment = logs.get("moment")
            if moment is not None and "clock" not in request:  # else the node learns how its clock goes
                logs["moment"] = moment + follower.clock_offsets.get(name, 0.0)
            if offsets and request["follow"] and logs.get("attempt") is None:
                # what an attempt wrote while we were away is wanted too
                first = min(map(attempt_of, offsets))
                logs["since"] = min(first, logs.get("since") or first)
        return request


def can_reconnect(error: ClusterctlError | None) -> bool:
    """Tell whether a stream that ended so is worth another try: the connection or its process broke, not the run."""
    if error is None or error.code == PROCESS_DIED_CODE:
        return True
    return isinstance(error, (ConnectError, ConnectionLost)) and not isinstance(error, HostKeyError)
