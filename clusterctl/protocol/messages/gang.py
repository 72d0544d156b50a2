"""Messages between the agents of a gang: the tables TO_HUB and TO_PEER, the values, and how each key is read.

A row of a table is a message: its name, its class, and for each field of the class, in order, the key and its reader.
`render_message` and `read_message` both go by the row, so a name and a key stand here once. MalformedError means that
no agent of this version would have sent it, so its sender is given up. What a message means in which phase is up to
the receiver: see the tables of `node/gang/hub.py` and `node/gang/peer.py`.

A part is one node's account of its end: {node, node_rank, address, state, reason, time, stopped_at, stop_kind,
failures}. The record puts the parts together, their times turned to the hub's clock: {run, hub, attempt, whole, state,
stop, parts}; the part of a lost node has its last sign of life as `last_seen`; `whole` is false in what a node writes
before all parts have come, without the hub, or cut off from most others; only a whole record has the state of the run.
A run that may be started again adds {attempts, roster, gave_up, reason}.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, TypeVar

from ..ranks import NodeRank, Slot
from ..reasons import CODE, STOP, STOP_KINDS
from ..states import FAILED, FAILED_SETUP, LOST, STOPPED, SUCCEEDED, TIMEOUT, RunState
from ..untrusted import MAX_TIME, MalformedError, Untrusted
from . import record as records

if TYPE_CHECKING:
    from .checkpoints import KeeperOrder, KeeperReport, Restore
    from .files import (
        AloneRecord,
        AttemptEnd,
        Block,
        EndState,
        FailureRecord,
        GangRecord,
        PartDetails,
        PartRecord,
        RestartsEnd,
        RosterEntry,
        StopRecord,
    )

T = TypeVar("T")

# Limits. A part holds no more than `node/supervise/evidence.py` puts into it.
MAX_KIND = 16  # characters
MAX_REASON = 1000  # characters
MAX_NODE = 64  # characters
MAX_ADDRESS = 64  # characters
MAX_TIME_LEFT = 1e9  # seconds that a run may have left
MAX_EXIT = 1 << 31
MAX_ATTEMPTS = 100_000
MAX_RANKS = 1 << 20  # of a run
MAX_SIGNAL = 64
TAIL_LINES = 20
TRACEBACKS = 4  # the last ones, as a chain may hold several
BLOCK_LINES = 16  # of a traceback
MAX_LINE = 400  # characters
MAX_RECORD = 512 << 10  # bytes
FIRST_FAILURES = 32  # failures that keep their words when there are far too many
MIN_LINES = 3  # lines of each failure's last words when there are very many
NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
ADDRESS = re.compile(r"[0-9A-Fa-f:.]{2,45}")

# that a node can report of itself
END_STATES: tuple[RunState, ...] = (SUCCEEDED, FAILED, FAILED_SETUP, STOPPED, TIMEOUT)
PART_STATES: tuple[RunState, ...] = (*END_STATES, LOST)  # or the others of it
BETWEEN_STATES: tuple[RunState, ...] = (
    STOPPED,
    TIMEOUT,
)  # how a run ends between two attempts, on all nodes alike

# Why the gang gives a run up: an error of the script (CODE),
NO_PROGRESS = "no_progress"  # nothing new in three attempts,
MAX_RESTARTS = "max"  # as many restarts as the job allows,
REASON = "reason"  # a reason that the job does not name,
NODES = "nodes"  # fewer nodes than the job needs,
MAJORITY = "majority"  # or not more than half of all: the others might go on as well
GAVE_UP = (NO_PROGRESS, MAX_RESTARTS, CODE, REASON, NODES, MAJORITY)


class Bounds(NamedTuple):
    """How large a run is, and who takes part in it."""

    run_id: str
    nodes: tuple[str, ...]  # by slot; empty where the spec does not name them
    slots: int
    node_ranks: int  # of nodes
    failures: int  # of one node
    attempts: int
    grace: float
    pause: float

    def is_name(self, node: str) -> bool:
        """Whether one of the nodes can have this name."""
        if self.nodes:
            return node in self.nodes
        return len(node) <= MAX_NODE and NODE_NAME.fullmatch(node) is not None

    def is_name_of(self, slot: Slot, node: str) -> bool:
        """Whether a slot can have this name."""
        return self.is_name(node) and (not self.nodes or self.nodes[slot] == node)


# the values


class BeatReply(NamedTuple):
    """A peer's answer to a beat: when it was asked, by the hub's clock, its own time, its ranks' quiet."""

    at: float
    time: float
    quiet: float = 0.0


