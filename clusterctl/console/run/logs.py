"""Log lines of many ranks on one screen: an aligned, coloured prefix and text that does no harm."""

from __future__ import annotations

import os
import re
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain, repeat
from typing import TYPE_CHECKING, Protocol, TextIO

from clusterctl.console.errors import ERRORS
from clusterctl.console.terminal import RED, clear_live_line, paint
from clusterctl.console.text import as_in_project, display_width, json_text, sanitize
from clusterctl.plans.runs.gang_record import attempt_of
from clusterctl.protocol.ranks import NodeRank, Rank
from clusterctl.protocol.run_paths import torchrun_log
from clusterctl.protocol.tracebacks import starts_traceback

if TYPE_CHECKING:
    from clusterctl.client.watch.follower import LogLines
    from clusterctl.console.documents.runs import LogLine

# Of 256 colours some whose contrast is at least 3:1 on black and on white; neighbours differ much.
_COLORS = (33, 166, 29, 162, 98, 64, 30, 127, 130, 69)
_FEW_COLORS = (36, 35, 32, 34)  # for terminals that have only eight
_EIGHT_COLORS = ("linux", "ansi", "vt100", "vt220", "cygwin")


class LogSink(Protocol):
    """Takes log lines as they come."""

    @property
    def hidden(self) -> int:
        """Count the lines that were not written."""

    def show(self, entry: LogLines) -> None:
        """Write complete lines of one file."""


class BatchLogSink(ABC):
    """Writes all lines, those of several files at once too."""

    hidden = 0

    def show(self, entry: LogLines) -> None:
        """Write complete lines of one file."""
        self.show_all((entry,))

    @abstractmethod
    def show_all(self, entries: Iterable[LogLines]) -> None:
        """Write complete lines of several files."""


class LogPrinter(BatchLogSink):
    """Writes log lines as `gpu02 r3 | text`; lines of stderr have `!` for `|`, the rest of a long line has `+`.

    `with_times` puts before each line when it was written, by the clock and in the zone of this machine. On a terminal
    the files of a run's copy of the code have the names that they have in the project; a file gets what was written.
    """

    def __init__(
        self, names: Iterable[str], world_size: int, stream: TextIO | None = None, *, with_times: bool = False
    ) -> None:
        self._stream = stream or sys.stdout
        self._with_times = with_times
        self._cached_second: tuple[int, str] = (-1, "")
        self._prepare = _shown_line if self._stream.isatty() else sanitize
        self._indices = {name: index for index, name in enumerate(names)}
        self._width = max(map(display_width, self._indices), default=0)
        self._rank_width = len(str(max(world_size - 1, 0))) + 1

    def show_all(self, entries: Iterable[LogLines]) -> None:
        """Write the lines of several files in one go."""
        clear_live_line()
        self._stream.write("".join(self._render(entry) for entry in entries))
        self._stream.flush()

    def _render(self, entry: LogLines) -> str:
        label, separators = self._label(entry), self._separators(entry)
        dropped_line = (
            f"{self._render_time(entry.began)}{label} ~ {describe_dropped(entry.gone)}\n"
            if entry.gone
            else ""
        )
        if not self._with_times:
            lines = zip(separators, entry.lines, strict=False)
            return dropped_line + "".join(
                [f"{label} {separator} {self._prepare(line)}\n" for separator, line in lines]
            )
        timed_lines = zip(entry.times, separators, entry.lines, strict=False)
        return dropped_line + "".join(
            [
                f"{self._render_time(timestamp)}{label} {separator} {self._prepare(line)}\n"
                for timestamp, separator, line in timed_lines
            ]
        )

    def _render_time(self, timestamp: float) -> str:
        """Write a time as `11-21 14:05:03.2 `; of the seconds the last is remembered, for lines come in crowds."""
        if not self._with_times:
            return ""
        tenths = int(timestamp * 10)
        if self._cached_second[0] != tenths // 10:
            self._cached_second = tenths // 10, time.strftime("%m-%d %H:%M:%S", time.localtime(tenths // 10))
        return f"{self._cached_second[1]}.{tenths % 10} "

    def _separators(self, entry: LogLines) -> Iterator[str]:
        """Return the sign before each line."""
        more, sign = "+", "|"
        if entry.stream == "stderr":
            more, sign = paint("+", RED, self._stream), paint("!", RED, self._stream)
        return chain([more] if entry.continues else [], repeat(sign))

    def _label(self, entry: LogLines) -> str:
        rank = "-" if entry.rank is None else f"r{entry.rank}"
        name = sanitize(entry.node) + " " * (self._width - display_width(entry.node))
        label = f"{name} {rank.ljust(self._rank_width)}"
        index = entry.rank if entry.rank is not None else self._indices.get(entry.node, 0)
        return paint(label, label_color(index), self._stream)


def _shown_line(line: str) -> str:
    return as_in_project(sanitize(line))


