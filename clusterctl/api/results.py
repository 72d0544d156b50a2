"""What each rank returned, read from the lines of its log; each line is a node's, which may write anything."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from clusterctl.console.text import sanitize
from clusterctl.errors import ClusterctlError
from clusterctl.protocol.untrusted import MAX_BYTES, MalformedError, count_values, parse_json

if TYPE_CHECKING:
    from clusterctl.console.documents.runs import LogLine

MARK = "clusterctl-result: "  # as `on_rank` writes it
_PIECE = re.compile(r"(json|unwritable|large) (\d{1,4}) (\d{1,4}) (\d{1,6}) (.*)", re.DOTALL)
MAX_TOTAL = 64 << 20  # characters of the results of all ranks
MAX_VALUES = 1_000_000  # of the results of all ranks


@dataclass
class _Result:
    """What one rank has written so far; `fault` is a case of CC-RUN-061."""

    node: str
    kind: str
    count: int
    world: int
    pieces: list[str] = field(default_factory=list)
    fault: str = ""


@dataclass
class Results:
    """Collects results from log lines, by attempt: a line may name any."""

    _size: int = 0
    _results: dict[int, dict[int, _Result]] = field(default_factory=dict)

    def feed(self, entry: LogLine) -> None:
        """Keep a line that is a piece of a result."""
        mark, rank = entry.get("line", "").find(MARK), entry["rank"]
        if mark < 0 or rank is None:
            return
        self._size += len(entry["line"])
        if self._size <= MAX_TOTAL:
            results = self._results.setdefault(entry["attempt"], {})
            _add(results, rank, entry["node"], entry["line"][mark + len(MARK) :])

    def values(self, run: str, attempt: int) -> list[Any]:
        """Return the results of an attempt in the order of the ranks.

        ClusterctlError if one is missing or cannot be read.
        """
        if self._size > MAX_TOTAL:
            raise ClusterctlError("CC-RUN-061", "total", run=run, most=MAX_TOTAL >> 20)
        results = self._results.get(attempt, {})
        world = max((result.world for result in results.values()), default=1)
        missing = next((rank for rank in range(world) if rank not in results), None)
        if missing is not None:
            raise ClusterctlError("CC-RUN-061", "missing", run=run, rank=missing)
        values, left = [], MAX_VALUES
        for rank, result in sorted(results.items()):
            value, count = _read(result, run, rank, world, left)
            values.append(value)
            left -= count
        return values


def _add(results: dict[int, _Result], rank: int, node: str, text: str) -> None:
    found = _PIECE.fullmatch(text)
    if found is None:
        results.setdefault(rank, _Result(node, "", 0, 0)).fault = "malformed"
        return
    kind, (index, count, world) = found[1], map(int, found.group(2, 3, 4))
    result = results.setdefault(rank, _Result(node, kind, count, world))
    if result.node != node:
        result.fault = "twice"
        result.node = f"{result.node}, {node}"
    elif (result.kind, result.count, result.world) != (kind, count, world) or index != len(result.pieces):
        result.fault = "malformed"
    else:
        result.pieces.append(found[5])


def _read(result: _Result, run: str, rank: int, world: int, most_values: int) -> tuple[Any, int]:
    """Return the value of a rank, and how many values of JSON it has; all ranks share the limit."""
    if not result.fault and (len(result.pieces) != result.count or world != result.world or rank >= world):
        result.fault = "malformed"
    text = "".join(result.pieces).encode()
    count = count_values(text, most_values)
    if not result.fault and count > most_values:
        raise ClusterctlError("CC-RUN-061", "values", run=run, most=MAX_VALUES)
    value: Any = "the pieces do not belong together"
    try:
        if not result.fault:
            value = parse_json(text, MAX_BYTES, most_values)
    except MalformedError as error:
        value, result.fault = error, "malformed"
    if not result.fault and result.kind == "json":
        return value, count
    case, reason = result.fault or result.kind, sanitize(str(value)[:1000])
    place = f"rank {rank} on {result.node}"
    raise ClusterctlError("CC-RUN-061", case, run=run, place=place, reason=reason, most=MAX_BYTES >> 20)