class HubBeat(NamedTuple):
    """The hub's beat; `quiet` is for how many seconds no rank of the run has made progress."""

    at: float
    quiet: float = 0.0


class CheckNode(NamedTuple):
    """The hub asks a peer to find out whether a silent node still answers connections."""

    slot: Slot


class NodeChecked(NamedTuple):
    """What a peer found: whether any port of that node accepted or refused a connection."""

    slot: Slot
    answers: bool


class Welcome(NamedTuple):
    """The hub has accepted this peer."""


class Ack(NamedTuple):
    """A peer has kept the record."""


class StopOrder(NamedTuple):
    """An order to end the run: why, seconds between TERM and KILL, and on what occasion."""

    reason: str
    grace: float
    kind: str = STOP


class Failed(NamedTuple):
    """Something failed on a peer."""

    attempt: int
    reason: str


class Ended(NamedTuple):
    """A peer's part of an attempt."""

    attempt: int
    part: PartRecord


class RosterView(NamedTuple):
    """What another agent knows of the whole run: who has which rank, who is lost or unfit and why, what went before."""

    attempt: int
    entries: list[RosterEntry]
    history: list[AttemptEnd]
    agreed: int = 1  # the newest attempt that had GO, as far as it is known there

    @property
    def node_ranks(self) -> dict[Slot, NodeRank]:
        """Return the node rank of every slot that has one."""
        return {entry["slot"]: entry["node_rank"] for entry in self.entries if entry["node_rank"] is not None}

    @property
    def lost(self) -> dict[Slot, str]:
        """Return who is lost, and why."""
        return {entry["slot"]: entry["reason"] for entry in self.entries if entry.get("lost")}

    @property
    def unfit(self) -> dict[Slot, str]:
        """Return who can take part no more, and why."""
        return {entry["slot"]: entry["unfit"] for entry in self.entries if entry.get("unfit")}

    @property
    def left_out(self) -> dict[Slot, int]:
        """Return who does not count any more for a majority, each with the first attempt that it was left out of."""
        return {entry["slot"]: entry["left_out"] for entry in self.entries if "left_out" in entry}


class Hello(NamedTuple):
    """What a peer sends the next hub first."""

    part: PartRecord | None
    roster: RosterView


class Cleared(NamedTuple):
    """Nothing is left on a node of the attempt that ended; `unfit`: why it cannot take part in another."""

    unfit: str
    progress: bool | None


class Ready(NamedTuple):
    """A gate waits for GO; of rank 0 with the master's port."""

    attempt: int
    port: int | None
    address: str


class Listening(NamedTuple):
    """Rank 0 listens."""

    attempt: int
    port: int


class Verdict(NamedTuple):
    """The hub's record; of a run that may be started again also how it ended between two attempts."""

    record: GangRecord
    end: RestartsEnd | None


class SlotLost(NamedTuple):
    """A slot is lost."""

    slot: Slot
    why: str


class Pause(NamedTuple):
    """An attempt has ended, and there will be another."""

    entry: AttemptEnd
    seconds: float
    roster: RosterView


class NextAttempt(NamedTuple):
    """The next attempt begins, from a checkpoint that the nodes have, or from none."""

    time_left: float | None
    roster: RosterView
    resume: Restore | None = None


class Go(NamedTuple):
    """GO of a later attempt."""

    address: str
    port: int


class CheckpointReport(NamedTuple):
    """What the keeper of a node has found or done; see messages/checkpoints.py."""

    report: KeeperReport


class CheckpointOrder(NamedTuple):
    """What the keeper of a node is to do."""

    order: KeeperOrder


Message = Any  # one of the above

# how a key is read


def required(value: T | None, what: str) -> T:
    """Return a value that a message must have; MalformedError if it is missing or out of bounds."""
    if value is None:
        raise MalformedError(f"no valid {what}")
    return value


def _moment(message: Untrusted, key: str, _: Bounds) -> float:
    return required(message.moment(key), "time")


def _reason(message: Untrusted, key: str, _: Bounds) -> str:
    return message.text(key, MAX_REASON)


def _quiet(message: Untrusted, key: str, _: Bounds) -> float:
    """Return for how long nothing has moved; a message in which that is 0, as in most, leaves it out."""
    return required(message.number(key, 0.0, MAX_TIME_LEFT), "time") if key in message else 0.0


