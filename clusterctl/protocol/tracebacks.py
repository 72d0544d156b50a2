"""Tracebacks in what a rank wrote to stderr: the one place that knows how they begin, follow each other and end.

`StderrParser` reads line by line and remembers the exception that counts. `find_tracebacks` and `shorten_traceback`
make the blocks that a node's record holds (`node/supervise/evidence.py`).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from .ranks import Rank

TAIL_LINES = 20
MAX_LINE = 1000  # characters that are kept of a line
MESSAGE_LINES = 3  # lines after an exception's first that may belong to its message
LINES_BEFORE = 3  # lines before a traceback that may show what it belongs to
SURVIVED_AFTER = 1.0  # seconds after an exception from which on further output means that it was survived

_RANK_MARK = re.compile(r"\[rank(\d{1,7})\]: ?")  # torch puts it before every line of an uncaught traceback
_EXCEPTION = re.compile(r"([A-Za-z_][\w.]*)(?:: (.*))?$")
_USUAL_NAME = re.compile(r"(Error|Exception|Interrupt|Exit)$")
_WITHOUT_TRACEBACK = re.compile(r"(SyntaxError|IndentationError|TabError): ")
_CHAIN = re.compile(r"During handling of the above exception, |The above exception was the direct cause")
_LOADER = re.compile(r"Original Traceback \(most recent call last\)")
_NEVER_FATAL = re.compile(r"Exception ignored in|Error in atexit|--- Logging error ---")
_OF_A_CHILD = re.compile(r"Process \S+:$")  # multiprocessing's word before the traceback of a child
_MARKS = (
    "During ",
    "The above ",
    "Exception ignored",
    "Error in atexit",
    "--- Logging",
    "Process ",
    "[Rank ",
)
_TORCH_LOG = re.compile(r"\[[WEI]\d* |\[W\w+|terminate called")
# What a torchrun below the program raises when a rank has failed; the rank's own exception may be in the same log.
_OF_LAUNCHER = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError"
_CUT = re.compile(r" \[\+(\d{1,9}) characters\]$")
_FRAME = re.compile(r'\s*File "(.*)", line (\d+)')
_RAY_TASK = re.compile(r"(ray::[\w.<>]{1,200}\(\))(?:\x1b\[\d{1,3}m)? \(pid=\d{1,10}, ip=([\w.:]{1,64})[,)]")
# What Ray puts before each line of a worker, without the address of the program's own node, and Ray Train before the
# traceback that it passes on: with a comma where several workers have raised the like.
_RAY_WORKER = re.compile(
    r"(?:\x1b\[[\d;]{1,8}m)*\(([\w.:<>]{1,200}) pid=\d{1,10}(?:, ip=([\w.:]{1,64}))?\)(?:\x1b\[[\d;]{1,8}m)* ?"
)
_RAY_TRAIN_RANK = re.compile(r"\[Rank (\d{1,7})(,| Error Snippet\]:)")
MAX_RAY_WORKERS = 64  # whose tracebacks are read
_LIBRARY = re.compile(r"^<|[/\\](?:(?:site|dist)-packages|lib\d*[/\\]python[\d.]+)[/\\]")


@dataclass
class StderrParser:
    """One rank's last lines, and its last exception however long the traceback was.

    `origin` is the first exception of a chain ("during handling of the above exception"), `where` the file of the
    innermost frame, `own_frame` file, line and source of the innermost frame outside of Python's libraries,
    `raised_at` and `last_at` seconds on our clock. `ray_task` names the task, actor or worker of Ray that raised it,
    and the address of its node (empty: that of the rank). Of a worker of Ray Train both are in the lines that Ray
    passes on from it, before the exception that counts.
    """

    tail: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL_LINES))
    exception: str = ""
    message: str = ""
    origin: str = ""
    where: str = ""
    own_frame: tuple[str, ...] = ()
    ray_task: tuple[str, ...] = ()
    raised_at: float | None = None
    ended_at: float = 0.0  # when the last line of the exception came
    last_at: float = 0.0
    _inside: bool = False
    _after: int = 0
    _chained: bool = False
    _previous: tuple[str, str, tuple[str, ...], float | None] = ("", "", (), None)  # of the exception before
    _ignored: str = ""  # why the next traceback does not count: "never", or "child" where there is another
    _ray_inside: set[str] = field(default_factory=set)  # the workers of Ray in whose traceback we are
    _ray_raised: dict[str, tuple[str, str]] = field(
        default_factory=dict
    )  # who raised an exception: worker, address
    _ray_rank: str = ""

    @property
    def survived(self) -> bool:
        """Return whether the rank wrote on long after its exception, and so survived it."""
        return bool(self.exception) and self.last_at > self.ended_at + SURVIVED_AFTER

    def on_output(self, time: float) -> None:
        """Take notice that the rank wrote something, wherever, at `time`."""
        self.last_at = max(self.last_at, time)

    def feed(self, line: str, time: float) -> None:
        """Take one line of stderr that arrived at `time` (our clock)."""
        line = clip(line, MAX_LINE)
        self.tail.append(line)
        self.on_output(time)
        worker = _RAY_WORKER.match(line)
        if worker:
            self._feed_ray_worker(worker, line[worker.end() :])
            return
        bare = strip_rank(line)
        if starts_traceback(line):
            self._open_traceback(bare, time)
        elif is_exception_line(bare, inside=self._inside):
            self._close_traceback(line.strip(), time)
        elif self._inside:
            self._feed_frame(bare)
        elif bare.startswith(_MARKS):
            self._feed_mark(bare)
        elif self._after:
            self._feed_message(line, time)

    def _feed_ray_worker(self, worker: re.Match[str], text: str) -> None:
        """Take a line that Ray passes on; those of several workers come mixed."""
        if starts_traceback(text):
            self._ray_inside.update([worker[0]] if len(self._ray_inside) < MAX_RAY_WORKERS else ())
        elif worker[0] in self._ray_inside and is_exception_line(text, inside=True):
            self._ray_inside.discard(worker[0])
            if len(self._ray_raised) < MAX_RAY_WORKERS:
                self._ray_raised.setdefault(text.strip(), (worker[1], worker[2] or ""))

    def _feed_frame(self, bare: str) -> None:
        """Take a line of the stack: a frame, or its source."""
        frame, task = _FRAME.match(bare), _RAY_TASK.search(bare)
        self.ray_task = task.groups() if task else self.ray_task
        if frame:
            self.where = frame[1]
            if not _LIBRARY.search(frame[1]):
                self.own_frame = (frame[1], frame[2])
        elif len(self.own_frame) == 2 and self.own_frame[0] == self.where:
            self.own_frame = (*self.own_frame, bare.strip())

    def _feed_mark(self, bare: str) -> None:
        """Take a line that announces the next traceback."""
        rank = _RAY_TRAIN_RANK.match(bare)
        if rank:
            self._ray_rank = "" if rank[2] == "," else rank[1]
        elif _CHAIN.match(bare):
            self._chained = True
        elif _NEVER_FATAL.match(bare) or _OF_A_CHILD.match(bare):
            self._ignored, self._after = "never" if _NEVER_FATAL.match(bare) else "child", 0

    def _open_traceback(self, bare: str, time: float) -> None:
        self._inside, self._after = True, 0
        if self._ignored:
            return
        self._previous = self.origin, self.where, self.own_frame, self.raised_at
        self.own_frame = self.ray_task = ()
        if not self._chained:
            self.origin = "" if not _LOADER.match(bare) else self.origin
            self.raised_at = time
        elif not self.origin:
            self.origin = self.exception
        self._chained = False

    def _close_traceback(self, message: str, time: float) -> None:
        ignored, self._ignored = self._ignored, ""
        was_inside, self._inside = self._inside, False
        if ignored == "never" or (ignored and self.exception):
            return
        if self.exception and message.startswith(_OF_LAUNCHER):
            self.origin, self.where, self.own_frame, self.raised_at = self._previous
            return
        if self.raised_at is None or not was_inside:
            self.raised_at = time
        self.exception = self.message = message
        self._after, self.ended_at = MESSAGE_LINES, time
        if message in self._ray_raised and not self.ray_task:
            worker, address = self._ray_raised[message]
            self.ray_task = (f"{worker} (rank {self._ray_rank})" if self._ray_rank else worker, address)

    def _feed_message(self, line: str, time: float) -> None:
        """Take a further line of the message, unless it is plainly something else."""
        marked = bool(_RANK_MARK.match(self.exception))
        if _TORCH_LOG.match(line) or (marked and not _RANK_MARK.match(line)):
            self._after = 0
            return
        self.message += f"\n{line}"
        self._after, self.ended_at = self._after - 1, time


def final_exception(stderr: str) -> str:
    """Return the exception with whose message a text of stderr ends; empty if anything follows it, or there is none."""
    lines = stderr.rstrip().splitlines()
    parser = StderrParser()
    for number, line in enumerate(lines, 1):
        parser.feed(line, float(number))
    return strip_rank(parser.exception) if lines and parser.ended_at == len(lines) else ""


def clip(line: str, limit: int) -> str:
    """Cut a line to so many characters, and say how many are missing: `xxx [+99 characters]`."""
    cut = _CUT.search(line)  # it may have been cut before
    text, missing = (line[: cut.start()], int(cut[1])) if cut else (line, 0)
    return line if len(text) <= limit else f"{text[:limit]} [+{len(text) - limit + missing} characters]"


def starts_traceback(line: str) -> bool:
    """Return whether a line of stderr begins a Python traceback."""
    return "Traceback (most recent call last)" in line


def is_exception_line(line: str, *, inside: bool) -> bool:
    """Return whether a line ends a traceback by naming the exception; syntax errors come without a traceback."""
    bare = strip_rank(line)
    if not inside:
        return _WITHOUT_TRACEBACK.match(bare) is not None
    match = _EXCEPTION.match(bare)
    return match is not None and bool(_USUAL_NAME.search(match[1]) or match[2] is not None or "." in match[1])


def marked_rank(line: str) -> Rank | None:
    """Return which rank a line is of, by the mark that torch has put before it; None if there is none."""
    found = _RANK_MARK.match(line)
    return Rank(int(found[1])) if found else None


def strip_rank(line: str) -> str:
    """Drop torch's `[rank1]: ` from the beginning of a line."""
    return _RANK_MARK.sub("", line, count=1) if line.startswith("[rank") else line


