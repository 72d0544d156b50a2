"""Log lines of many ranks on one screen: an aligned, coloured prefix and text that does no harm."""

from __future__ import annotations

import sys
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from clusterctl.console.terminal import uses_color
from clusterctl.console.text import json_text, sanitize
from clusterctl.protocol.ranks import NodeRank

if TYPE_CHECKING:
    from clusterctl.client.watch.follower import LogLines

# Readable on dark and light backgrounds; a node keeps its colour in every run because its name chooses it.
_COLORS = (36, 33, 35, 32, 34, 96, 93, 95, 92, 94)
_RED, _RESET = "\x1b[31m", "\x1b[0m"


class LogSink(Protocol):
    """Takes log lines as they come."""

    def show(self, entry: LogLines) -> None:
        """Write complete lines of one file."""


class BatchLogSink(LogSink, Protocol):
    """Takes the lines of several files at once too."""

    def show_all(self, entries: Iterable[LogLines]) -> None:
        """Write complete lines of several files."""


class LogPrinter:
    """Writes log lines as `gpu02 r3 | text`; lines of stderr have `!` for `|`.

    `with_times` puts before each line when it was written, by the clock and in the zone of this machine.
    """

    def __init__(
        self, names: Iterable[str], world_size: int, stream: TextIO | None = None, *, with_times: bool = False
    ) -> None:
        self._stream = stream or sys.stdout
        self._with_times = with_times
        self._cached_second: tuple[int, str] = (-1, "")
        self._color = uses_color(self._stream)
        self._width = max((display_width(name) for name in names), default=0)
        self._rank_width = len(str(max(world_size - 1, 0))) + 1

    def show(self, entry: LogLines) -> None:
        """Write complete lines of one file."""
        self.show_all((entry,))

    def show_all(self, entries: Iterable[LogLines]) -> None:
        """Write the lines of several files in one go."""
        self._stream.write("".join(self._render(entry) for entry in entries))
        self._stream.flush()

    def _render(self, entry: LogLines) -> str:
        label, separator = self._label(entry), self._separator(entry)
        dropped_line = (
            f"{self._render_time(entry.began)}{label} ~ {describe_dropped(entry.gone)}\n"
            if entry.gone
            else ""
        )
        if not self._with_times:
            return dropped_line + "".join([f"{label} {separator} {sanitize(line)}\n" for line in entry.lines])
        timed_lines = zip(entry.times, entry.lines, strict=True)
        return dropped_line + "".join(
            [
                f"{self._render_time(timestamp)}{label} {separator} {sanitize(line)}\n"
                for timestamp, line in timed_lines
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

    def _separator(self, entry: LogLines) -> str:
        if entry.stream != "stderr":
            return "|"
        return f"{_RED}!{_RESET}" if self._color else "!"

    def _label(self, entry: LogLines) -> str:
        rank = "-" if entry.rank is None else f"r{entry.rank}"
        name = sanitize(entry.node) + " " * (self._width - display_width(entry.node))
        label = f"{name} {rank.ljust(self._rank_width)}"
        return f"\x1b[{node_color(entry.node)}m{label}{_RESET}" if self._color else label


class JsonLogPrinter:
    """Writes log lines as NDJSON, one object a line, text as it came."""

    def __init__(self, run_id: str, node_ranks: Mapping[str, NodeRank]) -> None:
        self._run_id = run_id
        self._node_ranks = node_ranks

    def show(self, entry: LogLines) -> None:
        """Write complete lines of one file."""
        self.show_all((entry,))

    def show_all(self, entries: Iterable[LogLines]) -> None:
        """Write the lines of several files; `offset` is each line's place in the file in bytes."""
        for entry in entries:
            sys.stdout.write("".join(json_text(record) + "\n" for record in self._records(entry)))
        sys.stdout.flush()

    def _records(self, entry: LogLines) -> Iterator[dict[str, Any]]:
        from clusterctl.plans.runs.gang_record import attempt_of

        common = {
            "schema": 1,
            "run": self._run_id,
            "node": entry.node,
            "node_rank": entry.node_rank if entry.node_rank is not None else self._node_ranks.get(entry.node),
            "attempt": attempt_of(entry.file),
            "rank": entry.rank,
            "stream": entry.stream,
        }
        if entry.gone:
            begin, end = entry.gone
            yield {
                **common,
                "offset": begin,
                "time": entry.began or entry.time,
                "line": "",
                "dropped": end - begin,
            }
        times = entry.times or (entry.time,) * len(entry.lines)
        for line, offset, timestamp in zip(entry.lines, entry.offsets, times, strict=True):
            yield {**common, "offset": offset, "time": timestamp, "line": line}


def describe_dropped(dropped: tuple[int, int]) -> str:
    """Say what is missing in a log that was cut."""
    from clusterctl.console.progress import render_size

    return f"{render_size(dropped[1] - dropped[0])} of this log were dropped here to hold log_limit"


def display_width(name: str) -> int:
    """Count the columns a name takes on a terminal; a Chinese character takes two."""
    if name.isascii():
        return len(name)
    from rich.cells import cell_len

    return cell_len(name)


def node_color(name: str) -> int:
    """Choose an SGR colour by the node's name."""
    return _COLORS[zlib.crc32(name.encode()) % len(_COLORS)]
