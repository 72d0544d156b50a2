"""What the nodes report of the whole run: its attempts, its roster, and which of their records counts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from clusterctl.protocol.end_record import MOST_ATTEMPTS, MOST_SLOTS, EndRecord, RecordedPart
from clusterctl.protocol.ranks import NodeRank, Rank, Slot
from clusterctl.protocol.root_cause import DOUBTFUL, Failure, weight_of
from clusterctl.protocol.run_paths import ATTEMPT
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.translation import to_translate

_FOLDER = re.compile(rf"{ATTEMPT}(\d{{1,9}})/")
LONGEST_TEXT = 1000  # characters of a text
MOST_RANKS = 1000  # of a node
NO_PROGRESS = "no_progress"
GIVEN_UP: Mapping[str, str] = {
    NO_PROGRESS: to_translate("given up: three attempts in a row made no progress"),
    "max": to_translate("given up: it was started again as often as `restart.max` allows"),
    "code": to_translate("not started again: that is an error of the script"),
    "reason": to_translate("not started again: the job's `restart.on` does not name this reason"),
    "nodes": to_translate("given up: fewer nodes are left than the job needs"),
    "majority": to_translate(
        "given up: half or more of all nodes and spares are lost; only a majority may continue a run, "
        "or it could run twice"
    ),
}


@dataclass(frozen=True)
class SlotState:
    """One agent of a run: a node of the inventory, and its rank now; None for an idle spare, and for who is gone.

    `reason` is why it is gone, or why it can take part no more.
    """

    number: Slot
    node: str
    node_rank: NodeRank | None
    lost: bool = False
    reason: str = ""

    @property
    def is_idle(self) -> bool:
        """Return whether it is a spare that was not needed so far."""
        return self.node_rank is None and not self.lost and not self.reason


@dataclass(frozen=True)
class Attempt:
    """One that has ended: `reason` is a word of `restart.on` or `code`, `text` is what happened.

    `node_rank` and `ranks` are those of the node that reports it; times are seconds by its clock.
    """

    number: int
    reason: str
    text: str
    node: str
    began: float | None
    ended: float | None
    progress: bool | None
    node_rank: NodeRank | None = None
    ranks: tuple[Rank, ...] = ()


# How the reasons begin that node/gang gives when it stops the run: the hub's, and a node's view of the hub.
_LOSS = re.compile(
    r"(?:node \d{1,9} \((?P<hub>[^()\s]+)\)|(?P<node>[^()\s:]+)) is lost: (?P<why>.*)", re.DOTALL
)


@dataclass(frozen=True)
class ReportedLoss:
    """Why a node stops, as it reports it: `node` is silent; `is_hub` if that is its own view of the hub."""

    node: str
    why: str
    is_hub: bool


def find_reported_loss(reason: str) -> ReportedLoss | None:
    """Read from the reason of a stop which node is lost; None if it is another reason."""
    found = _LOSS.match(reason)
    return found and ReportedLoss(found["hub"] or found["node"], found["why"], found["hub"] is not None)


def parse_roster(raw: Untrusted) -> tuple[SlotState, ...]:
    """Read the slots of a run, in their order."""
    return tuple(
        SlotState(
            Slot(entry.count("slot", MOST_SLOTS)),
            entry.text("node", LONGEST_TEXT),
            parse_node_rank(entry),
            entry.flag("lost"),
            entry.text("reason", LONGEST_TEXT) or entry.text("unfit", LONGEST_TEXT),
        )
        for entry in raw.records("roster", MOST_SLOTS)
    )


def parse_node_rank(raw: Untrusted) -> NodeRank | None:
    """Read the rank of a node; None if it has none."""
    number = raw.integer("node_rank", 0, MOST_SLOTS)
    return None if number is None else NodeRank(number)


def parse_attempts(raw: Untrusted) -> tuple[Attempt, ...]:
    """Read the attempts that have ended, the first one first."""
    attempts = map(_parse_attempt, raw.records("attempts", MOST_ATTEMPTS))
    return tuple(sorted(attempts, key=lambda attempt: attempt.number))


def _parse_attempt(raw: Untrusted) -> Attempt:
    return Attempt(
        number=raw.count("attempt", MOST_ATTEMPTS),
        reason=raw.text("cause_reason", LONGEST_TEXT) or raw.text("reason", LONGEST_TEXT),
        text=raw.text("text", LONGEST_TEXT),
        node=raw.text("node", LONGEST_TEXT),
        began=raw.moment("began"),
        ended=raw.moment("ended"),
        progress=raw.choice("progress"),
        node_rank=parse_node_rank(raw),
        ranks=tuple(map(Rank, raw.indices("ranks", MOST_RANKS))),
    )


def attempt_of(file: str) -> int:
    """Return to which attempt a log file belongs, by its path below the run's directory."""
    match = _FOLDER.match(file)
    return int(match[1]) if match else 1


def choose_record(records: Iterable[EndRecord | None], names: Collection[str]) -> EndRecord | None:
    """Choose among what several nodes keep: the hub's, or else their own parts put together.

    All that received the hub's keep the same one, so that of different ones the one counts that most nodes have: what
    a single false one counts for nothing. `names` are the nodes of the inventory; records of others are left out.
    """
    restricted = [record.only_nodes(names) for record in records if record is not None]
    nonempty = [record for record in restricted if record.parts]
    complete = [record for record in nonempty if record.complete]
    if complete:
        votes = Counter(map(_outline, complete))
        # the first of the inventory among equals
        return max(complete, key=lambda record: votes[_outline(record)])
    parts: dict[str, RecordedPart] = {}
    for part in (part for record in nonempty for part in record.parts):
        if part.node not in parts or parts[part.node].lost:
            parts[part.node] = part
    stops = [part.stopped_at for part in parts.values() if part.stopped_at is not None]
    return (
        EndRecord(nonempty[0].hub, False, min(stops, default=None), tuple(parts.values()))
        if nonempty
        else None
    )


def _outline(record: EndRecord) -> tuple[object, ...]:
    return (
        record.hub,
        record.attempts,
        tuple((part.node, part.node_rank, part.state) for part in record.parts),
    )


def with_losses(record: EndRecord, failures: Sequence[Failure], stopped_at: float | None) -> list[Failure]:
    """Add the nodes that the gang lost; one that reports its own trouble keeps it, and is marked as cut off."""
    last_seen = {failure.node: failure.last_seen for failure in record.failures if failure.lost}
    marked = [
        replace(failure, cut_off=True, last_seen=last_seen[failure.node])
        if failure.reason and failure.node in last_seen and not failure.lost
        else failure
        for failure in failures
    ]
    return marked + find_given_up_nodes(record, failures, stopped_at)


def find_given_up_nodes(
    record: EndRecord, failures: Sequence[Failure], stopped_at: float | None
) -> list[Failure]:
    """Give the nodes that the gang lost and that know of no trouble of their own: SSH reaches them, their peers do not.

    Where node 0 has lost all the others, it is node 0 that is cut off.
    """
    failed_nodes = {failure.node for failure in failures if weight_of(failure, stopped_at) < DOUBTFUL}
    lost_failures = [
        failure for failure in record.failures if failure.lost and failure.node not in failed_nodes
    ]
    other_nodes = {part.node for part in record.parts} - {record.hub}
    if (
        record.hub
        and len(other_nodes) > 1
        and other_nodes == {failure.node for failure in lost_failures}
        and record.hub not in failed_nodes
    ):
        first = min(lost_failures, key=lambda failure: failure.time)
        return [
            replace(first, node=record.hub, reason="lost: none of the other nodes was heard there any more")
        ]
    return lost_failures
