"""Signs of life of a rank, as its node tells them; read with distrust."""

from __future__ import annotations

from dataclasses import dataclass

from clusterctl.protocol.untrusted import Untrusted

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


def parse_pulses(raw: Untrusted, most: int) -> tuple[Pulse, ...]:
    """Read what a node says of at most so many ranks."""
    pulses = [
        Pulse(
            rank,
            entry.text("line", LONGEST_LINE),
            entry.moment("written"),
            entry.text("process", 1),
            entry.moment("started"),
        )
        for rank, entry in raw.numbered_records("pulses", most)
    ]
    return tuple(sorted(pulses, key=lambda pulse: pulse.rank))
