"""The gang's record of a run's end, read for the judge: by the client, and by the hub that has put it together.

A part is one node's account; see `node/gang/messages.py` for what is written, and `root_cause` for what is made of it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from .root_cause import Failure
from .tracebacks import Words
from .untrusted import Untrusted

MOST_SEATS = 10_000  # nodes of a run
MOST_ATTEMPTS = 10_000
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


def _moved(failure: Failure, offset: float) -> Failure:
    raised_at = None if failure.raised_at is None else failure.raised_at - offset
    last_seen = None if failure.last_seen is None else failure.last_seen - offset
    return replace(failure, time=failure.time - offset, raised_at=raised_at, last_seen=last_seen)


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
        # an older record does not hold `last_seen`: the loss was noticed at `time`
        last_seen = raw.moment("last_seen") if "last_seen" in raw else ended or None
        lost = Failure(node, None, None, None, ended, reason=f"lost: {reason}", lost=True)
        failures.append(replace(lost, last_seen=last_seen))
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
        raised_at=words.raised_at or None,
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
