"""Ends of runs as tests need them: a verdict from parts and failures, as a complete record would have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from clusterctl.plans.runs.state import NodeState, taking_part
from clusterctl.plans.runs.verdict import Verdict, make_verdict
from clusterctl.protocol.end_record import EndRecord, RecordedPart
from clusterctl.protocol.ranks import NodeRank
from clusterctl.protocol.root_cause import Failure
from clusterctl.protocol.run_id import RunId
from clusterctl.protocol.states import FAILED, LOST, UNKNOWN, RunState


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
