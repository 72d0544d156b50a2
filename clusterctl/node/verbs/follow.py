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
from typing import Any, Dict, List, Optional

from ..logs.activity import Pulses
from ..logs.lines import Grep, LineReader, tail_position
from ..logs.reader import InOrder, Log, Parcel, logs_since
from ..runtime.stream import Stream, VerbError
from ..state.run_record import FINAL, State, find_run, lingers, mark_stopped, resolve, with_record

LOOK = 0.05  # seconds between looks at the files
JUDGE = 1.0  # seconds between looks at whether agent and guardian live
BEAT = 2.0
CLIENT_LIMIT = 60.0  # seconds without a sign of the client
QUIET = (
    "SUCCEEDED",
    "CANCELLED",
    "TIMEOUT",
)  # after which torchrun has nothing to say that a rank has not said

Request = Dict[str, Any]


def run(request: Request, stream: Stream) -> None:
    """Send what there is, then what comes, until the run has ended or the client is gone."""
    stream.patience = CLIENT_LIMIT
    if request.get("clock"):
        ahead, wish = show_clock(stream), request.get("logs") or {}
        if wish.get("moment") is not None:
            wish["moment"] += ahead
    Follower(find_run(request["workdir"], request["run"], request["node"]), request, stream).run()


class Follower:
    """Everything of one run that a client wants to see."""

    def __init__(self, rundir: str, request: Request, stream: Stream) -> None:
        self._rundir = rundir
        self._wish: Dict[str, Any] = request.get("logs") or {}
        self._stream = stream
        self._follow = bool(request["follow"])
        self._grep = grep_of(self._wish.get("grep"))
        self._logs: Dict[str, Log] = {}
        self._wants_logs = request.get("logs") is not None
        self._events: Optional[LineReader] = None
        if request.get("events") is not None:
            self._events = LineReader(os.path.join(rundir, "events.jsonl"), int(request["events"]))
        self._pulses = Pulses(rundir, request.get("pulse"))
        self._state: Optional[State] = None
        self._stamp = 0
        self._judged = self._heard = self._sent = time.monotonic()

    def run(self) -> None:
        """Serve."""
        state = self._look_at_state(first=True)
        self._find_logs(state, tail=self._wish.get("tail"))
        if self._wish.get("tail") is not None:
            self._send({"positions": {log.file: log.reader.position for log in self._logs.values()}})
        if self._wish.get("ordered") and not self._follow:
            self._send_in_order(state)
            return
        while True:
            self._tick()
            final = state["state"] in FINAL
            moved = self._send_events() + self._send_logs(state)
            over = (final and not self._waits_for_gang(state)) or self._asks_for_earlier(state)
            if not moved and (over or not self._follow):
                return
            if not moved:
                self._wait()
            state = self._look_at_state()
            self._find_logs(state, tail=None)

    def _wait(self) -> None:
        """Sleep until the next look."""
        poller = select.poll()
        poller.register(self._stream, select.POLLIN)
        poller.poll(LOOK * 1000)

    def _tick(self) -> None:
        """Tell the client that we are at work; BrokenPipeError if it has left or says nothing any more."""
        now = time.monotonic()
        for _ in self._stream.arrived():
            self._heard = now
        if self._stream.ended or now - self._heard > CLIENT_LIMIT:
            raise BrokenPipeError("the client has left")
        if now - self._sent > BEAT:
            self._send({"beat": int(now)})

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
            log.begin(self._wish)
            if not self._follow:
                log.reader.limit = log.before
            offset = (self._wish.get("offsets") or {}).get(log.file)
            if offset is not None:
                log.reader.position = int(offset)
            elif tail is not None:
                path, limit = log.reader.path, log.reader.limit
                begin = tail_position(path, tail, self._grep, last, self._tick, limit)
                log.reader.position = max(log.reader.position, begin)
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
        ranks = [log for log in self._logs.values() if log.rank is not None]
        moved = [self._send_log(log, self._is_left(log, state)) for log in ranks]
        if not any(moved) and self._torchrun_may_speak():
            moved = [self._send_log(log, self._is_left(log, state)) for log in self._torchruns(state)]
        return any(moved)

    def _torchruns(self, state: State) -> List[Log]:
        wanted = self._wish.get("attempt") or state["attempt"]
        return [log for log in self._logs.values() if log.rank is None and log.attempt == wanted]

    def _is_left(self, log: Log, state: State) -> bool:
        """Whether nobody writes to a log any more."""
        return bool(log.attempt < state["attempt"] or state["state"] in FINAL)

    def _send_log(self, log: Log, last: bool) -> bool:
        parcel = log.parcel(self._grep, last)
        if parcel is not None:
            self._send_parcel(parcel)
        return parcel is not None

    def _send_in_order(self, state: State) -> None:
        """Send all that there is, the oldest lines first."""
        logs = [log for log in self._logs.values() if log.rank is not None]
        logs += self._torchruns(state) if self._torchrun_may_speak() else []
        InOrder(logs, self._grep, lambda log: self._is_left(log, state), self._tick).send(self._send_parcel)

    def _send_parcel(self, parcel: Parcel) -> None:
        if parcel.body or "gone" in parcel.header:
            self._send(parcel.header, parcel.body)

    def _torchrun_may_speak(self) -> bool:
        state = self._state or {}
        if self._wish.get("torchrun") or not state.get("ranks") or self._wish.get("attempt"):
            return True
        return state["state"] in FINAL and state["state"] not in QUIET

    def _send(self, header: Dict[str, Any], body: bytes = b"") -> None:
        began = time.monotonic()
        self._stream.send(header, body)
        self._sent = time.monotonic()
        if self._sent - began > BEAT:
            self._heard = self._sent  # it took what it did not take before: it is there


def show_clock(stream: Stream) -> float:
    """Say what time it is here as often as the client asks; gives how far ahead of its clock ours is at least."""
    while True:
        frame = stream.receive(CLIENT_LIMIT)
        if frame is None or "begin" in frame[0]:
            return float(frame[0].get("ahead", 0.0)) if frame is not None else 0.0
        if "ask" in frame[0]:
            stream.send({"clock": time.time()})


def grep_of(pattern: Optional[str]) -> Optional[Grep]:
    """Compile what `grep` asks for; VerbError if it is no regular expression."""
    if pattern is None:
        return None
    try:
        return Grep(pattern)
    except re.error as error:
        raise VerbError("CC-USE-026", f"not a regular expression: {pattern!r}: {error}") from None
