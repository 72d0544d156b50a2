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
from typing import Any

from clusterctl.client.rpc import tasks
from clusterctl.client.rpc.cluster import Cluster
from clusterctl.client.rpc.fanout import try_on
from clusterctl.client.rpc.session import Session
from clusterctl.client.rpc.tasks import measure_clock
from clusterctl.errors import ClusterctlError, ConnectError, ConnectionLost, HostKeyError, NodeError
from clusterctl.plans.runs.gang_record import attempt_of
from clusterctl.plans.runs.state import NodeState, parse_state
from clusterctl.protocol.end_record import MOST_RANK
from clusterctl.protocol.untrusted import LATEST, MalformedError, Untrusted, parse_object
from clusterctl.specs.inventory.model import Node

Knot = tuple[int, float]  # so many bytes had been written by then


def times_at(knots: Sequence[Knot], places: Iterable[int]) -> Iterator[float]:
    """Give the time of each place, which come in order; at least one knot is known."""
    number = 0
    for place in places:
        while number < len(knots) - 1 and knots[number][0] < place:
            number += 1
        high, later = knots[number]
        low, earlier = knots[max(0, number - 1)]
        known = number == 0 or place >= high or high == low
        yield later if known else earlier + (later - earlier) * (place - low) / (high - low)


SILENCE_LIMIT = 20.0  # a node says something at least every 2 s; ten times that is a dead connection
BEAT_EVERY = 5.0
LOOK_EVERY = 1.0
MOST_FILES = 10_000  # logs of one node, of all attempts
MOST_BYTES = 1 << 62  # of a file
MOST_KNOTS = 10_000
LONGEST_FILE = 1000  # characters of a path below a run's directory


