"""The gang's record of a run's end, and the one function from it to the run's state and cause.

A part is one node's account; see `messages/gang.py` for what is written. The hub judges once, and writes the state
into the record; the client shows that state, and calls the function for the cause. Where no node has a complete record,
the client puts one together (`plans/runs/verdict.py`) and calls it for both. What follows from what is decided
in `root_cause`; here is what a state is called.

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
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .exit_status import is_stall
from .frames import CLOCK_SLACK
from .messages.gang import MAX_ADDRESS, read_alone
from .ranks import NodeRank, Rank
from .reasons import STOP, STOPPED_BY, TIME
from .root_cause import DOUBTFUL, Cause, Failure, find_cause, weight_of
from .states import FAILED, FAILED_SETUP, FINAL, LOST, STOPPED, SUCCEEDED, TIMEOUT, UNKNOWN, RunState
from .tracebacks import StderrParser
from .untrusted import Untrusted

if TYPE_CHECKING:
    from .messages.files import AloneRecord, EndState


MAX_SLOTS = 10_000  # nodes of a run
MAX_ATTEMPTS = 10_000
# More than the hub keeps (node/gang/membership.py, node/supervise/evidence.py): more was not written by one of ours.
MAX_FAILURES = 1000  # of a node
MAX_LINES, MAX_BLOCKS = 200, 50  # of a rank's last words
MAX_RANK = 1 << 20
MAX_EXIT, MAX_SIGNAL = 1 << 31, 128
CUT_OFF = "lost: none of the other nodes was heard there any more"

# The worst part decides what a run is called, unless it has a cause.
_WORST_FIRST = (FAILED, FAILED_SETUP, LOST, UNKNOWN, TIMEOUT, STOPPED)
# How the reasons begin that node/gang gives when it stops the run: the hub's, and a node's view of the hub.
_LOSS = re.compile(
    r"(?:node \d{1,9} \((?P<hub>[^()\s]+)\)|(?P<node>[^()\s:]+)) is lost: (?P<why>.*)", re.DOTALL
)


@dataclass(frozen=True)
class RecordedPart:
    """One node's part as the hub wrote it down; times are seconds on the hub's clock."""

    node: str
    node_rank: NodeRank
    state: str
    reason: str
    stopped_at: float | None
    failures: tuple[Failure, ...]
    address: str = ""  # on the training network
    stop_kind: str = ""  # of the order that ended it
    alone: AloneRecord | None = None  # of one that succeeded

    @property
    def asked(self) -> str:
        """Return STOP or TIME if a person or the time limit ended it, else nothing; older records have no kind."""
        if self.state == TIMEOUT:
            return TIME
        by_person = self.stop_kind == STOP if self.stop_kind else self.reason.startswith(STOPPED_BY)
        return STOP if self.state == STOPPED and by_person else ""

    @property
    def lost(self) -> bool:
        """Return whether the others lost it, so that this is not its own account."""
        return self.state == LOST


@dataclass(frozen=True)
class EndRecord:
    """The end of a run; `complete` if the hub has the end of every node, and no other agents can have another one.

    `state` is what the hub has judged it to be; empty in what is incomplete, and in older records. `stop_kind` and
    `stop_time` are of the order that began the end.
    """

    hub: str
    complete: bool
    stopped_at: float | None
    parts: tuple[RecordedPart, ...]
    attempt: int = 1
    state: EndState = ""
    stop_kind: str = ""
    stop_time: float | None = None

    def shift_to_clock(self, offset: float) -> EndRecord:
        """Turn all times to a clock from which the hub's differs by `offset` seconds."""
        parts = (
            replace(
                part,
                stopped_at=_shift(part.stopped_at, offset),
                failures=tuple(_shift_failure(failure, offset) for failure in part.failures),
            )
            for part in self.parts
        )
        stopped_at, stop_time = _shift(self.stopped_at, offset), _shift(self.stop_time, offset)
        return replace(self, stopped_at=stopped_at, stop_time=stop_time, parts=tuple(parts))

    def only_nodes(self, names: Collection[str]) -> EndRecord:
        """Leave out what is reported of nodes that the inventory does not have: such a name may be anything."""
        parts = tuple(part for part in self.parts if part.node in names)
        return replace(self, hub=self.hub if self.hub in names else "", parts=parts)

    @property
    def failures(self) -> tuple[Failure, ...]:
        """Return everything that did not end well, and the ranks that did."""
        return tuple(failure for part in self.parts for failure in part.failures)

    @property
    def lost_nodes(self) -> tuple[str, ...]:
        """Name the nodes that the others lost."""
        return tuple(part.node for part in self.parts if part.lost)

    @property
    def alone(self) -> AloneRecord | None:
        """Return how the ranks of all nodes ran alone; None if one of the nodes does not report that."""
        known = [part.alone for part in self.parts if part.alone is not None]
        if not known or len(known) < len(self.parts):
            return None
        largest = max(each["largest"] for each in known) if all(map(is_certain, known)) else 0
        ranks, planned = sum(each["ranks"] for each in known), max(each["planned"] for each in known)
        return {"ranks": ranks, "largest": largest, "planned": planned}

    @property
    def addresses(self) -> dict[str, str]:
        """Return the nodes' training addresses, as far as they are known."""
        return {part.node: part.address for part in self.parts if part.address}


