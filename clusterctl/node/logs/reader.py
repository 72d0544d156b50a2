"""The log files of a run: which lines are wanted, read in chunks, from a tail on, and all logs in the order of time.

In that order no chunk begins before the one sent last. Of each log one chunk at most reaches beyond what is to come, so
that the reader who sorts the single lines keeps no more than that.
"""

from __future__ import annotations

import heapq
import os
import re
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

from ...protocol.ranks import NESTED, Rank
from ...protocol.run_paths import attempt_folder, early_logs, torchrun_log
from ...protocol.states import FAILED_SETUP
from ..runtime.stream import VerbError
from ..runtime.time_limit import TooSlowError, time_limit
from .lines import BLOCK, PIECE, Block, LineReader
from .log_file import NotALogError, open_log
from .time_index import TimeIndex
from .truncation import find_hole_begin, is_empty_block, read_truncation

if TYPE_CHECKING:
    from ...protocol.messages.files import State
    from ...protocol.messages.verbs import LogChoice, LogFrame, StreamName

CHUNK_SIZE = PIECE  # bytes; with less, no piece of a line without end would fit
TRUSTED_AGE = 1.0  # seconds; a live file written longer ago has its time from the clock of a file server
# what a torchrun below the program has copied from its ranks, whose own logs have it too: [default0]: by role and rank
TEED = re.compile(rb"\[[\w.-]{1,60}\d\]:")
# What may see beyond its line, or take more than its line and not give it back: there every line is tried alone.
SINGLE_LINE_ONLY = re.compile(r"\\[AZz]|\(\?(?!:|P<|P=|[ims]+\))|[*+?}]\+")
LINE_ENDS = "\r\n"
GREP_LIMIT = 10.0  # seconds for a block: a client waits 20 s for a sign of life


class Grep:
    """Selects lines; `pattern` is searched within each line, as text; re.error if it is none."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._search = re.compile(pattern).search
        self._multiline = SINGLE_LINE_ONLY.search(pattern) is None
        self._search_ahead = re.compile(pattern, re.MULTILINE).search

    def matches(self, line: bytes) -> bool:
        """Return whether a line is wanted."""
        return self._search(line.decode("utf-8", "replace").rstrip(LINE_ENDS)) is not None

    def find_hits(self, content: bytes) -> List[Tuple[int, int]]:
        """Return where each wanted line begins and ends; VerbError if that takes too long."""
        try:
            with time_limit(GREP_LIMIT):
                return list(self._iter_hits(content))
        except TooSlowError:
            problem = f"--grep {self._pattern}: took more than {GREP_LIMIT:.0f} s for {len(content)} bytes"
            raise VerbError("CC-USE-026", problem) from None

    def _iter_hits(self, content: bytes) -> Iterator[Tuple[int, int]]:
        if self._multiline and content.isascii() and b"\r" not in content:
            yield from self._find_hits(content.decode("ascii"))
            return
        for begin, end in lines_in(content):
            if self.matches(content[begin:end]):
                yield begin, end

    def _find_hits(self, text: str) -> Iterator[Tuple[int, int]]:
        """Search in all lines at once: where a line matches alone, something matches at its place or before it."""
        position = 0
        while position < len(text):
            match = self._search_ahead(text, position)
            if match is None:
                return
            begin = text.rfind("\n", position, match.start()) + 1 or position
            end = text.find("\n", begin) + 1 or len(text)
            if begin < len(text) and self._search(text[begin:end].rstrip(LINE_ENDS)):
                yield begin, end
            position = end


def lines_in(content: bytes) -> Iterator[Tuple[int, int]]:
    """Yield where each line begins and ends."""
    position = 0
    while position < len(content):
        end = content.find(b"\n", position) + 1 or len(content)
        yield position, end
        position = end


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


def in_time_order(
    logs: Iterable[Log],
    grep: Optional[Grep],
    has_ended: Callable[[Log], bool],
    tick: Callable[[], None],
) -> Iterator[LogChunk]:
    """Yield the chunks of logs that are not waited for, each log to the end that it had when we came.

    `has_ended` is whether nothing writes to a log any more; `tick` is called now and then.
    """

    def chunks(log: Log) -> Iterator[LogChunk]:
        while True:
            tick()
            chunk = log.next_chunk(grep, has_ended(log), CHUNK_SIZE)
            if chunk is None:
                return
            if chunk.is_sent:
                yield chunk

    return heapq.merge(*map(chunks, logs), key=lambda chunk: chunk.began)


def tail_position(
    path: str,
    count: int,
    grep: Optional[Grep],
    last: bool,
    tick: Callable[[], None] = lambda: None,
    limit: Optional[int] = None,
) -> int:
    """Find where the last `count` lines (of those wanted) begin, reading from the end; 0 if there are fewer.

    A line that has not ended counts only with `last`. `tick` is called now and then; what lies behind `limit` does
    not count.
    """
    descriptor = -1
    with suppress(OSError):
        descriptor = open_log(path)
    if descriptor < 0:
        return 0
    try:
        size = os.fstat(descriptor).st_size
        end = size if limit is None else min(size, limit)
        ended = last or end == 0 or os.pread(descriptor, 1, end - 1) == b"\n"
        cut = read_truncation(path)
        if cut is None or cut.end > end:
            return _last_lines(whole_lines(descriptor, 0, end, tick), count, grep, ended, end)[0]
        after_cut = whole_lines(descriptor, cut.end, end, tick)
        position, missing = _last_lines(after_cut, count, grep, ended, end)
        before_cut = whole_lines(descriptor, 0, cut.begin, tick) if missing else iter(())
        return _last_lines(before_cut, missing, grep, True, position)[0]
    finally:
        os.close(descriptor)


def _last_lines(
    blocks: Iterator[Block], count: int, grep: Optional[Grep], ended: bool, end: int
) -> Tuple[int, int]:
    """Count lines backward; gives where the first of them begins, and how many are missing."""
    position, missing = end, count
    for start, block in blocks if count or not ended else ():
        content = block if ended else block[: block.rfind(b"\n") + 1]
        if not ended:
            ended, position = True, start + len(content)
        starts: List[int] = [begin for begin, _ in (grep.find_hits(content) if grep else lines_in(content))]
        if missing <= len(starts):
            return start + starts[-missing] if missing else position, 0
        missing, position = missing - len(starts), start
    return position, missing


def whole_lines(descriptor: int, begin: int, end: int, tick: Callable[[], None]) -> Iterator[Block]:
    """Yield blocks of whole lines from the last one to the first; of a long line its first piece."""
    later = b""  # what belongs to the line that ends where the block does
    while end > begin:
        tick()
        start = max(begin, end - BLOCK)
        content = os.pread(descriptor, end - start, start)
        if is_empty_block(content) and (hole := find_hole_begin(descriptor, begin, end)) < end:
            if later:
                yield end, later
            later, end = b"", hole
            continue
        line_start = content.find(b"\n", 0, len(content) if later else len(content) - 1) + 1
        if start == begin:
            line_start = 0
        if line_start or start == begin:
            yield start + line_start, content[line_start:] + later
            later, end = b"", start + line_start
        else:
            later, end = (content + later)[:PIECE], start
