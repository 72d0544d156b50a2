"""The gang's record of the end, parsed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from clusterctl.plans.runs.root_cause import DOUBTFUL, Failure, weigh
from clusterctl.plans.runs.tracebacks import Words
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.text import counted

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


LOST = "LOST"
# More than the hub keeps (node/gang/membership.py, evidence.py): what is beyond was not written by one of ours.
MOST_FAILURES = 1000  # of a node
MOST_LINES, MOST_BLOCKS = 200, 50  # of a rank's last words
MOST_RANK = 1 << 20
LONGEST_ADDRESS = 64  # characters
MOST_EXIT, MOST_SIGNAL = 1 << 31, 128


@dataclass(frozen=True)
class RecordedPart:
    """One node's part as the hub wrote it down; times are seconds on the hub's clock."""

    node: str
    node_rank: int
    state: str
    reason: str
    stopped_at: float | None
    failures: tuple[Failure, ...]
    address: str = ""  # on the training network

    @property
    def lost(self) -> bool:
        """Tell whether the others lost it, so that these are not its own words."""
        return self.state == LOST


@dataclass(frozen=True)
class Record:
    """The end of a run; `whole` if the hub has heard of every node."""

    hub: str
    whole: bool
    stopped_at: float | None
    parts: tuple[RecordedPart, ...]
    attempts: int = 0  # that have ended before the one that it tells of

    def on_clock(self, offset: float) -> Record:
        """Turn all times to a clock from which the hub's differs by `offset` seconds."""
        parts = (
            replace(part, failures=tuple(_moved(failure, offset) for failure in part.failures))
            for part in self.parts
        )
        stopped_at = None if self.stopped_at is None else self.stopped_at - offset
        return replace(self, stopped_at=stopped_at, parts=tuple(parts))

    def among(self, names: Collection[str]) -> Record:
        """Leave out what is told of nodes that the inventory does not have: such a name may be anything."""
        parts = tuple(part for part in self.parts if part.node in names)
        return replace(self, hub=self.hub if self.hub in names else "", parts=parts)

    @property
    def failures(self) -> tuple[Failure, ...]:
        """Give everything that did not end well, and the ranks that did."""
        return tuple(failure for part in self.parts for failure in part.failures)

    @property
    def addresses(self) -> dict[str, str]:
        """Give the nodes' training addresses, as far as they are known."""
        return {part.node: part.address for part in self.parts if part.address}


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


def _moved(failure: Failure, offset: float) -> Failure:
    raised_at = None if failure.raised_at is None else failure.raised_at - offset
    return replace(failure, time=failure.time - offset, raised_at=raised_at)


def parse_record(raw: Untrusted) -> Record | None:
    """Read a record; None if it is none."""
    if not raw.is_list("parts"):
        return None
    parts = tuple(map(_parse_part, raw.records("parts", MOST_SEATS)))
    stops = [part.stopped_at for part in parts] + [raw.record("stop").moment("time")]
    stopped_at = min((moment for moment in stops if moment is not None), default=None)
    earlier = min(raw.length("attempts"), MOST_ATTEMPTS)
    return Record(raw.text("hub"), raw.flag("whole"), stopped_at, parts, earlier)


def _parse_part(raw: Untrusted) -> RecordedPart:
    node, state, reason = raw.text("node"), raw.text("state"), raw.text("reason")
    ended = raw.moment("time") or 0.0
    stopped_at = raw.moment("stopped_at")
    failures = [
        _parse_failure(node, ended, stopped_at, one) for one in raw.records("failures", MOST_FAILURES)
    ]
    if state == LOST:
        failures.append(Failure(node, None, None, None, ended, reason=f"lost: {reason}", lost=True))
    rank, address = raw.count("node_rank", MOST_SEATS), raw.text("address", LONGEST_ADDRESS)
    return RecordedPart(node, rank, state, reason, stopped_at, tuple(failures), address)


def _parse_failure(node: str, ended: float, stopped_at: float | None, raw: Untrusted) -> Failure:
    moment = raw.moment("time") or ended
    words = _hear(raw, raw.moment("last_at") or moment)
    return Failure(
        node=node,
        rank=raw.integer("rank", 0, MOST_RANK),
        exit=raw.integer("exit", -MOST_EXIT, MOST_EXIT),
        signal=raw.integer("signal", 1, MOST_SIGNAL),
        time=moment,
        tail=tuple(words.tail),
        exception=words.exception,
        message=words.message,
        raised_at=words.raised_at,
        reason=raw.text("reason"),
        origin=words.origin,
        where=words.where,
        went_on=words.went_on,
        frozen=raw.flag("frozen"),
        starved=raw.flag("starved"),
        after_stop=stopped_at is not None and moment >= stopped_at,
    )


def _hear(raw: Untrusted, last_at: float) -> Words:
    """Hear the tracebacks again, and remember the last lines."""
    words, tail = Words(), raw.texts("tail", MOST_LINES)
    blocks = raw.records("said", MOST_BLOCKS)
    for block in blocks:
        for line in block.texts("lines", MOST_LINES):
            words.hear(line, block.moment("at") or last_at)
    if not blocks:
        for line in tail:
            words.hear(line, last_at)
    words.tail.clear()
    words.tail.extend(tail)
    words.notice(last_at)
    return words