class JsonLogPrinter(BatchLogSink):
    """Writes log lines as NDJSON, one object a line, text as it came."""

    def __init__(self, run_id: str, node_ranks: Mapping[str, NodeRank]) -> None:
        self._run_id = run_id
        self._node_ranks = node_ranks

    def show_all(self, entries: Iterable[LogLines]) -> None:
        """Write the lines of several files; `offset` is each line's place in the file in bytes.

        `continues` marks the rest of a line that is too long for one piece.
        """
        ERRORS.has_result = True
        for entry in entries:
            sys.stdout.write("".join(json_text(record) + "\n" for record in self._records(entry)))
        sys.stdout.flush()

    def _records(self, entry: LogLines) -> Iterator[LogLine]:
        common: LogLine = {
            "schema": 1,
            "run": self._run_id,
            "node": entry.node,
            "node_rank": entry.node_rank if entry.node_rank is not None else self._node_ranks.get(entry.node),
            "attempt": attempt_of(entry.file),
            "rank": entry.rank,
            "stream": entry.stream,
            "offset": 0,
            "time": entry.time,
            "line": "",
        }
        if entry.gone:
            begin, end = entry.gone
            yield {**common, "offset": begin, "time": entry.began or entry.time, "dropped": end - begin}
        times = entry.times or (entry.time,) * len(entry.lines)
        for line, offset, timestamp in zip(entry.lines, entry.offsets, times, strict=True):
            record: LogLine = {**common, "offset": offset, "time": timestamp, "line": line}
            if entry.continues and offset == entry.offsets[0]:
                record["continues"] = True
            yield record


class TorchrunFilter:
    """Keeps what torchrun itself reports of a failed rank from the screen: the rank's own error shows it.

    torchrun writes log lines and, when it ends, a traceback with a summary, all to a log of its own. Other lines there
    are shown.
    """

    _LOG_LINE = re.compile(r"[IWE]\d{4} \S+ +\d+ +(?:\S*/)?torch/distributed/(?:elastic|launcher|run\.py)")

    def __init__(self, logs: LogSink) -> None:
        self._logs = logs
        self._ending: set[tuple[str, str]] = set()  # logs in which the last traceback has begun
        self.hidden = 0

    def show(self, entry: LogLines) -> None:
        """Write the lines of a file, without those of torchrun's own end."""
        if entry.rank is not None or entry.file != torchrun_log(attempt_of(entry.file)):
            self._logs.show(entry)
            return
        if entry.gone:
            self._logs.show(entry.cut(slice(0, 0), entry.gone))
        for number, line in enumerate(entry.lines):
            if self._is_hidden((entry.node, entry.file), line):
                self.hidden += 1
            else:
                self._logs.show(entry.cut(slice(number, number + 1), None))

    def _is_hidden(self, log: tuple[str, str], line: str) -> bool:
        if starts_traceback(line):
            self._ending.add(log)
        return log in self._ending or self._LOG_LINE.match(line) is not None


def describe_dropped(dropped: tuple[int, int]) -> str:
    """Return what is missing in a log that was cut."""
    from clusterctl.console.progress import render_size

    size = render_size(dropped[1] - dropped[0])
    # a part of a log: English, as all of it
    return f"{size} of this log are missing here: dropped to hold log_limit, or a hole in the file"


def label_color(index: int) -> str:
    """Return the colour, as SGR has it, for a rank, or for the place of a node: neighbours never have the same."""
    if os.environ.get("TERM", "") in _EIGHT_COLORS:
        return str(_FEW_COLORS[index % len(_FEW_COLORS)])
    return f"38;5;{_COLORS[index % len(_COLORS)]}"


HOLD_LIMIT = 3.0  # seconds; after it the script has survived the exception, or the run is not being ended
MOST_HELD = 2000  # lines of one rank


class HeldTracebacks:
    """Passes lines on, but from a traceback on those of its file, until the run ends or goes on.

    Only the traceback of the rank that failed first is of use. Nothing is lost: the logs on the nodes hold every line,
    and what is not shown is counted.
    """

    def __init__(self, logs: LogSink, clock: Callable[[], float] = time.monotonic) -> None:
        self._logs, self._clock = logs, clock
        self._held: dict[tuple[str, str], list[LogLines]] = {}
        self._since: dict[tuple[str, str], float] = {}
        self._left_out = 0

    @property
    def hidden(self) -> int:
        """Count the lines that were not written."""
        return self._logs.hidden + self._left_out

    def show(self, entry: LogLines) -> None:
        """Write complete lines of one file, or keep them."""
        log = (entry.node, entry.file)
        for earlier in [log for log in self._held if attempt_of(log[1]) < attempt_of(entry.file)]:
            self._release(earlier)  # the run goes on in another attempt
        if log in self._held:
            self._held[log].append(entry)
            if sum(len(one.lines) for one in self._held[log]) > MOST_HELD:
                self._release(log)
            return
        start = _find_traceback(entry)
        if start is None:
            self._logs.show(entry)
            return
        if start or entry.gone:
            self._logs.show(entry.cut(slice(0, start), entry.gone))
        self._held[log] = [entry.cut(slice(start, None), None)]
        self._since[log] = self._clock()

    def tick(self, *, stopping: bool) -> None:
        """Write what has been kept for long, unless the run is being ended because a rank failed."""
        if stopping:
            return
        now = self._clock()
        for log in [log for log, since in self._since.items() if now - since > HOLD_LIMIT]:
            self._release(log)

    def finish(self, culprits: Collection[tuple[str, Rank]]) -> None:
        """Write the kept lines of these ranks (node, rank) and count the others; without culprits write all."""
        for log, entries in list(self._held.items()):
            first = entries[0]
            if not culprits or (first.rank is not None and (first.node, first.rank) in culprits):
                self._release(log)
            else:
                self._left_out += sum(len(entry.lines) for entry in entries)
                del self._held[log], self._since[log]

    def _release(self, log: tuple[str, str]) -> None:
        for entry in self._held.pop(log):
            self._logs.show(entry)
        del self._since[log]


def _find_traceback(entry: LogLines) -> int | None:
    """Return the index of the first line of a traceback of a rank."""
    if entry.rank is None or entry.stream != "stderr":
        return None
    return next((index for index, line in enumerate(entry.lines) if starts_traceback(line)), None)
