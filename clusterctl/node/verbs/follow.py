"""The verb `follow`: state, events and log lines of a run, as they come or as they were.

What torchrun itself prints is kept back until the ranks have ended: after a stop, and sometimes a success, it is a
traceback that means nothing. A run that went well or was stopped sends none of it, unless the request has
{"logs": {"torchrun": true}}. The logs are those of the last attempt and of later ones, unless {"logs": {"attempt": 1}}
asks for one attempt, or {"logs": {"since": 1}} for all from one on.
"""

from __future__ import annotations

import os
import re
import select
import time
from typing import TYPE_CHECKING, Dict, List, Optional

from ...protocol.frames import BEAT_INTERVAL
from ...protocol.run_paths import RunPaths
from ...protocol.states import FINAL, LOST, STOPPED, SUCCEEDED, TIMEOUT
from ...protocol.untrusted import Untrusted
from ..logs.activity import ActivityReader
from ..logs.lines import LineReader
from ..logs.reader import Grep, Log, in_time_order, logs_since, tail_position
from ..runtime.stream import Stream, VerbError
from ..state.run_files import find_run
from ..state.run_record import is_lingering, resolve_state, with_leftovers, with_record, with_stop
from ..state.watchers import mark_halted

if TYPE_CHECKING:
    from ...protocol.messages.files import State
    from ...protocol.messages.verbs import FollowRequest, LogChoice, NodeFrame

POLL_INTERVAL = 0.05  # seconds between looks at the files
STATE_INTERVAL = 1.0  # seconds between looks at whether agent and guardian live
LEFTOVERS_LIMIT = 5.0  # seconds in which the processes of a LOST run may end by themselves
CLIENT_LIMIT = 60.0  # seconds without a sign of the client
NO_TORCHRUN_LOG = (SUCCEEDED, STOPPED, TIMEOUT)  # its log adds nothing to those of the ranks


def run(request: FollowRequest, stream: Stream) -> None:
    """Send what there is, then what comes, until the run has ended or the client is gone."""
    stream.send_timeout = CLIENT_LIMIT
    if request.get("clock"):
        ahead, log_request = answer_clock(stream), request.get("logs")
        moment = log_request.get("moment") if log_request else None
        if log_request and moment is not None:
            log_request["moment"] = moment + ahead
    RunFollower(find_run(request["workdir"], request["run"], request["node"]), request, stream).run()


