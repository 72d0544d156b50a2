"""Signs of life of a rank, as its node tells them; read with distrust."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LONGEST_LINE = 300


@dataclass(frozen=True)
class Pulse:
    """A living rank: its last line and when its logs were last written to, by that node's clock.

    `process` is the kernel's letter for its process: R, S, D, T. `started` is when the process began.
    """

    rank: int
    line: str = ""
    written: float | None = None
    process: str = ""
    started: float | None = None


def parse_pulses(raw: Any) -> tuple[Pulse, ...]:
    """Read what a node says; what is of the wrong type is left out, never an error."""
    if not isinstance(raw, Mapping):
        return ()
    pulses = [
        Pulse(
            int(rank),
            _text(entry.get("line"))[:LONGEST_LINE],
            _seconds(entry.get("written")),
            _text(entry.get("process"))[:1],
            _seconds(entry.get("started")),
        )
        for rank, entry in raw.items()
        if isinstance(rank, str) and rank.isdecimal() and len(rank) < 10 and isinstance(entry, Mapping)
    ]
    return tuple(sorted(pulses, key=lambda pulse: pulse.rank))


def _text(value: Any) -> str:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def _seconds(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
