"""What the nodes report of the whole run: its attempts, its roster, and which of their records counts."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from clusterctl.protocol.end_record import MOST_ATTEMPTS, MOST_SLOTS, EndRecord
from clusterctl.protocol.messages.gang import NO_PROGRESS
from clusterctl.protocol.ranks import NodeRank, Rank, Slot
from clusterctl.protocol.run_paths import ATTEMPT
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.translation import to_translate

_FOLDER = re.compile(rf"{ATTEMPT}(\d{{1,9}})/")
LONGEST_TEXT = 1000  # characters of a text
MOST_RANKS = 1000  # of a node
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
    """Choose the complete record that counts: of the latest attempt, and of these the one that has lost fewest nodes.

    All nodes that received the hub's keep the same one. `names` are the nodes of the inventory; what a record reports
    of others is left out.
    """
    complete = [record.only_nodes(names) for record in records if record is not None and record.complete]
    return max(
        (record for record in complete if record.parts),
        key=lambda record: (record.attempt, -len(record.lost_nodes)),
        default=None,
    )
