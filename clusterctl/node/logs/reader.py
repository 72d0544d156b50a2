"""The log files of a run, read in chunks, and the chunks of many logs in the order of time.

None begins before the one sent last. Of each log one chunk at most reaches beyond what is to come, so that
the reader who sorts the single lines keeps no more than that.
"""

from __future__ import annotations

import heapq
import os
import re
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

from ...protocol.ranks import NESTED, Rank
from ...protocol.run_paths import attempt_folder, early_logs, torchrun_log
from ...protocol.states import FAILED_SETUP
from .lines import BLOCK, PIECE, LineReader
from .log_file import NotALogError, open_log
from .search import Grep, lines_in
from .time_index import TimeIndex

if TYPE_CHECKING:
    from ...protocol.messages.files import State
    from ...protocol.messages.verbs import LogChoice, LogFrame, StreamName

TRUSTED_AGE = 1.0  # seconds; a live file written longer ago has its time from the clock of a file server


class LogChunk(NamedTuple):
    """Lines of one log in the order of the file, as they are sent; there may be none, where none is wanted."""

    header: LogFrame
    body: bytes
    began: float  # no line of it is older, by the node's clock; 0 where times are not asked for

    @property
    def is_sent(self) -> bool:
        """Whether it has anything to report."""
        return bool(self.body) or "gone" in self.header or "replaced_by" in self.header


class Log:
    """One file that is read."""

    def __init__(self, rundir: str, file: str, rank: Optional[Rank], stream: str, attempt: int) -> None:
        self.file = file
        self.rank = rank
        self.stream = stream
        self.attempt = attempt
        self.reader = LineReader(os.path.join(rundir, file))
        self.of_program = file == program_log(attempt, stream)
        self._nested = os.path.join(rundir, attempt_folder(attempt), NESTED)
        self.initial_size = 0  # how long it was when we came
        self.tailed = False
        self._replaced = False  # something else has taken its place, which was reported
        self._times: Optional[TimeIndex] = None

    def start(self, request: LogChoice) -> None:
        """Take notice of how long it is, and of when it was written if asked to."""
        self.initial_size, self.tailed = self.reader.size(), request.get("tail") is not None
        if request.get("times"):
            self._times = TimeIndex(self.reader.path)
        moment = request.get("moment")
        if self._times is not None and moment is not None:
            self.reader.position = line_at(self.reader.path, self._times.offset_at(float(moment)))

    def next_chunk(self, grep: Optional[Grep], last: bool, size: int = BLOCK) -> Optional[LogChunk]:
        """Take what comes next; None if there is nothing new."""
        teed = self.of_program and os.path.isdir(self._nested)
        reader = self.reader
        try:
            start, content = reader.read(last, size)
        except NotALogError as error:
            return self._report_replaced(error)
        if reader.last_stat is not None and self._times is not None:
            self._times.update(reader.last_stat, time.time())
        if not content and reader.skipped == (0, 0):
            return None
        header = self._header(start)
        if reader.skipped != (0, 0):
            header["gone"] = list(reader.skipped)
        self._add_age(header, start)
        began = self._add_times(header, start, start + len(content))
        return LogChunk(
            header, filter_lines(header, start, content, grep, teed) if grep or teed else content, began
        )

    def _header(self, start: int) -> LogFrame:
        return {"log": self.file, "rank": self.rank, "stream": self.stream, "offset": start}

    def _report_replaced(self, error: NotALogError) -> Optional[LogChunk]:
        """Report once what has taken the place of the file."""
        if self._replaced:
            return None
        self._replaced = True
        header = self._header(self.reader.position)
        header["replaced_by"] = error.kind
        return LogChunk(header, b"", 0.0)

    def close(self) -> None:
        """Close it."""
        if self._times is not None:
            self._times.close()

    def _add_age(self, header: LogFrame, start: int) -> None:
        written = self.reader.last_stat.st_mtime if self.reader.last_stat is not None else 0.0
        earlier = start < self.initial_size
        if earlier or 0 <= time.time() - written < TRUSTED_AGE:
            header["written"] = written
        if earlier and self.tailed:
            header["before"] = self.initial_size

    def _add_times(self, header: LogFrame, start: int, end: int) -> float:
        if self._times is None:
            return 0.0
        header["time_marks"] = time_marks = self._times.time_marks(start, end)
        if self._times.is_guess(start):
            header["guessed"] = True
        self._times.forget_before(end)
        return time_marks[0][1]


# what a torchrun below the program has copied from its ranks, whose own logs have it too: [default0]: by role and rank
TEED = re.compile(rb"\[[\w.-]{1,60}\d\]:")


