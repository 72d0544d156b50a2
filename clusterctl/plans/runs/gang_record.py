"""What the nodes say of the whole run: its attempts, who has which seat, and which of their records counts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from clusterctl.protocol.end_record import MOST_ATTEMPTS, MOST_SEATS, Record, RecordedPart
from clusterctl.protocol.root_cause import DOUBTFUL, Failure, weigh
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.text import counted

_FOLDER = re.compile(r"attempt-(\d{1,9})/")
LONGEST = 1000  # characters of a text
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


def best_record(records: Iterable[Record | None], names: Collection[str]) -> Record | None:
    """Choose among what several nodes keep: the hub's, or else their own parts put together.

    All that were told the hub's keep the same one, so that of different ones the one counts that most nodes have: what
    a liar says stands alone. `names` are the nodes of the inventory; what is said of others is left out.
    """
    told = [record.among(names) for record in records if record is not None]
    known = [record for record in told if record.parts]
    whole = [record for record in known if record.whole]
    if whole:
        count = Counter(map(_outline, whole))
        return max(
            whole, key=lambda record: count[_outline(record)]
        )  # the first of the inventory among equals
    parts: dict[str, RecordedPart] = {}
    for part in (part for record in known for part in record.parts):
        if part.node not in parts or parts[part.node].lost:
            parts[part.node] = part
    stops = [part.stopped_at for part in parts.values() if part.stopped_at is not None]
    return Record(known[0].hub, False, min(stops, default=None), tuple(parts.values())) if known else None


def _outline(record: Record) -> tuple[object, ...]:
    return (
        record.hub,
        record.attempts,
        tuple((part.node, part.node_rank, part.state) for part in record.parts),
    )


def with_losses(record: Record, failures: Sequence[Failure], stopped_at: float | None) -> list[Failure]:
    """Add the nodes that the gang lost; one that reports its own trouble keeps it, and is marked as cut off."""
    last_seen = {failure.node: failure.last_seen for failure in record.failures if failure.lost}
    marked = [
        replace(failure, cut_off=True, last_seen=last_seen[failure.node])
        if failure.reason and failure.node in last_seen and not failure.lost
        else failure
        for failure in failures
    ]
    return marked + given_up(record, failures, stopped_at)


def given_up(record: Record, failures: Sequence[Failure], stopped_at: float | None) -> list[Failure]:
    """Give the nodes that the gang lost and that know of no trouble of their own: SSH reaches them, their peers do not.

    Where node 0 has lost all the others, it is node 0 that is cut off.
    """
    troubled = {failure.node for failure in failures if weigh(failure, stopped_at) < DOUBTFUL}
    lost = [failure for failure in record.failures if failure.lost and failure.node not in troubled]
    others = {part.node for part in record.parts} - {record.hub}
    if (
        record.hub
        and len(others) > 1
        and others == {failure.node for failure in lost}
        and record.hub not in troubled
    ):
        first = min(lost, key=lambda failure: failure.time)
        return [
            replace(first, node=record.hub, reason="lost: none of the other nodes was heard there any more")
        ]
    return lost