def _attempt(message: Untrusted, key: str, bounds: Bounds) -> int:
    """Return the attempt of a message; in a run that is not started again messages have no number, and it is 1."""
    return required(message.integer(key, 1, bounds.attempts), "attempt") if key in message else 1


def _grace(message: Untrusted, key: str, bounds: Bounds) -> float:
    return required(message.number(key, 0.0, bounds.grace), "grace")


def _occasion(message: Untrusted, key: str, _: Bounds) -> str:
    return required(message.one_of(key, STOP_KINDS) or None, "occasion")


def _port(message: Untrusted, key: str, _: Bounds) -> int:
    return required(message.integer(key, 1, 65535), "port")


def _port_or_none(message: Untrusted, key: str, bounds: Bounds) -> int | None:
    return None if message.is_null(key) else _port(message, key, bounds)


def _address(message: Untrusted, key: str, _: Bounds) -> str:
    address = message.text(key)
    if not ADDRESS.fullmatch(address):
        raise MalformedError("no IP address")
    return address


def _choice(message: Untrusted, key: str, _: Bounds) -> bool | None:
    return message.choice(key)


def _answers(message: Untrusted, key: str, _: Bounds) -> bool:
    return required(message.choice(key), "answer")


def _slot(message: Untrusted, key: str, bounds: Bounds) -> Slot:
    return Slot(required(message.integer(key, 0, bounds.slots - 1), "slot"))


def _seconds(message: Untrusted, key: str, bounds: Bounds) -> float:
    return required(message.number(key, 0.0, bounds.pause), "pause")


def _time_left(message: Untrusted, key: str, _: Bounds) -> float | None:
    return None if message.is_null(key) else required(message.number(key, 0.0, MAX_TIME_LEFT), "time")


def _part(message: Untrusted, key: str, bounds: Bounds) -> PartRecord:
    return read_part(message.record(key), bounds)


def _part_or_none(message: Untrusted, key: str, bounds: Bounds) -> PartRecord | None:
    return None if message.is_null(key) else _part(message, key, bounds)


def _entry(message: Untrusted, key: str, bounds: Bounds) -> AttemptEnd:
    return read_entry(message.record(key), bounds)


def _roster(message: Untrusted, key: str, bounds: Bounds) -> RosterView:
    view = message.record(key)
    attempt = required(view.integer("attempt", 1, bounds.attempts), "attempt")
    agreed = view.integer("agreed", 1, attempt) or 1
    entries, history = _read_slots(view, "entries", bounds), _read_history(view, "history", bounds)
    return RosterView(attempt, entries, history, agreed)


def _record(message: Untrusted, key: str, bounds: Bounds) -> GangRecord:
    return read_record(message.record(key), bounds)


def _ending(message: Untrusted, key: str, _: Bounds) -> RestartsEnd:
    return _read_end(message.record(key))


def _keeper_report(message: Untrusted, key: str, _: Bounds) -> KeeperReport:
    from .checkpoints import KeeperReport  # noqa: PLC0415, RUF100 - most runs keep no checkpoints

    report = records.read(KeeperReport, message.record(key))
    return required(report if report is not None and report.event else None, "report")


def _keeper_order(message: Untrusted, key: str, _: Bounds) -> KeeperOrder:
    from .checkpoints import KeeperOrder  # noqa: PLC0415, RUF100 - see above

    order = records.read(KeeperOrder, message.record(key))
    return required(order if order is not None and order.do else None, "order")


def _resume(message: Untrusted, key: str, _: Bounds) -> Restore | None:
    """Return what the attempt goes on from; from scratch, as most do, the message leaves it out."""
    if key not in message:
        return None
    from .checkpoints import Restore  # noqa: PLC0415, RUF100 - see above

    resume = records.read(Restore, message.record(key))
    return required(resume if resume is not None and resume.seal.name else None, "checkpoint")


# the messages

Reader = Callable[[Untrusted, str, Bounds], Any]


class Form(NamedTuple):
    """How a message is written and read: its class, and key and reader of each of its fields."""

    type: type[Any]
    readers: tuple[tuple[str, Reader], ...]


def _form(type_: type[Any], **readers: Reader) -> Form:
    return Form(type_, tuple(readers.items()))