def filter_lines(header: LogFrame, start: int, content: bytes, grep: Optional[Grep], teed: bool) -> bytes:
    """Keep the lines that are wanted, and say where each was, and where to read on."""
    lines = grep.find_hits(content) if grep else lines_in(content)
    hits = [hit for hit in lines if not (teed and TEED.match(content, *hit))]
    header["places"] = [start + begin for begin, _ in hits]
    header["next"] = start + len(content)
    return b"".join(content[begin:end] for begin, end in hits)


def line_at(path: str, offset: int) -> int:
    """Go back to the beginning of the line that a place is in; of a very long one, no further than a piece."""
    start = max(0, offset - (1 << 16))
    try:
        with os.fdopen(open_log(path), "rb") as source:
            source.seek(start)
            newline = source.read(offset - start).rfind(b"\n")
    except OSError:
        return offset
    return start + newline + 1


def logs_since(rundir: str, state: State, request: LogChoice) -> Iterator[Log]:
    """Yield the logs of every attempt from `since` on: one may have ended before anybody came to look."""
    for attempt in range(int(request.get("since") or state["attempt"]), state["attempt"]):
        yield from logs_of(rundir, state, {**request, "attempt": request.get("attempt") or attempt})
    yield from logs_of(rundir, state, request)


def logs_of(rundir: str, state: State, request: LogChoice) -> Iterator[Log]:
    """Yield the logs of the ranks and streams asked for; torchrun's own unless ranks are named."""
    ranks: Optional[List[Rank]] = request.get("ranks")
    streams: List[StreamName] = request.get("streams") or ["stdout", "stderr"]  # type: ignore[assignment]
    attempt = request.get("attempt") or state["attempt"]
    if ranks is None and "stderr" in streams:
        if state["state"] == FAILED_SETUP:
            for file in early_logs(attempt):
                yield Log(rundir, file, None, "stderr", attempt)
        yield Log(rundir, torchrun_log(attempt), None, "stderr", attempt)
    entries = ranks_of(state, attempt)
    for stream in streams if ranks is None and entries else ():
        file = program_log(attempt, stream)
        if all(
            entry[stream] != file for entry in entries.values()
        ):  # ranks that it has started have their own
            yield Log(rundir, file, None, stream, attempt)
    owners: Dict[str, str] = {}
    for rank, entry in entries.items():
        for stream in streams:
            if entry[stream] is not None and (ranks is None or Rank(int(rank)) in ranks):
                # ranks of a program may share its log, which is then of none of them
                shared = ranks is None and owners.setdefault(entry[stream], rank) != rank
                yield Log(rundir, entry[stream], None if shared else Rank(int(rank)), stream, attempt)


def program_log(attempt: int, stream: str) -> str:
    """Name the log of the only process of a node, which a launcher without torchrun starts."""
    return f"{attempt_folder(attempt)}/0/{stream}.log"


def ranks_of(state: State, attempt: int) -> Dict[str, Any]:
    """Return the ranks that this node had in an attempt, and where they wrote to."""
    if attempt == state["attempt"]:
        return dict(state["ranks"])
    entries = (entry for entry in state.get("attempts") or () if entry.get("attempt") == attempt)
    return dict(next((entry.get("ranks") or {} for entry in entries), {}))


CHUNK_SIZE = PIECE  # bytes; with less, no piece of a line without end would fit


class TimeMerger:
    """Reads logs that are not waited for, each to the end that it had when we came."""

    def __init__(
        self,
        logs: Iterable[Log],
        grep: Optional[Grep],
        has_ended: Callable[[Log], bool],
        tick: Callable[[], None],
    ) -> None:
        """`has_ended` is whether nothing writes to a log any more; `tick` is called now and then."""
        self._logs = list(logs)
        self._grep, self._has_ended, self._tick = grep, has_ended, tick

    def send(self, send: Callable[[LogChunk], None]) -> None:
        """Hand out all chunks, each when it is its turn."""
        heap: List[Tuple[float, int, LogChunk]] = []
        for number in range(len(self._logs)):
            self._push_next(heap, number)
        while heap:
            _, number, chunk = heapq.heappop(heap)
            send(chunk)
            self._push_next(heap, number)

    def _push_next(self, heap: List[Tuple[float, int, LogChunk]], number: int) -> None:
        log = self._logs[number]
        while True:
            self._tick()
            chunk = log.next_chunk(self._grep, self._has_ended(log), CHUNK_SIZE)
            if chunk is None:
                return
            if chunk.is_sent:
                heapq.heappush(heap, (chunk.began, number, chunk))
                return
