"""Log lines of many ranks on one screen: an aligned, coloured prefix and text that does no harm."""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol, TextIO

from clusterctl.console.choice import wants_color
from clusterctl.console.sanitize import sanitize

if TYPE_CHECKING:
    from clusterctl.runs.follow import LogLines

# Readable on dark and light backgrounds; a node keeps its colour in every run because its name chooses it.
_COLORS = (36, 33, 35, 32, 34, 96, 93, 95, 92, 94)
_RED, _PLAIN = "\x1b[31m", "\x1b[0m"


class Logs(Protocol):
    """Takes log lines as they come."""

    def show(self, entry: LogLines) -> None:
        """Write complete lines of one file."""


class LogPrinter:
    """Writes log lines as `gpu02 r3 | text`; lines of stderr have `!` for `|`."""

    def __init__(self, names: Iterable[str], world_size: int, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._color = wants_color(self._stream)
        self._width = max((display_width(name) for name in names), default=0)
        self._rank_width = len(str(max(world_size - 1, 0))) + 1

    def show(self, entry: LogLines) -> None:
        """Write complete lines of one file."""
        prefix = self._prefix(entry)
        self._stream.write("".join(f"{prefix}{sanitize(line)}\n" for line in entry.lines))
        self._stream.flush()

    def _prefix(self, entry: LogLines) -> str:
        rank = "-" if entry.rank is None else f"r{entry.rank}"
        name = entry.node + " " * (self._width - display_width(entry.node))
        label = f"{name} {rank.ljust(self._rank_width)}"
        mark = "!" if entry.stream == "stderr" else "|"
        if not self._color:
            return f"{label} {mark} "
        shade = f"\x1b[{node_color(entry.node)}m"
        return f"{shade}{label}{_PLAIN} {_RED + mark + _PLAIN if mark == '!' else mark} "


class JsonLogs:
    """Writes log lines as NDJSON, one object a line, text as it came."""

    def __init__(self, run: str, ranks: Mapping[str, int]) -> None:
        self._run = run
        self._ranks = ranks

    def show(self, entry: LogLines) -> None:
        """Write complete lines of one file; `offset` is each line's place in the file in bytes."""
        from clusterctl.plans.attempts import attempt_of

        offset = entry.offset
        for line, size in zip(entry.lines, entry.sizes, strict=True):
            record = {
                "schema": 1,
                "run": self._run,
                "node": entry.node,
                "node_rank": entry.node_rank if entry.node_rank is not None else self._ranks.get(entry.node),
                "attempt": attempt_of(entry.file),
                "rank": entry.rank,
                "stream": entry.stream,
                "offset": offset,
                "time": entry.time,
                "line": line,
            }
            sys.stdout.write(json.dumps(record, ensure_ascii=False) + "\n")
            offset += size
        sys.stdout.flush()


def display_width(name: str) -> int:
    """Count the columns a name takes on a terminal; a Chinese character takes two."""
    if name.isascii():
        return len(name)
    from rich.cells import cell_len

    return cell_len(name)


def node_color(name: str) -> int:
    """Choose an SGR colour by the node's name."""
    return _COLORS[zlib.crc32(name.encode()) % len(_COLORS)]
