"""How a run ended: the one function from a record of its end to its state and cause.

The hub calls it once and writes the state into the record; the client shows that state, and calls it for the cause.
Where no node has a complete record, the client puts one together (`plans/runs/assembled_record.py`) and calls it for
both. What follows from what is decided in `root_cause`; here is what a state is called.

| the end | state |
|---|---|
| every part succeeded | SUCCEEDED; FAILED if all are certain that their ranks ran alone |
| a person or the time limit ended it; what failed began after that, or only follows from it | STOPPED, TIMEOUT |
| a node is lost, and no failure explains that | LOST |
| a process failed, or a node could not start | FAILED, FAILED_SETUP |
| nothing is known of a node | UNKNOWN |
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .end_record import EndRecord, RecordedPart
from .exit_status import is_stall
from .frames import CLOCK_SLACK
from .messages.stop_kinds import STOP, TIME
from .root_cause import DOUBTFUL, Cause, Failure, find_cause, weight_of
from .states import FAILED, FAILED_SETUP, LOST, STOPPED, SUCCEEDED, TIMEOUT, UNKNOWN, RunState

if TYPE_CHECKING:
    from .messages.files import EndState


CUT_OFF = "lost: none of the other nodes was heard there any more"

# The worst part decides what a run is called, unless it has a cause.
_WORST_FIRST = (FAILED, FAILED_SETUP, LOST, UNKNOWN, TIMEOUT, STOPPED)
# How the reasons begin that node/gang gives when it stops the run: the hub's, and a node's view of the hub.
_LOSS = re.compile(
    r"(?:node \d{1,9} \((?P<hub>[^()\s]+)\)|(?P<node>[^()\s:]+)) is lost: (?P<why>.*)", re.DOTALL
)


@dataclass(frozen=True)
class RunEnd:
    """How a run ended; `cause` is None if it succeeded, was ended on request, or nothing explains it."""

    state: RunState
    cause: Cause | None = None


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


def judge_end(record: EndRecord) -> RunEnd:
    """Judge the end of a run by its record alone; a state that the hub has written stands."""
    if record.state in (SUCCEEDED, STOPPED, TIMEOUT):
        return RunEnd(record.state)
    if record.parts and all(part.state == SUCCEEDED for part in record.parts):
        failed = record.alone is not None and record.alone.is_certain
        return RunEnd(record.state or (FAILED if failed else SUCCEEDED))
    failures = _with_cut_off_hub(record)
    asked = "" if record.state else _asked_state(record, failures)
    if asked:
        return RunEnd(asked)
    cause = _explain(record, failures)
    return RunEnd(record.state or _name_state(record, cause), cause)


def _with_cut_off_hub(record: EndRecord) -> list[Failure]:
    """Return the failures; where node 0 has lost all the others, it is node 0 that is cut off."""
    failures = list(record.failures)
    lost = [failure for failure in failures if failure.lost]
    others = {part.node for part in record.parts} - {record.hub}
    if not record.hub or len(others) < 2 or others != {failure.node for failure in lost}:
        return failures
    own = [failure for failure in failures if not failure.lost]
    if any(weight_of(failure, record.stopped_at) < DOUBTFUL for failure in own):
        return failures
    first = min(lost, key=lambda failure: failure.time)
    return [*own, replace(first, node=record.hub, reason=CUT_OFF)]


def _asked_state(record: EndRecord, failures: Sequence[Failure]) -> EndState:
    """Return the state of a run that a person or its time limit ended, else nothing.

    Either reaches the nodes one after the other; what fails meanwhile only follows from it, whatever it writes.
    """
    orders = [(part.stopped_at, part.asked) for part in record.parts if part.asked]
    if record.stop_kind in (STOP, TIME):
        orders.append((record.stop_time, record.stop_kind))
    if not orders:
        return ""
    asked_at, kind = min(orders, key=lambda order: float("inf") if order[0] is None else order[0])
    asked_nodes = {part.node for part in record.parts if part.asked}
    own = [failure for failure in failures if failure.lost or failure.node not in asked_nodes]
    if not all(_follows(failure, asked_at, record.stopped_at) for failure in own):
        return ""
    return STOPPED if kind == STOP else TIMEOUT


def _follows(failure: Failure, asked_at: float | None, stopped_at: float | None) -> bool:
    """Return whether a failure began after the order to end the run, or is nothing but a consequence."""
    if not failure.lost and asked_at is not None:
        began = failure.raised_at if failure.exception and failure.raised_at is not None else failure.time
        if began > asked_at - CLOCK_SLACK:
            return True
    return weight_of(failure, stopped_at) >= DOUBTFUL


def _explain(record: EndRecord, failures: Sequence[Failure]) -> Cause | None:
    """Find the cause; None where ranks that were stopped are all there is, and a node reports more than they do."""
    cause = find_cause(failures, record.stopped_at, record.addresses)
    if cause is None:
        return None
    known = {failure.node for failure in failures}
    failed = [part for part in record.parts if part.state in (FAILED, FAILED_SETUP) and part.reason]
    if cause.is_stop and any(part.node not in known for part in failed):
        return None
    if cause.is_doubtful and any(part.state == FAILED and is_stall(part.reason) for part in record.parts):
        return None  # what the ranks wrote then follows from that
    return cause


def _name_state(record: EndRecord, cause: Cause | None) -> RunState:
    states = {part.state for part in record.parts}
    state: RunState = next((name for name in _WORST_FIRST if name in states), UNKNOWN)
    if cause is not None and state not in (FAILED, FAILED_SETUP):
        return LOST if cause.failure.lost or _is_lost(record, cause.failure) else FAILED
    return state if cause is not None else _state_without_cause(record, state)


def _is_lost(record: EndRecord, failure: Failure) -> bool:
    """Return whether the node that is the cause could not record its own end: its agent and guardian are gone."""
    return failure.rank is None and any(part.node == failure.node and part.lost for part in record.parts)


def _state_without_cause(record: EndRecord, state: RunState) -> RunState:
    """Name it by what the nodes report: one that stopped because of another node was not cancelled by a person."""
    caused = [part for part in record.parts if _was_caused(part)]
    if state not in (STOPPED, UNKNOWN) or not caused:
        return state
    if 2 * sum(find_reported_loss(part.reason) is not None for part in caused) > len(caused):
        return LOST
    return FAILED if state == STOPPED else state


def _was_caused(part: RecordedPart) -> bool:
    return part.state == STOPPED and not part.asked and ": " in part.reason
