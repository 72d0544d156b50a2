"""The verb `follow`: state, events and log lines of a run, as they come or as they were.

What torchrun itself prints is kept back while ranks run and sent last: after a stop, and sometimes after a
success, it is a traceback that means nothing. A run that went well or was stopped sends none of it, unless
the request has {"logs": {"torchrun": true}}. Of a run that was started again the logs are those of the last attempt
and of what follows, unless {"logs": {"attempt": 1}} asks for those of an earlier one, or {"logs": {"since": 1}} for
those of all from one on.
"""

from __future__ import annotations

import os
import re
import select
import time
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

from .lines import Keep, LineReader, blocks_of, tail_position
from .pulse import Pulses
from .state import FINAL, State, find_run, lingers, mark_stopped, resolve, with_record
from .wire import Stream, VerbError

LOOK = 0.05  # seconds between looks at the files
JUDGE = 1.0  # seconds between looks at whether agent and guardian live
BEAT = 2.0
TRUSTED_AGE = 1.0  # seconds; a live file written longer ago has its time from the clock of a file server
CLIENT_LIMIT = 60.0  # seconds without a sign of the client
QUIET = (
    "SUCCEEDED",
    "CANCELLED",
    "TIMEOUT",
)  # after which torchrun has nothing to say that a rank has not said

Request = Dict[str, Any]


class Log(NamedTuple):
    """One file that is followed."""

    file: str
    rank: Optional[int]
    stream: str
    reader: LineReader
    attempt: int


def run(request: Request, stream: Stream) -> None:
    """Send what there is, then what comes, until the run has ended or the client is gone."""
    stream.patience = CLIENT_LIMIT
    Follower(find_run(request["workdir"], request["run"], request["node"]), request, stream).run()


class Follower:
    """Everything of one run that a client wants to see."""

    def __init__(self, rundir: str, request: Request, stream: Stream) -> None:
        self._rundir = rundir
        self._wish: Dict[str, Any] = request.get("logs") or {}
        self._stream = stream
        self._follow = bool(request["follow"])
        self._keep = keep_of(self._wish.get("grep"))
        self._logs: Dict[str, Log] = {}
        self._wants_logs = request.get("logs") is not None
        self._events: Optional[LineReader] = None
        if request.get("events") is not None:
            self._events = LineReader(os.path.join(rundir, "events.jsonl"), int(request["events"]))
        self._pulses = Pulses(rundir, request.get("pulse"))
        self._state: Optional[State] = None
        self._stamp = 0
        self._before: Dict[str, int] = {}  # how long each file was when we came
        self._judged = self._heard = self._sent = time.monotonic()

    def run(self) -> None:
        """Serve."""
        state = self._look_at_state(first=True)
        self._find_logs(state, tail=self._wish.get("tail"))
        self._before = {log.file: log.reader.size() for log in self._logs.values()}
        if self._wish.get("tail") is not None:
            self._send({"positions": {log.file: log.reader.position for log in self._logs.values()}})
        while True:
            final = state["state"] in FINAL
            moved = self._send_events() + self._send_logs(state)
            over = (final and not self._waits_for_gang(state)) or self._asks_for_earlier(state)
            if not moved and (over or not self._follow):
                return
            if not moved and not self._wait():
                return
            state = self._look_at_state()
            self._find_logs(state, tail=None)

    def _wait(self) -> bool:
        """Sleep until the next look; False if the client has left or says nothing any more."""
        poller = select.poll()
        poller.register(self._stream, select.POLLIN)
        if poller.poll(LOOK * 1000):
            for _ in self._stream.arrived():
                self._heard = time.monotonic()
        now = time.monotonic()
        if now - self._sent > BEAT:
            self._send({"beat": int(now)})
        return not self._stream.ended and now - self._heard < CLIENT_LIMIT

    def _look_at_state(self, first: bool = False) -> State:
        now = time.monotonic()
        if self._state is not None and not first and now - self._judged < JUDGE and not self._state_changed():
            return self._state
        self._judged = now
        state = resolve(self._rundir)
        if state is None:
            raise VerbError("CC-RUN-011", f"{self._rundir} holds no run any more")
        state = self._pulses.put_into(with_record(self._rundir, mark_stopped(state)))
        if state != self._state:
            self._send({"state": state})
        self._state = state
        return state

    def _asks_for_earlier(self, state: State) -> bool:
        return bool((self._wish.get("attempt") or state["attempt"]) < state["attempt"])

    def _waits_for_gang(self, state: State) -> bool:
        """Tell whether more will be known of the end: who follows events wants to hear of all nodes."""
        return self._events is not None and lingers(state)

    def _state_changed(self) -> bool:
        try:
            stamp = os.stat(os.path.join(self._rundir, "state.json")).st_mtime_ns
        except OSError:
            return True
        changed, self._stamp = stamp != self._stamp, stamp
        return changed

    def _find_logs(self, state: State, tail: Optional[int]) -> None:
        if not self._wants_logs:
            return
        last = state["state"] in FINAL or self._asks_for_earlier(state)
        for log in logs_since(self._rundir, state, self._wish):
            if log.file in self._logs or not os.path.exists(log.reader.path):
                continue
            offset = (self._wish.get("offsets") or {}).get(log.file)
            if offset is not None:
                log.reader.position = int(offset)
            elif tail is not None:
                log.reader.position = tail_position(log.reader.path, tail, self._keep, last)
            self._logs[log.file] = log

    def _send_events(self) -> bool:
        if self._events is None:
            return False
        _, lines = self._events.read()
        if lines:
            self._send({"events": self._events.position}, lines)
        return bool(lines)

    def _send_logs(self, state: State) -> bool:
        """Send what is new; the last line of a file that nobody writes to any more also without its end."""
        now = state["attempt"]
        last = now if state["state"] in FINAL else now - 1
        ranks = [log for log in self._logs.values() if log.rank is not None]
        moved = [self._send_log(log, log.attempt <= last) for log in ranks]
        if not any(moved) and self._torchrun_may_speak():
            wanted = self._wish.get("attempt") or now
            logs = [log for log in self._logs.values() if log.rank is None and log.attempt == wanted]
            moved = [self._send_log(log, log.attempt <= last) for log in logs]
        return any(moved)

    def _send_log(self, log: Log, last: bool) -> bool:
        block = log.reader.read(last)
        header: Dict[str, Any] = {"log": log.file, "rank": log.rank, "stream": log.stream}
        earlier = block[0] < self._before.get(log.file, 0)
        if earlier or 0 <= time.time() - log.reader.written < TRUSTED_AGE:
            header["written"] = log.reader.written
        if earlier and self._wish.get("tail") is not None:
            header["before"] = self._before[log.file]
        for start, lines in blocks_of(block, self._keep) if block[1] else ():
            self._send({**header, "offset": start}, lines)
        return bool(block[1])

    def _torchrun_may_speak(self) -> bool:
        state = self._state or {}
        if self._wish.get("torchrun") or not state.get("ranks") or self._wish.get("attempt"):
            return True
        return state["state"] in FINAL and state["state"] not in QUIET

    def _send(self, header: Dict[str, Any], body: bytes = b"") -> None:
        self._stream.send(header, body)
        self._sent = time.monotonic()