def _shift(moment: float | None, offset: float) -> float | None:
    return None if moment is None else moment - offset


def _shift_failure(failure: Failure, offset: float) -> Failure:
    raised_at, last_seen = _shift(failure.raised_at, offset), _shift(failure.last_seen, offset)
    return replace(failure, time=failure.time - offset, raised_at=raised_at, last_seen=last_seen)


def parse_record(raw: Untrusted) -> EndRecord | None:
    """Read a record; None if it is none."""
    if not raw.is_list("parts"):
        return None
    parts, stop = tuple(map(_parse_part, raw.records("parts", MAX_SLOTS))), raw.record("stop")
    stops = [part.stopped_at for part in parts] + [stop.moment("time")]
    stopped_at = min((moment for moment in stops if moment is not None), default=None)
    earlier = min(raw.length("attempts"), MAX_ATTEMPTS)  # older records do not name the attempt
    return EndRecord(
        raw.text("hub"),
        raw.flag("whole"),
        stopped_at,
        parts,
        attempt=raw.integer("attempt", 1, MAX_ATTEMPTS) or earlier + 1,
        state=raw.one_of("state", FINAL),
        stop_kind=stop.text("kind"),
        stop_time=stop.moment("time"),
    )


def _parse_part(raw: Untrusted) -> RecordedPart:
    node, state, reason = raw.text("node"), raw.text("state"), raw.text("reason")
    ended = raw.moment("time") or 0.0
    stopped_at = raw.moment("stopped_at")
    failures = [
        _parse_failure(node, ended, stopped_at, failure) for failure in raw.records("failures", MAX_FAILURES)
    ]
    if state == LOST:
        # an older record does not hold `last_seen`: the loss was noticed at `time`
        last_seen = raw.moment("last_seen") if "last_seen" in raw else ended or None
        lost = Failure(node, None, None, None, ended, reason=f"lost: {reason}", lost=True)
        failures.append(replace(lost, last_seen=last_seen))
    node_rank, address = NodeRank(raw.count("node_rank", MAX_SLOTS)), raw.text("address", MAX_ADDRESS)
    kind, alone = raw.text("stop_kind"), read_alone(raw.record("alone")) if state == SUCCEEDED else None
    part = RecordedPart(node, node_rank, state, reason, stopped_at, tuple(failures))
    return replace(part, address=address, stop_kind=kind, alone=alone)


def is_certain(alone: AloneRecord) -> bool:
    """Return whether the ranks' reports prove that they ran alone."""
    return alone["largest"] > 0


def parse_rank(raw: Untrusted) -> Rank | None:
    """Read the rank of a worker; None if there is none, as of torchrun itself."""
    number = raw.integer("rank", 0, MAX_RANK)
    return None if number is None else Rank(number)


def _parse_failure(node: str, ended: float, stopped_at: float | None, raw: Untrusted) -> Failure:
    moment = raw.moment("time") or ended
    stderr = _parse_stderr(raw, raw.moment("last_at") or moment)
    return Failure(
        node=node,
        rank=parse_rank(raw),
        exit=raw.integer("exit", -MAX_EXIT, MAX_EXIT),
        signal=raw.integer("signal", 1, MAX_SIGNAL),
        time=moment,
        tail=tuple(stderr.tail),
        exception=stderr.exception,
        message=stderr.message,
        raised_at=stderr.raised_at or None,
        reason=raw.text("reason"),
        origin=stderr.origin,
        where=stderr.where,
        own_frame=stderr.own_frame,
        ray_task=stderr.ray_task,
        survived=stderr.survived,
        suspended=raw.flag("suspended"),
        oom_killed=raw.flag("oom_killed"),
        after_stop=stopped_at is not None and moment >= stopped_at,
    )


def _parse_stderr(raw: Untrusted, last_at: float) -> StderrParser:
    """Parse the tracebacks again, and keep the last lines."""
    stderr, tail = StderrParser(), raw.texts("tail", MAX_LINES)
    blocks = raw.records("tracebacks", MAX_BLOCKS)
    for block in blocks:
        for line in block.texts("lines", MAX_LINES):
            stderr.feed(line, block.moment("at") or last_at)
    if not blocks:
        for line in tail:
            stderr.feed(line, last_at)
    stderr.tail.clear()
    stderr.tail.extend(tail)
    stderr.on_output(last_at)
    return stderr


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
        failed = record.alone is not None and is_certain(record.alone)
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