_BOTH_WAYS = {"stop": _form(StopOrder, reason=_reason, grace=_grace, occasion=_occasion)}
TO_HUB: dict[str, Form] = {
    **_BOTH_WAYS,
    "beat": _form(BeatReply, at=_moment, time=_moment, quiet=_quiet),
    "failed": _form(Failed, attempt=_attempt, reason=_reason),
    "ended": _form(Ended, attempt=_attempt, part=_part),
    "ack": _form(Ack),
    "node_checked": _form(NodeChecked, slot=_slot, answers=_answers),
    # of a run that may be started again
    "hello": _form(Hello, part=_part_or_none, roster=_roster),
    "clear": _form(Cleared, unfit=_reason, progress=_choice),
    "ready": _form(Ready, attempt=_attempt, port=_port_or_none, address=_address),
    "listening": _form(Listening, attempt=_attempt, port=_port),
    "checkpoint": _form(CheckpointReport, report=_keeper_report),
}
TO_PEER: dict[str, Form] = {
    **_BOTH_WAYS,
    "beat": _form(HubBeat, at=_moment, quiet=_quiet),
    "welcome": _form(Welcome),
    "verdict": _form(Verdict, record=_record, end=_ending),
    "check_node": _form(CheckNode, slot=_slot),
    # of a run that may be started again
    "lost": _form(SlotLost, slot=_slot, why=_reason),
    "pause": _form(Pause, entry=_entry, seconds=_seconds, roster=_roster),
    "next_attempt": _form(NextAttempt, time_left=_time_left, roster=_roster, resume=_resume),
    "go": _form(Go, master_addr=_address, master_port=_port),
    "keep": _form(CheckpointOrder, order=_keeper_order),
}
_KINDS = {form.type: (kind, form) for forms in (TO_HUB, TO_PEER) for kind, form in forms.items()}


def render_message(message: Message, attempt: int | None = None) -> str:
    """Write a message as JSON; a peer of a run that may be started again names its attempt in each."""
    kind, form = _KINDS[type(message)]
    fields = {
        key: value
        for (key, _), value in zip(form.readers, message)
        if key != "attempt" and (value or key not in ("quiet", "resume"))  # most have none
    }
    if isinstance(message, Verdict) and message.end is None:
        del fields["end"]
    for key, value in fields.items():
        if isinstance(value, RosterView):
            agreed = {"agreed": value.agreed} if value.left_out else {}
            fields[key] = {
                "attempt": value.attempt,
                "entries": value.entries,
                "history": value.history,
                **agreed,
            }
        elif isinstance(value, records.Record):
            fields[key] = records.to_json(value)
    return json.dumps({"kind": kind, **({} if attempt is None else {"attempt": attempt}), **fields})


def read_message(message: Untrusted, forms: dict[str, Form], bounds: Bounds) -> Message:
    """Read one message; MalformedError names its kind."""
    kind = message.text("kind", MAX_KIND)
    if kind not in forms:
        raise MalformedError("it sent a malformed message (of no known kind)")
    form = forms[kind]
    try:
        return form.type(*(read(message, key, bounds) for key, read in form.readers))
    except MalformedError as error:
        raise MalformedError(f"it sent a malformed message ({kind}: {error})") from None


# parts, records and rosters


def read_part(message: Untrusted, bounds: Bounds) -> PartRecord:
    """Read a node's account of its own end; the hub fills in the node and its rank, which it knows better."""
    if not message.is_list("failures"):
        raise MalformedError("no list of failures")
    part: PartRecord = {
        "address": message.text("address", MAX_ADDRESS),
        "state": _state(message, END_STATES),
        "reason": message.text("reason"),
        "time": required(message.moment("time"), "time"),
        "stopped_at": message.moment("stopped_at"),
        "stop_kind": message.one_of("stop_kind", STOP_KINDS),
        "failures": _read_failures(message, bounds),
        "node": "",
        "node_rank": None,
    }
    alone = read_alone(message.record("alone"))
    if alone is not None:
        part["alone"] = alone
    return limit_parts([part])[0]


def read_record(message: Untrusted, bounds: Bounds) -> GangRecord:
    """Read the record of a run's end that a hub has put together."""
    if message.text("run") != bounds.run_id or not message.is_list("parts"):
        raise MalformedError("no record of this run")
    stop = message.record("stop")
    record: GangRecord = {
        "run": bounds.run_id,
        "hub": message.text("hub", MAX_NODE),
        "attempt": message.integer("attempt", 1, MAX_ATTEMPTS) or 1,
        "whole": message.flag("whole"),
        "state": _read_run_state(message),
        "stop": _read_stop(stop) if stop else None,
        "parts": [_read_recorded(part, bounds) for part in message.records("parts", bounds.slots)],
    }
    record = limit_size(record)
    if "roster" in message:  # a run that may be started again
        history, roster = _read_history(message, "attempts", bounds), _read_slots(message, "roster", bounds)
        end = _read_end(message)
        gave_up, reason = end.get("gave_up"), end.get("reason") or ""
        record = {**record, "attempts": history, "roster": roster, "gave_up": gave_up, "reason": reason}
    return record


