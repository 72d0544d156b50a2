"""The record of a run's end: made of the parts of all nodes, and saved on each; `protocol/end_record.py` reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Optional

from ...protocol.messages.gang import limit_size
from ...protocol.ranks import NodeRank
from ...protocol.states import FINAL, LOST, SUCCEEDED
from ...protocol.untrusted import Untrusted

if TYPE_CHECKING:
    from ...protocol.messages.files import EndState, FailureRecord, GangRecord, PartRecord, Spec, StopRecord


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
        "stop_kind": "",
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
    spec: Spec,
    parts: List[PartRecord],
    stop: Optional[StopRecord],
    *,
    whole: bool,
    state: EndState = "",
) -> GangRecord:
    """Put parts together; where very many have failed, each keeps fewer of its last lines.

    A whole record has the state of the run: `state` where that is given, else what its parts are judged to be.
    """
    record = limit_size(
        {
            "run": spec["run"],
            "hub": spec.get("hub"),
            "attempt": int(spec.get("attempt", 1)),
            "whole": whole,
            "state": state,
            "stop": stop,
            "parts": parts,
        }
    )
    return {**record, "state": judge_state(record)} if whole and not state else record


def judge_state(record: GangRecord) -> EndState:
    """Return the state of the run that a record describes; the judge is loaded only for one that did not succeed."""
    if all(part["state"] == SUCCEEDED and "alone" not in part for part in record["parts"]):
        return SUCCEEDED
    from ...protocol.end_record import (
        judge_end,  # noqa: PLC0415, RUF100 - see above
        parse_record,  # noqa: PLC0415, RUF100 - see above
    )

    parsed = parse_record(Untrusted(record))
    judged = judge_end(parsed).state if parsed is not None else ""
    return next((state for state in FINAL if state == judged), "")
