"""What the nodes together know of a run's end: the record that each of them keeps, read with distrust."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from clusterctl.plans.cause import DOUBTFUL, Failure, weigh
from clusterctl.plans.words import Words

LOST = "LOST"
LONGEST = 4096  # characters of a text
LATEST = 1e11  # seconds since 1970


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

    `names` are the nodes of the inventory.
    """
    told = [record.among(names) for record in records if record is not None]
    known = [record for record in told if record.parts]
    whole = [record for record in known if record.whole]
    if whole:
        return max(whole, key=lambda record: (record.attempts, len(record.parts)))
    parts: dict[str, RecordedPart] = {}
    for part in (part for record in known for part in record.parts):
        if part.node not in parts or parts[part.node].lost:
            parts[part.node] = part
    stops = [part.stopped_at for part in parts.values() if part.stopped_at is not None]
    return Record(known[0].hub, False, min(stops, default=None), tuple(parts.values())) if known else None


def given_up(record: Record, failures: Sequence[Failure], stopped_at: float | None) -> list[Failure]:
    """Give the nodes that the gang lost and that know of no trouble of their own: SSH reaches them, their peers do not.

    Where node 0 has lost all the others, it is node 0 that is cut off.
    """
    troubled = {failure.node for failure in failures if weigh(failure, stopped_at) < DOUBTFUL}
    lost = [failure for failure in record.failures if failure.lost and failure.node not in troubled]
    others = {part.node for part in record.parts} - {record.hub}
    if record.hub and len(others) > 1 and others == {failure.node for failure in lost} and record.hub not in troubled:
        first = min(lost, key=lambda failure: failure.time)
        return [
            replace(first, node=record.hub, reason="lost: none of the other nodes was heard there any more")
        ]
    return lost


def _moved(failure: Failure, offset: float) -> Failure:
    raised_at = None if failure.raised_at is None else failure.raised_at - offset
    return replace(failure, time=failure.time - offset, raised_at=raised_at)


def parse_record(raw: Any) -> Record | None:
    """Read a record; None if it is none, and what is of the wrong type is left out."""
    if not isinstance(raw, Mapping) or not isinstance(raw.get("parts"), list):
        return None
    parts = tuple(_parse_part(part) for part in _mappings(raw["parts"]))
    stop = raw.get("stop")
    stops = [part.stopped_at for part in parts] + [
        _time(stop.get("time")) if isinstance(stop, Mapping) else None
    ]
    stopped_at = min((moment for moment in stops if moment is not None), default=None)
    earlier = len(_mappings(raw.get("attempts")))
    return Record(_text(raw.get("hub")), raw.get("whole") is True, stopped_at, parts, earlier)


def _parse_part(raw: Mapping[str, Any]) -> RecordedPart:
    node, state, reason = _text(raw.get("node")), _text(raw.get("state")), _text(raw.get("reason"))
    ended = _time(raw.get("time")) or 0.0
    stopped_at = _time(raw.get("stopped_at"))
    failures = [_parse_failure(node, ended, stopped_at, one) for one in _mappings(raw.get("failures"))]
    if state == LOST:
        failures.append(Failure(node, None, None, None, ended, reason=f"lost: {reason}", lost=True))
    rank, address = _number(raw.get("node_rank")) or 0, _text(raw.get("address"))
    return RecordedPart(node, rank, state, reason, stopped_at, tuple(failures), address)


def _parse_failure(node: str, ended: float, stopped_at: float | None, raw: Mapping[str, Any]) -> Failure:
    moment = _time(raw.get("time")) or ended
    words = _hear(raw, _time(raw.get("last_at")) or moment)
    return Failure(
        node=node,
        rank=_number(raw.get("rank")),
        exit=_number(raw.get("exit")),
        signal=_number(raw.get("signal")),
        time=moment,
        tail=tuple(words.tail),
        exception=words.exception,
        message=words.message,
        raised_at=words.raised_at,
        reason=_text(raw.get("reason")),
        origin=words.origin,
        where=words.where,
        went_on=words.went_on,
        frozen=raw.get("frozen") is True,
        starved=raw.get("starved") is True,
        after_stop=stopped_at is not None and moment >= stopped_at,
    )


def _hear(raw: Mapping[str, Any], last_at: float) -> Words:
    """Hear the tracebacks again, and remember the last lines."""
    words, tail = Words(), tuple(_lines(raw.get("tail")))
    blocks = _mappings(raw.get("said"))
    for block in blocks:
        for line in _lines(block.get("lines")):
            words.hear(line, _time(block.get("at")) or last_at)
    if not blocks:
        for line in tail:
            words.hear(line, last_at)
    words.tail.clear()
    words.tail.extend(tail)
    words.notice(last_at)
    return words


def _mappings(raw: Any) -> list[Mapping[str, Any]]:
    return [entry for entry in raw if isinstance(entry, Mapping)] if isinstance(raw, list) else []


def _lines(raw: Any) -> Iterator[str]:
    yield from (_text(line) for line in raw) if isinstance(raw, list) else ()


def _text(value: Any) -> str:
    return value[:LONGEST].encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _time(value: Any) -> float | None:
    usable = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < LATEST
    return float(value) if usable else None
