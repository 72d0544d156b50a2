"""Attempts of one run: who takes part in the current one, and why those before it ended; read with distrust."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.counted import counted

_FOLDER = re.compile(r"attempt-(\d{1,9})/")
LONGEST = 1000  # characters of a text
MOST_SEATS = 10_000  # nodes of a run
MOST_ATTEMPTS = 10_000
MOST_RANKS = 1000  # of a node
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


def parse_roster(raw: Untrusted) -> tuple[Seat, ...]:
    """Read who has which seat."""
    return tuple(
        Seat(
            entry.count("seat", MOST_SEATS),
            entry.text("node", LONGEST),
            entry.integer("node_rank", 0, MOST_SEATS),
            entry.flag("lost"),
            entry.text("reason", LONGEST) or entry.text("unfit", LONGEST),
        )
        for entry in raw.records("roster", MOST_SEATS)
    )


def parse_attempts(raw: Untrusted) -> tuple[Attempt, ...]:
    """Read the attempts that have ended, the first one first."""
    attempts = map(_parse_attempt, raw.records("attempts", MOST_ATTEMPTS))
    return tuple(sorted(attempts, key=lambda attempt: attempt.number))


def _parse_attempt(raw: Untrusted) -> Attempt:
    return Attempt(
        number=raw.count("attempt", MOST_ATTEMPTS),
        reason=raw.text("cause_reason", LONGEST) or raw.text("reason", LONGEST),
        text=raw.text("text", LONGEST),
        node=raw.text("node", LONGEST),
        began=raw.moment("began"),
        ended=raw.moment("ended"),
        progress=raw.choice("progress"),
        node_rank=raw.integer("node_rank", 0, MOST_SEATS),
        ranks=raw.indices("ranks", MOST_RANKS),
    )


def attempt_of(file: str) -> int:
    """Tell to which attempt a log file belongs, by its path below the run's directory."""
    found = _FOLDER.match(file)
    return int(found[1]) if found else 1