def _read_recorded(message: Untrusted, bounds: Bounds) -> PartRecord:
    node = message.text("node", MAX_NODE)
    if not bounds.is_name(node):
        raise MalformedError("a part of no node of this run")
    state = _state(message, PART_STATES)
    details: PartDetails = {"last_seen": _read_shifted_time(message, "last_seen")} if state == LOST else {}
    part: PartRecord = {
        "node": node,
        "node_rank": NodeRank(required(message.integer("node_rank", 0, bounds.slots - 1), "node rank")),
        "address": message.text("address", MAX_ADDRESS),
        "state": state,
        "reason": message.text("reason"),
        "time": required(_read_shifted_time(message, "time"), "time"),
        **details,
        "stopped_at": _read_shifted_time(message, "stopped_at"),
        "stop_kind": message.one_of("stop_kind", STOP_KINDS),
        "failures": _read_failures(message, bounds),
    }
    alone = read_alone(message.record("alone"))
    if alone is not None:
        part["alone"] = alone
    return part


def read_alone(record: Untrusted) -> AloneRecord | None:
    """Read that the ranks of a part ran alone; None where a number is missing or wrong."""
    ranks, planned = (record.integer(name, 1, MAX_RANKS) for name in ("ranks", "planned"))
    largest = record.integer("largest", 0, MAX_RANKS)
    if ranks is None or largest is None or planned is None or largest >= planned:
        return None
    return {"ranks": ranks, "largest": largest, "planned": planned}


def _state(message: Untrusted, allowed: tuple[RunState, ...]) -> RunState:
    state = message.one_of("state", allowed)
    return required(next((each for each in allowed if each == state), None), "state")


def _read_run_state(message: Untrusted) -> EndState:
    state = message.one_of("state", PART_STATES)
    return next((each for each in PART_STATES if each == state), "")


def _read_failures(message: Untrusted, bounds: Bounds) -> list[FailureRecord]:
    return [_read_failure(failure) for failure in message.records("failures", bounds.failures)]


def _read_stop(message: Untrusted) -> StopRecord:
    return {
        "node": message.text("node", MAX_NODE),
        "reason": message.text("reason", MAX_REASON),
        "time": required(message.moment("time"), "time"),
        "kind": message.one_of("kind", STOP_KINDS),
    }


def _read_end(message: Untrusted) -> RestartsEnd:
    state = message.one_of("state", BETWEEN_STATES)
    return {
        "gave_up": message.one_of("gave_up", GAVE_UP) or None,
        "state": next((each for each in BETWEEN_STATES if each == state), ""),
        "reason": message.text("reason", MAX_REASON),
    }


def _read_shifted_time(message: Untrusted, key: str) -> float | None:
    """Return a time that a hub has turned from one clock to another, which may both be wrong."""
    return message.number(key, -2 * MAX_TIME, 2 * MAX_TIME)


def _read_failure(message: Untrusted) -> FailureRecord:
    """Read how one process ended, and what it wrote last."""
    failure: FailureRecord = {
        "rank": message.integer("rank", 0, MAX_EXIT),
        "exit": message.integer("exit", -MAX_EXIT, MAX_EXIT),
        "signal": message.integer("signal", 1, MAX_SIGNAL),
        "time": _read_shifted_time(message, "time") or 0.0,
    }
    if "reason" in message:
        failure["reason"] = message.text("reason")
    if message.flag("oom_killed"):
        failure["oom_killed"] = True
    if message.is_list("tail"):
        failure["last_at"] = _read_shifted_time(message, "last_at") or 0.0
        failure["suspended"] = message.flag("suspended")
        failure["tracebacks"] = [_read_block(block) for block in message.records("tracebacks", TRACEBACKS)]
        failure["tail"] = list(message.texts("tail", TAIL_LINES, MAX_LINE))
    return failure


def _read_block(message: Untrusted) -> Block:
    lines = list(message.texts("lines", BLOCK_LINES, MAX_LINE))
    return {"at": _read_shifted_time(message, "at") or 0.0, "lines": lines}


