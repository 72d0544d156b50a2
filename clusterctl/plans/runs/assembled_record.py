"""Which record of a run's end counts: the best complete one, or one put together from what each node reports of itself.

A node that the others lost has the part that they have written of it; one of which nothing is known is UNKNOWN.
Not here: what is made of a record (`protocol/end_record.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from clusterctl.plans.runs.state import NodeState, Parts, taking_part
from clusterctl.protocol.end_record import EndRecord, RecordedPart
from clusterctl.protocol.ranks import NodeRank
from clusterctl.protocol.root_cause import Failure
from clusterctl.protocol.states import FAILED, LOST, SUCCEEDED, UNKNOWN

NOT_ITS_END = (LOST, UNKNOWN)  # what is left of a node that could not record how its part ended


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


def assemble_record(
    parts: Parts, names: Collection[str], offsets: Mapping[str, float], unreachable: Mapping[str, str]
) -> EndRecord:
    """Put the record together, on our clock; `unreachable` is why a node was given up that was followed."""
    now = taking_part(parts)
    has_begun = any(part.began is not None or part.state == SUCCEEDED for part in now.values() if part)
    by_others = _parts_by_others(now, {*parts, *names}, offsets)
    recorded = [
        _part_of(name, part, by_others.get(name), offsets.get(name, 0.0), unreachable.get(name, ""))
        for name, part in now.items()
        if part is not None or has_begun or name in by_others or name in unreachable
    ]
    recorded += [part for name, part in by_others.items() if name not in parts]
    missing = (
        _count_missing(now, len(recorded)) if has_begun else 0
    )  # a run that never began needs none of them
    recorded += [_unknown_part("")] * missing
    stops = [part.stopped_at for part in recorded if part.stopped_at is not None]
    attempt = max((part.attempt for part in parts.values() if part), default=1)
    return EndRecord("", False, min(stops, default=None), tuple(recorded), attempt)


def with_own_reasons(record: EndRecord, parts: Parts, offsets: Mapping[str, float]) -> EndRecord:
    """Put in why a node was lost, where that node still answers and reports that its agent is gone.

    That explains the loss better than its peers can; it changes neither the state of the run nor who is its cause.
    """
    return replace(
        record,
        parts=tuple(
            replace(
                recorded, failures=tuple(_own_reason(failure, part, offsets) for failure in recorded.failures)
            )
            if recorded.lost
            and (part := parts.get(recorded.node))
            and part.state in (FAILED, LOST)
            and part.reason
            else recorded
            for recorded in record.parts
        ),
    )


def _own_reason(lost: Failure, part: NodeState, offsets: Mapping[str, float]) -> Failure:
    ended = part.since - offsets.get(part.node, 0.0)
    return replace(lost, reason=part.reason, time=ended, lost=False, cut_off=True)


def _count_missing(parts: Parts, known: int) -> int:
    """Count the nodes that take part and of which nothing is known."""
    answered = [part for part in parts.values() if part]
    if any(part.is_queued for part in answered):
        return 0  # one part stands for all nodes
    return max(0, max((part.nnodes for part in answered), default=0) - known)


def _parts_by_others(
    parts: Parts, names: Collection[str], offsets: Mapping[str, float]
) -> dict[str, RecordedPart]:
    """Return what nodes have on record of others; where several have, that with the last sign of life."""
    found: dict[str, RecordedPart] = {}
    for name, part in parts.items():
        record = part.record.shift_to_clock(offsets.get(name, 0.0)) if part and part.record else None
        for other in record.only_nodes(names).parts if record else ():
            if other.node != name and other.lost and _last_sign(other) >= _last_sign(found.get(other.node)):
                found[other.node] = other
    return found


def _last_sign(part: RecordedPart | None) -> float:
    return max((failure.last_seen or 0.0 for failure in part.failures), default=0.0) if part else -1.0


def _part_of(
    name: str, part: NodeState | None, by_others: RecordedPart | None, offset: float, unreachable: str
) -> RecordedPart:
    if by_others is not None:
        return by_others
    if part is not None:
        return _own_part(part, offset)
    if unreachable:
        lost = Failure(name, None, None, None, 0.0, reason=f"lost: {unreachable}", lost=True)
        return RecordedPart(name, NodeRank(0), LOST, unreachable, None, (lost,))
    return _unknown_part(name)


def _unknown_part(name: str) -> RecordedPart:
    return RecordedPart(name, NodeRank(0), UNKNOWN, "", None, ())


def _own_part(part: NodeState, offset: float) -> RecordedPart:
    """Return what a node has on record of itself; without that what its state shows."""
    if part.record is not None:
        for recorded in part.record.shift_to_clock(offset).parts:
            if recorded.node == part.node and not recorded.lost:
                return recorded
    ended = part.since - offset
    failures = [
        Failure(part.node, rank.rank, rank.exit, rank.signal, ended, oom_killed=rank.oom_killed)
        for rank in part.ranks
        if rank.failed or rank.exit == 0
    ]
    if part.state in (FAILED, *NOT_ITS_END) and not any(failure.exit for failure in failures):
        failures.append(Failure(part.node, None, None, None, ended, reason=part.reason or part.state))
    state = UNKNOWN if part.live else part.state
    end = RecordedPart(part.node, part.node_rank, state, part.reason, None, tuple(failures))
    return replace(end, stop_kind=part.stop_kind, alone=part.alone)