def strip_ray_worker(line: str) -> str:
    """Drop Ray's `(Worker pid=1, ip=10.0.0.1) ` from the beginning of a line."""
    found = _RAY_WORKER.match(line)
    return line[found.end() :] if found else line


class TracebackLines(NamedTuple):
    """Where a traceback is in a list of lines: from what precedes it, from its first line, up to the next one."""

    begin: int
    start: int
    end: int


def find_tracebacks(lines: Sequence[str], most: int) -> list[TracebackLines]:
    """Find the last tracebacks, each with the lines before it and all that follows it."""
    starts = [number for number, line in enumerate(lines) if starts_traceback(line)][-most:]
    blocks: list[TracebackLines] = []
    for start in starts:
        previous = blocks[-1].start + 1 if blocks else 0
        blocks.append(TracebackLines(max(start - LINES_BEFORE, previous), start, len(lines)))
    ends = [block.begin for block in blocks[1:]]
    return [*(block._replace(end=ends[number]) for number, block in enumerate(blocks[:-1])), *blocks[-1:]]


def shorten_traceback(lines: Sequence[str], most: int) -> list[str]:
    """Leave out the stack but for its innermost frame, and the innermost of the user's own with its source.

    What is not indented is kept, and the lines after it.
    """
    kept: list[str] = []
    own: list[str] = []
    frame = ""
    following = 0
    for line in lines:
        bare = strip_ray_worker(strip_rank(line))
        if bare[:1].strip():
            kept += [*own, *([frame] if frame and frame not in own else [])]
            frame, own, following = "", [], 0 if starts_traceback(bare) else MESSAGE_LINES
            kept.append(line)
        elif found := _FRAME.match(bare):
            frame, following = line, 0
            own = own if _LIBRARY.search(found[1]) else [line]
        elif following:
            following -= 1
            kept.append(line)
        elif len(own) == 1 and own[0] == frame:
            own.append(line)
    return kept[:most]


def is_chained(lines: Sequence[str]) -> bool:
    """Return whether a traceback follows another in the same chain of exceptions."""
    return any(_CHAIN.match(strip_rank(line)) for line in lines)
