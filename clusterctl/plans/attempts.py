"""Attempts of one run: who takes part in the current one, and why those before it ended; read with distrust."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from clusterctl.specs.counted import counted

_FOLDER = re.compile(r"attempt-(\d{1,9})/")
LONGEST = 1000  # characters of a text
NO_PROGRESS = "no_progress"
GIVEN_UP: Mapping[str, str] = {
    NO_PROGRESS: "given up: three attempts in a row made no progress",
    "max": "given up: it was started again as often as `restart.max` allows",
    "code": "not started again: that is an error of the script",
    "reason": "not started again: the job's `restart.on` does not name this reason",
    "nodes": "given up: fewer nodes are left than the job needs",
    "majority": "given up: not more than half of all nodes and spares are left; only a majority may go on, so that a "
    "run cannot go on twice",
}


@dataclass(frozen=True)
class Seat:
    """One agent of a run: a node of the inventory, and its rank now; None for an idle spare, and for who is gone.

    `reason` says why it is gone, or why it can take part no more.
    """

    number: int
    node: str
    node_rank: int | None
    lost: bool = False
    reason: str = ""

    @property
    def idle(self) -> bool:
        """Tell whether it is a spare that nobody needed so far."""
        return self.node_rank is None and not self.lost and not self.reason


@dataclass(frozen=True)
class Attempt:
    """One that has ended: `reason` is a word of `restart.on` or `code`, `text` says what happened.

    `node_rank` and `ranks` are those of the node that tells; times are seconds by its clock.
    """

    number: int
    reason: str
    text: str
    node: str
    began: float | None
    ended: float | None
    progress: bool | None
    node_rank: int | None = None
    ranks: tuple[int, ...] = ()


def warn_of_losses(nodes: int, spares: int) -> str:
    """Say so if a run survives fewer lost nodes than it has spares: more than half of all must be left each time."""
    survived = min(spares, (nodes + spares - 1) // 2)
    if survived == spares:
        return ""
    losses = f"only {counted(survived, 'lost node')}" if survived else "no lost node"
    return (
        f"{counted(spares, 'spare')}, but {losses} can be survived: "
        f"more than half of all {nodes + spares} nodes and spares must be left"
    )


def parse_roster(raw: Any) -> tuple[Seat, ...]:
    """Read who has which seat; what is of the wrong type is left out, never an error."""
    return tuple(
        Seat(
            _number(entry.get("seat")) or 0,
            _text(entry.get("node")),
            _number(entry.get("node_rank")),
            entry.get("lost") is True,
            _text(entry.get("reason") or entry.get("unfit")),
        )
        for entry in _mappings(raw)
    )


def parse_attempts(raw: Any) -> tuple[Attempt, ...]:
    """Read the attempts that have ended, the first one first; what is of the wrong type is left out."""
    return tuple(sorted(map(_parse_attempt, _mappings(raw)), key=lambda attempt: attempt.number))


def _parse_attempt(raw: Mapping[str, Any]) -> Attempt:
    ranks = raw.get("ranks")
    known = [int(rank) for rank in ranks if _is_rank(rank)] if isinstance(ranks, Mapping) else []
    progress = raw.get("progress")
    return Attempt(
        number=_number(raw.get("attempt")) or 0,
        reason=_text(raw.get("cause_reason") or raw.get("reason")),
        text=_text(raw.get("text")),
        node=_text(raw.get("node")),
        began=_time(raw.get("began")),
        ended=_time(raw.get("ended")),
        progress=progress if isinstance(progress, bool) else None,
        node_rank=_number(raw.get("node_rank")),
        ranks=tuple(sorted(known)),
    )


def attempt_of(file: str) -> int:
    """Tell to which attempt a log file belongs, by its path below the run's directory."""
    found = _FOLDER.match(file)
    return int(found[1]) if found else 1


def _is_rank(value: Any) -> bool:
    return isinstance(value, str) and value.isdecimal() and len(value) < 10


def _mappings(raw: Any) -> Iterator[Mapping[str, Any]]:
    yield from (entry for entry in raw if isinstance(entry, Mapping)) if isinstance(raw, list) else ()


def _text(value: Any) -> str:
    return value[:LONGEST].encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _time(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
