"""The record of a run's end: made of the parts of all nodes, and saved on each; `protocol/end_record.py` reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Optional

from ...protocol.messages.gang import limit_size
from ...protocol.ranks import NodeRank
from ...protocol.states import LOST

if TYPE_CHECKING:
    from ...protocol.messages.files import FailureRecord, GangRecord, PartRecord, Spec, StopRecord


def lost_part(
    node: str, node_rank: NodeRank, reason: str, moment: float, last_seen: Optional[float]
) -> PartRecord:
    """Write the part of a node that cannot do it itself any more; `last_seen` is its last sign of life, if known."""
    return {
        "node": node,
        "node_rank": node_rank,
        "address": "",
        "state": LOST,
        "reason": reason,
        "time": moment,
        "last_seen": last_seen,
        "stopped_at": None,
        "failures": [],
    }


def correct_clock(part: PartRecord, offset: float) -> PartRecord:
    """Turn a part's times to a clock from which its own differs by `offset` seconds."""
    stopped_at = None if part["stopped_at"] is None else part["stopped_at"] - offset
    failures = [_correct_failure(failure, offset) for failure in part["failures"]]
    return {**part, "time": part["time"] - offset, "stopped_at": stopped_at, "failures": failures}


def _correct_failure(failure: FailureRecord, offset: float) -> FailureRecord:
    corrected: FailureRecord = {**failure, "time": failure["time"] - offset}
    if "last_at" in failure:
        corrected["last_at"] = failure["last_at"] - offset
    if "tracebacks" in failure:
        corrected["tracebacks"] = [{**block, "at": block["at"] - offset} for block in failure["tracebacks"]]
    return corrected


def make_record(
    spec: Spec, parts: List[PartRecord], stop: Optional[StopRecord], *, whole: bool
) -> GangRecord:
    """Put parts together; where very many have failed, each keeps fewer of its last lines."""
    return limit_size(
        {"run": spec["run"], "hub": spec.get("hub"), "whole": whole, "stop": stop, "parts": parts}
    )
