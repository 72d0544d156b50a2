"""Log lines of many ranks on one screen: an aligned, coloured prefix and text that does no harm."""

from __future__ import annotations

import sys
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from clusterctl.console.terminal import wants_color
from clusterctl.console.text import json_text, sanitize

if TYPE_CHECKING:
    from clusterctl.client.watch.follower import LogLines

# Readable on dark and light backgrounds; a node keeps its colour in every run because its name chooses it.
_COLORS = (36, 33, 35, 32, 34, 96, 93, 95, 92, 94)
_RED, _PLAIN = "\x1b[31m", "\x1b[0m"


class Logs(Protocol):
    """Takes log lines as they come."""

    def show(self, entry: LogLines) -> None:
        """Write complete lines of one file."""


class ManyLogs(Logs, Protocol):
    """Takes the lines of several files at once too."""

    def show_all(self, entries: Iterable[LogLines]) -> None:
        """Write complete lines of several files."""


class LogPrinter:
    """Writes log lines as `gpu02 r3 | text`; lines of stderr have `!` for `|`.

    `timed` puts before each line when it was written, by the clock and in the zone of this machine.
    """

    def __init__(
        self, names: Iterable[str], world_size: int, stream: TextIO | None = None, *, timed: bool = False
    ) -> None:
        self._stream = stream or sys.stdout
        self._timed = timed
        self._second: tuple[int, str] = (-1, "")
        self._color = wants_color(self._stream)
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
        label, mark = self._label(entry), self._mark(entry)
        gone = f"{self._at(entry.began)}{label} ~ {describe_gone(entry.gone)}\n" if entry.gone else ""
        if not self._timed:
            return gone + "".join([f"{label} {mark} {sanitize(line)}\n" for line in entry.lines])
        timed = zip(entry.times, entry.lines, strict=True)
        return gone + "".join(
            [f"{self._at(moment)}{label} {mark} {sanitize(line)}\n" for moment, line in timed]
        )

    def _at(self, moment: float) -> str:
        """Write a time as `11-21 14:05:03.2 `; of the seconds the last is remembered, for lines come in crowds."""
        if not self._timed:
            return ""
        tenths = int(moment * 10)
        if self._second[0] != tenths // 10:
            self._second = tenths // 10, time.strftime("%m-%d %H:%M:%S", time.localtime(tenths // 10))
        return f"{self._second[1]}.{tenths % 10} "

    def _mark(self, entry: LogLines) -> str:
        if entry.stream != "stderr":
            return "|"
        return f"{_RED}!{_PLAIN}" if self._color else "!"

    def _label(self, entry: LogLines) -> str:
        rank = "-" if entry.rank is None else f"r{entry.rank}"
        name = sanitize(entry.node) + " " * (self._width - display_width(entry.node))
        label = f"{name} {rank.ljust(self._rank_width)}"
        return f"\x1b[{node_color(entry.node)}m{label}{_PLAIN}" if self._color else label


class JsonLogs:
    """Writes log lines as NDJSON, one object a line, text as it came."""

    def __init__(self, run: str, ranks: Mapping[str, int]) -> None:
        self._run = run
        self._ranks = ranks

    def show(self, entry: LogLines) -> None:
        """Write complete lines of one file."""
        self.show_all((entry,))

    def show_all(self, entries: Iterable[LogLines]) -> None:
        """Write the lines of several files; `offset` is each line's place in the file in bytes."""
        for entry in entries:
            sys.stdout.write("".join(json_text(one) + "\n" for one in self._records(entry)))
        sys.stdout.flush()

    def _records(self, entry: LogLines) -> Iterator[dict[str, Any]]:
        from clusterctl.plans.runs.gang_record import attempt_of

        about = {
            "schema": 1,
            "run": self._run,
            "node": entry.node,
            "node_rank": entry.node_rank if entry.node_rank is not None else self._ranks.get(entry.node),
            "attempt": attempt_of(entry.file),
            "rank": entry.rank,
            "stream": entry.stream,
        }
        if entry.gone:
            begin, end = entry.gone
            yield {
                **about,
                "offset": begin,
                "time": entry.began or entry.time,
                "line": "",
                "dropped": end - begin,
            }
        times = entry.times or (entry.time,) * len(entry.lines)
        for line, offset, moment in zip(entry.lines, entry.offsets, times, strict=True):
            yield {**about, "offset": offset, "time": moment, "line": line}


def describe_gone(gone: tuple[int, int]) -> str:
    """Say what is missing in a log that was cut."""
    from clusterctl.console.progress import render_size

    return f"{render_size(gone[1] - gone[0])} of this log were dropped here to hold log_limit"


def display_width(name: str) -> int:
    """Count the columns a name takes on a terminal; a Chinese character takes two."""
    if name.isascii():
        return len(name)
    from rich.cells import cell_len

    return cell_len(name)


def node_color(name: str) -> int:
    """Choose an SGR colour by the node's name."""
    return _COLORS[zlib.crc32(name.encode()) % len(_COLORS)]
