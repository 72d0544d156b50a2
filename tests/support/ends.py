"""Ends of runs as tests need them: a verdict from parts and failures, as a complete record would have them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from clusterctl.plans.runs.state import NO_OFFSETS, NodeState, taking_part
from clusterctl.plans.runs.verdict import Verdict, conclude, make_verdict
from clusterctl.protocol.end_record import EndRecord, RecordedPart, judge_end, parse_record
from clusterctl.protocol.ranks import NodeRank
from clusterctl.protocol.root_cause import Cause, Failure, find_cause
from clusterctl.protocol.run_id import RunId
from clusterctl.protocol.states import FAILED, LOST, UNKNOWN, RunState
from clusterctl.protocol.untrusted import Untrusted


def judge(
    run_id: str,
    parts: Mapping[str, NodeState | None],
    failures: Sequence[Failure],
    *,
    stopped_at: float | None = None,
) -> Verdict:
    """Return the verdict on a record with these failures, whose parts are as the nodes report them."""
    now = taking_part(parts)
    names = dict.fromkeys([*now, *(failure.node for failure in failures if failure.node not in parts)])
    recorded = tuple(_record_part(name, now.get(name), failures) for name in names)
    attempt = max((part.attempt for part in parts.values() if part), default=1)
    return make_verdict(RunId(run_id), parts, EndRecord("", True, stopped_at, recorded, attempt))


def _record_part(name: str, part: NodeState | None, failures: Sequence[Failure]) -> RecordedPart:
    own = tuple(failure for failure in failures if failure.node == name)
    state: RunState
    if any(failure.lost for failure in own):
        state = LOST
    else:
        state = part.state if part is not None else FAILED if own else UNKNOWN
    return RecordedPart(name, NodeRank(0), state, part.reason if part is not None else "", None, own)


def cause_of(failures: Sequence[Failure], stopped_at: float | None = None) -> Cause:
    """Return the cause, which there is."""
    cause = find_cause(failures, stopped_at)
    assert cause is not None
    return cause


def read_record(raw: object) -> EndRecord:
    """Read a record, which it is."""
    record = parse_record(Untrusted(raw))
    assert record is not None
    return record


def recorded_cause(record: EndRecord) -> Cause:
    """Return the cause that a record shows."""
    cause = judge_end(record).cause
    assert cause is not None
    return cause


def conclude_ended(
    run_id: str,
    parts: Mapping[str, NodeState | None],
    names: Collection[str] = (),
    offsets: Mapping[str, float] = NO_OFFSETS,
) -> Verdict:
    """Return how a run ended, which it has."""
    verdict = conclude(RunId(run_id), parts, names, offsets)
    assert verdict is not None
    return verdict