class RunFollower:
    """Everything of one run that a client wants to see."""

    def __init__(self, rundir: str, request: FollowRequest, stream: Stream) -> None:
        self._rundir = rundir
        self._log_request: LogChoice = request.get("logs") or {}
        self._stream = stream
        self._follow = bool(request["follow"])
        self._grep = compile_grep(self._log_request.get("grep"))
        self._logs: Dict[str, Log] = {}
        self._has_logs = request.get("logs") is not None
        self._events: Optional[LineReader] = None
        position = request.get("events")
        if position is not None:
            self._events = LineReader(RunPaths(rundir).events, position)
        self._activity = ActivityReader(rundir, request.get("activity"))
        self._state: Optional[State] = None
        self._state_mtime = 0
        self._lost_at = 0.0
        self._state_read_at = self._last_received = time.monotonic()

    def run(self) -> None:
        """Serve."""
        state = self._read_state()
        self._find_logs(state, tail=self._log_request.get("tail"))
        if self._log_request.get("tail") is not None:
            self._send({"positions": {log.file: log.reader.position for log in self._logs.values()}})
        if self._log_request.get("ordered") and not self._follow:
            self._send_in_order(state)
            return
        while True:
            self._tick()
            final = state["state"] in FINAL
            sent_any = self._send_events() + self._send_logs(state)
            finished = (final and not self._waits_for_gang(state)) or self._is_earlier_attempt(state)
            if not sent_any and (finished or not self._follow):
                return
            if not sent_any:
                select.select([self._stream], [], [], POLL_INTERVAL)
            state = self._read_state()
            self._find_logs(state, tail=None)

    def _tick(self) -> None:
        """Send the client a beat when one is due; BrokenPipeError if it has left or is silent."""
        now = time.monotonic()
        for _ in self._stream.read_available():
            self._last_received = now
        if self._stream.ended or now - self._last_received > CLIENT_LIMIT:
            raise BrokenPipeError("the client has left")
        self._stream.beat()

    def _read_state(self) -> State:
        now = time.monotonic()
        if (
            self._state is not None
            and now - self._state_read_at < STATE_INTERVAL
            and not self._state_changed()
        ):
            return self._state
        self._state_read_at = now
        state = self._resolve_state()
        if state is None:
            raise VerbError("CC-RUN-011", f"{self._rundir} no longer holds a run")
        if state != self._state:
            self._send({"state": state})
        self._state = state
        return state

    def _resolve_state(self) -> Optional[State]:
        """Return the state with all that is known of it here; None if there is no run any more."""
        state = resolve_state(self._rundir)
        if state is None:
            return None
        return self._activity.add_to(
            with_record(self._rundir, mark_halted(with_stop(self._rundir, with_leftovers(state))))
        )

    def _is_lingering(self, state: State) -> bool:
        """Whether this part has ended, and its agent waits for the others."""
        return is_lingering(state)

    def _is_earlier_attempt(self, state: State) -> bool:
        return bool((self._log_request.get("attempt") or state["attempt"]) < state["attempt"])

    def _waits_for_gang(self, state: State) -> bool:
        """Return whether more of the end will be known: who follows events is sent all nodes' parts."""
        return self._events is not None and (self._is_lingering(state) or self._waits_for_leftovers(state))

    def _waits_for_leftovers(self, state: State) -> bool:
        """Return whether processes of a LOST run may be about to end: torchrun ends when its agent is gone."""
        if state["state"] != LOST or not state["left"] or not self._follow:
            return False
        self._lost_at = self._lost_at or time.monotonic()
        return time.monotonic() - self._lost_at < LEFTOVERS_LIMIT

    def _state_changed(self) -> bool:
        try:
            mtime = os.stat(RunPaths(self._rundir).state).st_mtime_ns
        except OSError:
            return True
        changed, self._state_mtime = mtime != self._state_mtime, mtime
        return changed

    def _find_logs(self, state: State, tail: Optional[int]) -> None:
        if not self._has_logs:
            return
        ended = state["state"] in FINAL or self._is_earlier_attempt(state)
        for log in logs_since(self._rundir, state, self._log_request):
            known = self._logs.get(log.file)
            if known is not None:
                known.rank = log.rank  # a program's, until it has started ranks itself
            if known is not None or not os.path.lexists(log.reader.path):
                continue
            log.start(self._log_request)
            if not self._follow:
                log.reader.limit = log.initial_size
            offset = (self._log_request.get("offsets") or {}).get(log.file)
            if offset is not None:
                log.reader.position = int(offset)
            elif tail is not None:
                path, limit = log.reader.path, log.reader.limit
                begin = tail_position(path, tail, self._grep, ended, self._tick, limit)
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
        """Send what is new; the last line of a file that is not written any more also without its end."""
        ranks = [log for log in self._logs.values() if log.rank is not None or log.of_program]
        sent = [self._send_log(log, self._has_ended(log, state)) for log in ranks]
        if not any(sent) and self._includes_torchrun():
            sent = [self._send_log(log, self._has_ended(log, state)) for log in self._torchrun_logs(state)]
        return any(sent)

    def _torchrun_logs(self, state: State) -> List[Log]:
        attempt = self._log_request.get("attempt") or state["attempt"]
        logs = self._logs.values()
        return [log for log in logs if log.rank is None and not log.of_program and log.attempt == attempt]

    def _has_ended(self, log: Log, state: State) -> bool:
        """Whether a log is not written any more."""
        return bool(log.attempt < state["attempt"] or state["state"] in FINAL)

    def _send_log(self, log: Log, last: bool) -> bool:
        chunk = log.next_chunk(self._grep, last)
        if chunk is not None and chunk.is_sent:
            self._send(chunk.header, chunk.body)
        return chunk is not None

    def _send_in_order(self, state: State) -> None:
        """Send all that there is, the oldest lines first."""
        logs = [log for log in self._logs.values() if log.rank is not None or log.of_program]
        logs += self._torchrun_logs(state) if self._includes_torchrun() else []
        for chunk in in_time_order(logs, self._grep, lambda log: self._has_ended(log, state), self._tick):
            self._send(chunk.header, chunk.body)

    def _includes_torchrun(self) -> bool:
        state = self._state
        if (
            self._log_request.get("torchrun")
            or state is None
            or not state["ranks"]
            or self._log_request.get("attempt")
        ):
            return True
        return state["state"] in FINAL and state["state"] not in NO_TORCHRUN_LOG

    def _send(self, frame: NodeFrame, body: bytes = b"") -> None:
        began = time.monotonic()
        self._stream.answer(frame, body)
        if self._stream.last_sent - began > BEAT_INTERVAL:
            self._last_received = self._stream.last_sent  # it took what it did not take before: it is there


def answer_clock(stream: Stream) -> float:
    """Answer each question for the time; return how far at least this clock is ahead of the client's."""
    while True:
        frame = stream.receive(CLIENT_LIMIT)
        if frame is None or "begin" in frame[0]:
            return Untrusted(frame[0]).number("ahead") or 0.0 if frame is not None else 0.0
        if "ask" in frame[0]:
            stream.answer({"clock": time.time()})


def compile_grep(pattern: Optional[str]) -> Optional[Grep]:
    """Compile what `grep` asks for; VerbError if it is no regular expression."""
    if pattern is None:
        return None
    try:
        return Grep(pattern)
    except re.error as error:
        raise VerbError("CC-USE-026", f"not a regular expression: {pattern!r}: {error}") from None