def keep_of(pattern: Optional[str]) -> Optional[Keep]:
    """Compile what `grep` asks for; VerbError if it is no regular expression."""
    if pattern is None:
        return None
    try:
        search = re.compile(pattern).search
    except re.error as error:
        raise VerbError("CC-USE-026", f"not a regular expression: {pattern!r}: {error}") from None
    return lambda line: search(line.decode("utf-8", "replace").rstrip("\r\n")) is not None


def logs_since(rundir: str, state: State, wish: Dict[str, Any]) -> Iterator[Log]:
    """Yield the files of every attempt from `since` on: one may have ended before anybody came to look."""
    for attempt in range(int(wish.get("since") or state["attempt"]), state["attempt"]):
        yield from logs_of(rundir, state, {**wish, "attempt": wish.get("attempt") or attempt})
    yield from logs_of(rundir, state, wish)


def logs_of(rundir: str, state: State, wish: Dict[str, Any]) -> Iterator[Log]:
    """Yield the files of the ranks and streams asked for; torchrun's own unless ranks are named."""
    ranks: Optional[List[int]] = wish.get("ranks")
    streams = wish.get("streams") or ["stdout", "stderr"]
    attempt = wish.get("attempt") or state["attempt"]
    if ranks is None and "stderr" in streams:
        file = f"attempt-{attempt}/torchrun.log"
        yield Log(file, None, "stderr", LineReader(os.path.join(rundir, file)), attempt)
    for rank, entry in ranks_of(state, attempt).items():
        for stream in streams:
            if entry[stream] is not None and (ranks is None or int(rank) in ranks):
                reader = LineReader(os.path.join(rundir, entry[stream]))
                yield Log(entry[stream], int(rank), stream, reader, attempt)


def ranks_of(state: State, attempt: int) -> Dict[str, Any]:
    """Return the ranks that this node had in an attempt, and where they wrote to."""
    if attempt == state["attempt"]:
        return dict(state["ranks"])
    earlier = (entry for entry in state.get("attempts") or () if entry.get("attempt") == attempt)
    return dict(next((entry.get("ranks") or {} for entry in earlier), {}))