@dataclass(frozen=True)
class LogLines:
    """Complete lines of one file; `sizes` counts each line's bytes in the file, its newline included."""

    node: str
    rank: int | None
    stream: str
    file: str
    offset: int
    time: float | None
    lines: tuple[str, ...]
    sizes: tuple[int, ...]
    written: float | None = None  # when the last was written, by the node's clock, if that can be trusted
    before: int = 0  # where a tail was asked for: how long the file was then
    node_rank: int | None = None  # of the node in the attempt that wrote it, where that is known
    places: tuple[int, ...] = ()  # where each line begins, if they do not follow one another
    times: tuple[float, ...] = ()  # when each line was written, by our clock, if that was asked for
    began: float = 0.0  # with times: nothing that this node sends later is older
    guessed: bool = False  # whether the times are no better than when the file was last written
    gone: tuple[int, int] | None = None  # what was dropped before these lines, to hold the limit on the log

    @property
    def offsets(self) -> tuple[int, ...]:
        """Give where each line begins in the file, in bytes."""
        return self.places or tuple(accumulate(self.sizes[:-1], initial=self.offset))[: len(self.sizes)]

    def cut(self, lines: slice, gone: tuple[int, int] | None) -> LogLines:
        """Keep some of the lines, with what was dropped before them."""
        return replace(
            self,
            lines=self.lines[lines],
            sizes=self.sizes[lines],
            places=self.offsets[lines],
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
        self._last_beat = self._last_look = time.monotonic()
        self.offsets: dict[str, dict[str, int]] = {}
        self.events: dict[str, int] = {}
        self.placed: set[str] = set()  # nodes that have said where the wanted tails begin
        self.heard: dict[str, float] = {}  # when each node last said anything, beats included
        self.clocks: dict[str, float] = {}  # each node's clock minus ours, in seconds
        self._bell, self._ear = socket.socketpair()
        self._ear.setblocking(False)
        self._selector.register(self._ear, selectors.EVENT_READ, None)
        self._ranks: dict[str, dict[int, int | None]] = {}  # of nodes, by attempt

    def add(self, node: str, session: Session) -> None:
        """Begin to read a node's stream."""
        self._sessions[node] = session
        self._selector.register(session, selectors.EVENT_READ, node)

    def wake(self) -> None:
        """Let `updates` return now; from any thread."""
        with suppress(OSError):
            self._bell.send(b".")

    @property
    def open(self) -> bool:
        """Tell whether any stream is still open."""
        return bool(self._sessions)

    def holds(self, node: str) -> bool:
        """Tell whether a node's stream is still open."""
        return node in self._sessions

    def updates(self, wait: float, only: str | None = None) -> Iterator[Update]:
        """Give what arrives within `wait` seconds, early when something came; `only` leaves other nodes unread."""
        if only is not None:
            self._watch_only(only)
        ready = {key.data for key, _ in self._selector.select(wait)}
        if None in ready:
            self._ear.recv(512)
        for node in [name for name in self._sessions if name in ready]:
            yield from self._read(node)
        yield from self._keep_alive(only)

    def _watch_only(self, node: str) -> None:
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
            self._drop(node)
        self._selector.close()
        self._bell.close()
        self._ear.close()

    def _read(self, node: str) -> Iterator[Update]:
        session = self._sessions[node]
        try:
            for header, body in session.pump():
                self.heard[node] = time.monotonic()
                yield from self._parse(node, header, body)
        except ClusterctlError as error:
            self._drop(node)
            yield StreamEnd(node, error)
        except MalformedError as error:
            self._drop(node)
            yield StreamEnd(node, _senseless(node, str(error)))
        else:
            if session.ended:
                self._drop(node)
                yield StreamEnd(node, None)

    def _keep_alive(self, only: str | None) -> Iterator[Update]:
        """Take notice of nodes that have been silent for too long; tell every node that we are here."""
        now = time.monotonic()
        beat, look = now - self._last_beat >= BEAT_EVERY, now - self._last_look >= LOOK_EVERY
        self._last_beat, self._last_look = now if beat else self._last_beat, now if look else self._last_look
        for node, session in list(self._sessions.items()) if beat or look else ():
            try:
                if only in (None, node):
                    session.check_silence(SILENCE_LIMIT)
                if beat:
                    session.beat()
            except ClusterctlError as error:
                self._drop(node)
                yield StreamEnd(node, error)

    def _drop(self, node: str) -> None:
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
            self._ranks[node] = {**earlier, state.attempt: state.node_rank}
            yield StateChange(node, state)
        elif "events" in header:
            self.events[node] = _need(header, "events")
            yield from (NodeEvent(node, event) for event in _parse_events(body))
        elif "positions" in header:
            known = self.offsets.setdefault(node, {})
            known.update(header.named_integers("positions", MOST_FILES))
            self.placed.add(node)
        elif "log" in header:
            yield self._parse_log(node, header, body)

    def _parse_log(self, node: str, header: Untrusted, body: bytes) -> LogLines:
        file, offset = header.text("log", LONGEST_FILE), _need(header, "offset")
        following = header.integer("next", 0, MOST_BYTES)
        offsets = self.offsets.setdefault(node, {})
        if len(offsets) >= MOST_FILES and file not in offsets:
            raise MalformedError("more log files than a run has")
        offsets[file] = offset + len(body) if following is None else following
        raw = body.split(b"\n")
        if raw[-1] == b"":
            raw.pop()
        entry = LogLines(
            node=node,
            rank=header.integer("rank", 0, MOST_RANK),
            stream=header.one_of("stream", ("stdout", "stderr")),
            file=file,
            offset=offset,
            time=time.time() if self._live else None,
            lines=tuple(line.decode("utf-8", "replace") for line in raw),
            sizes=tuple(len(line) + 1 for line in raw),
            before=header.count("before", MOST_BYTES),
            node_rank=self._ranks.get(node, {}).get(attempt_of(file)),
            written=header.moment("written"),
            places=header.integers("places", len(raw), 0, MOST_BYTES),
            guessed=header.flag("guessed"),
            gone=_read_gone(header),
        )
        if len(entry.places) not in (0, len(entry.lines)):
            raise MalformedError("lines without a place")
        return self._with_times(entry, header) if header.length("knots") else entry

    def _with_times(self, entry: LogLines, header: Untrusted) -> LogLines:
        ahead = self.clocks.get(entry.node, 0.0)
        rows = header.rows("knots", MOST_KNOTS)
        pairs = [(row.integer(0, 0, MOST_BYTES), row.number(1, 0.0, LATEST)) for row in rows]
        knots = [
            (place, moment - ahead) for place, moment in pairs if place is not None and moment is not None
        ]
        if not knots:
            raise MalformedError("times of lines that are none")
        knots.sort(key=lambda knot: knot[0])
        ends = [place + size for place, size in zip(entry.offsets, entry.sizes, strict=True)]
        return replace(entry, times=tuple(times_at(knots, ends)), began=knots[0][1])


def _parse_events(body: bytes) -> Iterator[Untrusted]:
    for line in body.splitlines():
        with suppress(MalformedError):  # of a disk that was full while it was written
            yield parse_object(line)


def _need(header: Untrusted, key: str) -> int:
    value = header.integer(key, 0, MOST_BYTES)
    if value is None:
        raise MalformedError(f"no {key}")
    return value


def _read_gone(header: Untrusted) -> tuple[int, int] | None:
    gone = header.integers("gone", 2, 0, MOST_BYTES)
    return (gone[0], gone[1]) if len(gone) == 2 and gone[0] <= gone[1] else None


def _senseless(node: str, why: str) -> NodeError:
    message = f"the node sent what cannot be understood: {why}"
    return NodeError(message, code="CC-RUN-035", node=node)


FIRST_PAUSE = 0.25  # seconds before a cut stream is opened again; doubled each time that fails
VERB_DIED = "CC-RUN-003"  # the stream's process on the node was killed: worth another try


class Streams:
    """Opens a run's streams in threads of their own and reads them in one; resumes each at the byte it had."""

    def __init__(
        self,
        cluster: Cluster,
        run: str,
        nodes: Iterable[Node],
        interpreters: Mapping[str, tasks.Interpreter],
        wish: Mapping[str, Any],
        *,
        notice: Callable[[str], None],
        longest_pause: float,
        clocks: Mapping[str, float] | None = None,
        offsets: Mapping[str, Mapping[str, int]] | None = None,
    ) -> None:
        """Ask for what `wish` says; `clocks` are the nodes' clocks minus ours, as far as they are known.

        `offsets` are where to go on in each node's files, where something of them was read before.
        """
        self._cluster, self._run, self._interpreters, self._wish = cluster, run, interpreters, wish
        self._nodes = {node.name: node for node in nodes}
        self._notice, self._longest_pause = notice, longest_pause
        self._follower = Follower(live=bool(wish.get("follow", True)))
        self._follower.clocks.update(clocks or {})
        for name, known in (offsets or {}).items():
            self._follower.offsets[name] = dict(known)
            self._follower.placed.add(name)
        self._opened: deque[tuple[str, Session | None, ClusterctlError | None]] = deque()
        self._measured: set[str] = set()  # whose clock is known as well as it can be
        self.tries: dict[str, int] = {}  # how often in a row each node could not be heard
        self.broke_at: dict[str, float] = {}  # when each node that is not heard now fell away

    @property
    def offsets(self) -> Mapping[str, Mapping[str, int]]:
        """How far each node's files have been read, in bytes."""
        return self._follower.offsets

    @property
    def heard(self) -> Mapping[str, float]:
        """When each node last said anything, beats included."""
        return self._follower.heard

    def open_all(self) -> None:
        """Open every node's stream."""
        for node in self._nodes.values():
            self._begin(node)

    def reopen(self, name: str, error: ClusterctlError | None) -> None:
        """Open a stream again after a pause that grows; the first time it is said that the connection broke."""
        if name not in self.broke_at:
            self.broke_at[name] = time.monotonic()
            what = error.message if error else "the stream ended before the run"
            broke = "the connection broke" if name in self.heard else "no answer yet"
            self._notice(f"{name}: {broke} ({what}); trying to come back")
        tries = self.tries[name] = self.tries.get(name, 0) + 1
        longest = min(self._longest_pause, FIRST_PAUSE * 2.0 ** min(tries - 1, 20))
        stale = isinstance(error, (ConnectError, ConnectionLost))
        self._begin(self._nodes[name], longest * random.uniform(0.5, 1.0), stale=stale)

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
                self._welcome(update.node)
            yield update

    def close(self) -> None:
        """Leave all streams; the run goes on."""
        self._follower.close()

    def _welcome(self, name: str) -> None:
        self.tries.pop(name, None)
        if self.broke_at.pop(name, None) is not None:
            self._notice(f"{name}: back; going on where the stream broke")

    def _begin(self, node: Node, pause: float = 0.0, *, stale: bool = False) -> None:
        threading.Thread(target=self._open, args=(node, pause, stale), daemon=True).start()

    def _open(self, node: Node, pause: float, stale: bool) -> None:
        time.sleep(pause)
        opened = try_on(node, lambda node: self._reach(node, stale))
        self._opened.append((node.name, opened.value, opened.error))
        self._follower.wake()

    def _reach(self, node: Node, stale: bool) -> Session:
        if stale:
            self._cluster.forget(node)  # it may look alive and be dead
        c = self._cluster.connection(node)
        request = self._request(node.name)
        stream: Session = tasks.follow(c, node, self._interpreters[node.name], self._run, request)
        if request.get("clock"):
            self._follower.clocks[node.name] = measure_clock(stream)
            self._measured.add(node.name)
        return stream

    def _request(self, name: str) -> dict[str, Any]:
        """Ask for what follows on what was heard; a tail is measured only once, at the beginning."""
        known = self._follower
        request: dict[str, Any] = {"follow": True, **self._wish}
        if name in self._measured:
            del request["clock"]  # once is enough, and lines of one file must never be judged by two clocks
        if request["events"] is not None:
            request["events"] = known.events.get(name, 0)
        if request["logs"] is not None:
            tail = None if name in known.placed else request["logs"].get("tail")
            offsets = dict(known.offsets.get(name, {}))
            request["logs"] = {**request["logs"], "offsets": offsets, "tail": tail}
            moment = request["logs"].get("moment")
            if moment is not None and "clock" not in request:  # else the node learns how its clock goes
                request["logs"]["moment"] = moment + known.clocks.get(name, 0.0)
            if offsets and request["follow"] and request["logs"].get("attempt") is None:
                first = min(
                    map(attempt_of, offsets)
                )  # what an attempt wrote while we were away is wanted too
                request["logs"]["since"] = min(first, request["logs"].get("since") or first)
        return request


def may_return(error: ClusterctlError | None) -> bool:
    """Tell whether a stream that ended so is worth another try: the connection or its process broke, not the run."""
    if error is None or error.code == VERB_DIED:
        return True
    return isinstance(error, (ConnectError, ConnectionLost)) and not isinstance(error, HostKeyError)