def _read_slots(message: Untrusted, key: str, bounds: Bounds) -> list[RosterEntry]:
    """Read which slot has which node and rank: all slots of this run with their own nodes, and no rank twice."""
    roster = [_read_slot(entry, bounds) for entry in message.records(key, bounds.slots + 1)]
    if [entry["slot"] for entry in roster] != list(range(bounds.slots)):
        raise MalformedError("no roster of this run")
    node_ranks = [entry["node_rank"] for entry in roster if entry["node_rank"] is not None]
    if len(set(node_ranks)) < len(node_ranks):
        raise MalformedError("a rank that two nodes have")
    return roster


def _read_slot(message: Untrusted, bounds: Bounds) -> RosterEntry:
    slot = _slot(message, "slot", bounds)
    number = message.integer("node_rank", 0, bounds.node_ranks - 1)
    node_rank = None if number is None else NodeRank(number)
    if not bounds.is_name_of(slot, message.text("node")) or (
        node_rank is None and not message.is_null("node_rank")
    ):
        raise MalformedError("a slot that is none of this run")
    entry: RosterEntry = {"slot": slot, "node": message.text("node"), "node_rank": node_rank}
    if message.text("address"):
        entry["address"] = message.text("address", MAX_NODE)
    if message.text("unfit"):
        entry["unfit"] = message.text("unfit", MAX_REASON)
    if message.flag("lost"):
        entry["lost"], entry["reason"] = True, message.text("reason", MAX_REASON)
    if "left_out" in message:
        entry["left_out"] = required(message.integer("left_out", 1, bounds.attempts), "attempt")
    return entry


def _read_history(message: Untrusted, key: str, bounds: Bounds) -> list[AttemptEnd]:
    """Read what became of the attempts that have ended."""
    return [read_entry(entry, bounds) for entry in message.records(key, bounds.attempts)]


def read_entry(message: Untrusted, bounds: Bounds) -> AttemptEnd:
    """Read what became of one attempt."""
    return {
        "attempt": required(message.integer("attempt", 1, bounds.attempts), "attempt"),
        "reason": message.text("reason", MAX_NODE),
        "node": message.text("node", MAX_NODE),
        "text": message.text("text", MAX_REASON),
        "began": message.moment("began"),
        "ended": message.moment("ended"),
        "progress": message.choice("progress"),
    }


def limit_size(record: GangRecord) -> GangRecord:
    """Leave out so much of the last lines that a record is not too large."""
    return {**record, "parts": limit_parts(record["parts"], len(json.dumps({**record, "parts": []})))}


def limit_parts(parts: list[PartRecord], others: int = 0) -> list[PartRecord]:
    """Leave out so much of the last lines that parts, and so many characters beside them, are not too large."""
    most = MAX_RECORD - others
    for lines in (12, 6, MIN_LINES):
        if len(json.dumps(parts)) <= most:
            return parts
        parts = [_shorten_output(part, lines) for part in parts]
    return parts if len(json.dumps(parts)) <= most else _keep_first_output(parts)


def _keep_first_output(parts: list[PartRecord]) -> list[PartRecord]:
    """Keep what the first to fail have written, and how all others ended."""
    failures = [failure for part in parts for failure in part["failures"]]
    first = {
        id(failure)
        for failure in sorted(failures, key=lambda failure: failure.get("time") or 0.0)[:FIRST_FAILURES]
    }
    return [
        {
            **part,
            "failures": [
                failure
                if id(failure) in first or "tracebacks" not in failure
                else {**failure, "tracebacks": [], "tail": []}
                for failure in part["failures"]
            ],
        }
        for part in parts
    ]


def _shorten_output(part: PartRecord, lines: int) -> PartRecord:
    return {**part, "failures": [_shorten_failure(failure, lines) for failure in part["failures"]]}


def _shorten_failure(failure: FailureRecord, lines: int) -> FailureRecord:
    if "tracebacks" not in failure:
        return failure
    return {**failure, "tracebacks": _last_chain(failure["tracebacks"]), "tail": failure["tail"][-lines:]}


def _last_chain(blocks: list[Block]) -> list[Block]:
    """Keep the last traceback, and the first of its chain: that one may be the cause."""
    from ..tracebacks import is_chained  # noqa: PLC0415, RUF100 - only once ranks have failed, it takes time to load

    first = len(blocks) - 1
    while first > 0 and is_chained(blocks[first]["lines"]):
        first -= 1
    return [*blocks[first : len(blocks) - 1][:1], *blocks[-1:]]
