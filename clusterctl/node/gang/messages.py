"""Messages between the agents of a gang, and the record that all of them keep of the run's end.

A part is one node's account of its end: {node, node_rank, address, state, reason, time, stopped_at, failures}. The
record puts the parts together, their times turned to the hub's clock: {run, hub, whole, stop, parts}; the part of a
lost node has its last sign of life as `last_seen`; `whole` is false in what a node writes before all parts have come,
or without the hub. A run that may be started again adds {attempts, roster, gave_up, state, reason}, see roster.py.

The messages, by who receives them:

to the hub    beat failed stop ended ack; of a run that may be started again also hello clear ready listening
to a peer     beat welcome stop verdict; likewise lost pause again go

A channel reads every message here before anybody sees it. MalformedError means that no agent of this version would
have sent it, so its sender is given up. What a message means in which phase is up to the receiver.
"""

from __future__ import annotations

import json
import re
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Set

from ...protocol.ranks import NodeRank, Slot
from ...protocol.reasons import CODE
from ...protocol.states import FINAL
from ...protocol.untrusted import LATEST, MalformedError, Untrusted
from ..supervise.evidence import BLOCK_LINES, LONGEST_LINE, TAIL_LINES, TRACEBACKS
from .membership import FAILURE, LONGEST_NODE, LONGEST_REASON, STOP, TIME, Bounds, StopOrder, required
from .roster import (
    MAJORITY,
    MAX_RESTARTS,
    NO_PROGRESS,
    NODES,
    REASON,
    RosterView,
    read_entry,
    read_history,
    read_roster,
    read_view,
)

LARGEST_RECORD = 512 << 10
FIRST_FAILURES = 32  # failures that keep their words when there are far too many
# before the next traceback
CHAINED = ("another exception occurred:", "direct cause of the following exception:")
FEWEST_LINES = 3  # lines of each failure's last words when there are very many
LOST = "LOST"
# that a node can tell of itself
END_STATES = tuple(state for state in FINAL if state not in (LOST, "UNKNOWN"))
HIGHEST_SIGNAL = 64
LONGEST_ADDRESS = 64  # characters
LARGEST_EXIT = 1 << 31

NodePart = Dict[str, Any]
JsonObject = Dict[str, Any]


def lost_part(
    node: str, node_rank: NodeRank, reason: str, time: float, last_seen: Optional[float]
) -> NodePart:
    """Write the part of a node that cannot do it itself any more; `last_seen` is its last sign of life, if known."""
    identity = {
        "node": node,
        "node_rank": node_rank,
        "address": "",
        "state": LOST,
        "reason": reason,
        "time": time,
    }
    return {**identity, "last_seen": last_seen, "stopped_at": None, "failures": []}


def correct_clock(part: NodePart, offset: float) -> NodePart:
    """Turn a part's times to a clock from which its own differs by `offset` seconds."""
    failures = [_correct_failure(failure, offset) for failure in part["failures"]]
    return {**part, **_shift_times(part, ("time", "stopped_at"), offset), "failures": failures}


def _correct_failure(failure: JsonObject, offset: float) -> JsonObject:
    blocks = [{**block, **_shift_times(block, ("at",), offset)} for block in failure.get("said") or ()]
    return {
        **failure,
        **_shift_times(failure, ("time", "last_at"), offset),
        **({"said": blocks} if blocks else {}),
    }


def _shift_times(entry: JsonObject, keys: Iterable[str], offset: float) -> JsonObject:
    return {key: entry[key] - offset for key in keys if isinstance(entry.get(key), (int, float))}


def make_record(
    spec: JsonObject, parts: List[NodePart], stop: Optional[JsonObject], *, whole: bool
) -> JsonObject:
    """Put parts together; where very many have failed, each keeps fewer of its last words."""
    record = {"run": spec["run"], "hub": spec.get("hub"), "whole": whole, "stop": stop, "parts": parts}
    return limit_size(record)


def limit_size(record: JsonObject) -> JsonObject:
    """Leave out so much of the last words that a record, or what else has `parts`, is not too large."""
    parts = record["parts"]
    for lines in (12, 6, FEWEST_LINES):
        if len(json.dumps(record)) <= LARGEST_RECORD:
            return record
        record = {**record, "parts": [_shorten_output(part, lines) for part in parts]}
    if len(json.dumps(record)) > LARGEST_RECORD:
        record = {**record, "parts": _keep_first_output(record["parts"])}
    return record


def _keep_first_output(parts: List[NodePart]) -> List[NodePart]:
    """Keep what the first to fail have said, and how all others ended."""
    failures = [failure for part in parts for failure in part["failures"]]
    first = {
        id(failure)
        for failure in sorted(failures, key=lambda failure: failure.get("time") or 0.0)[:FIRST_FAILURES]
    }
    return [
        {**part, "failures": [_without_output(failure, first) for failure in part["failures"]]}
        for part in parts
    ]


def _without_output(failure: JsonObject, kept: Set[int]) -> JsonObject:
    return failure if id(failure) in kept or "said" not in failure else {**failure, "said": [], "tail": []}


def _shorten_output(part: NodePart, lines: int) -> NodePart:
    failures = [
        {**failure, "said": _last_chain(failure["said"]), "tail": failure["tail"][-lines:]}
        if "said" in failure
        else failure
        for failure in part["failures"]
    ]
    return {**part, "failures": failures}


def _last_chain(blocks: List[JsonObject]) -> List[JsonObject]:
    """Keep the last traceback, and the first of its chain: that one may be the cause."""
    first = len(blocks) - 1
    while first > 0 and any(line.endswith(CHAINED) for line in blocks[first]["lines"]):
        first -= 1
    return [*blocks[first : len(blocks) - 1][:1], *blocks[-1:]]


def read_part(message: Untrusted, bounds: Bounds) -> NodePart:
    """Read a node's account of its own end; the node and its rank are added by who knows them."""
    end = {
        "address": message.text("address", LONGEST_ADDRESS),
        "state": required(message.one_of("state", END_STATES) or None, "state"),
        "reason": message.text("reason"),
        "time": required(message.moment("time"), "time"),
        "stopped_at": message.moment("stopped_at"),
    }
    if not message.is_list("failures"):
        raise MalformedError("no list of failures")
    failures = [_read_failure(failure) for failure in message.records("failures", bounds.failures)]
    (part,) = limit_size({"parts": [{**end, "failures": failures}]})["parts"]
    return dict(part)


def read_record(message: Untrusted, bounds: Bounds) -> JsonObject:
    """Read the record of a run's end that a hub has put together."""
    if message.text("run") != bounds.run_id or not message.is_list("parts"):
        raise MalformedError("no record of this run")
    parts = [_read_recorded(part, bounds) for part in message.records("parts", bounds.slots)]
    stop = message.record("stop")
    return limit_size(
        {
            "run": bounds.run_id,
            "hub": message.text("hub", LONGEST_NODE),
            "whole": message.flag("whole"),
            "stop": _read_stop(stop) if stop else None,
            "parts": parts,
        }
    )


def _read_recorded(message: Untrusted, bounds: Bounds) -> NodePart:
    state = required(message.one_of("state", (*END_STATES, LOST)) or None, "state")
    node_rank = NodeRank(required(message.integer("node_rank", 0, bounds.slots - 1), "node rank"))
    end = {
        "state": state,
        "reason": message.text("reason"),
        "time": required(_read_shifted_time(message, "time"), "time"),
    }
    failures = [_read_failure(failure) for failure in message.records("failures", bounds.failures)]
    node = message.text("node", LONGEST_NODE)
    if not bounds.is_name(node):
        raise MalformedError("a part of no node of this run")
    identity = {"node": node, "node_rank": node_rank, "address": message.text("address", LONGEST_ADDRESS)}
    if state == LOST:
        end["last_seen"] = _read_shifted_time(message, "last_seen")
    return {**identity, **end, "stopped_at": _read_shifted_time(message, "stopped_at"), "failures": failures}


def _read_stop(message: Untrusted) -> JsonObject:
    stop = {"node": message.text("node", LONGEST_NODE), "reason": message.text("reason", LONGEST_REASON)}
    return {**stop, "time": required(message.moment("time"), "time")}


def _read_shifted_time(message: Untrusted, key: str) -> Optional[float]:
    """Give a time that a hub has turned from one clock to another, which may both be wrong."""
    return message.number(key, -2 * LATEST, 2 * LATEST)


def _read_failure(message: Untrusted) -> JsonObject:
    """Read how one process ended, and what it wrote last."""
    failure: JsonObject = {
        "rank": message.integer("rank", 0, LARGEST_EXIT),
        "exit": message.integer("exit", -LARGEST_EXIT, LARGEST_EXIT),
        "signal": message.integer("signal", 1, HIGHEST_SIGNAL),
        "time": _read_shifted_time(message, "time") or 0.0,
    }
    if "reason" in message:
        failure["reason"] = message.text("reason")
    if message.flag("starved"):
        failure["starved"] = True
    if not message.is_list("tail"):
        return failure
    blocks = [
        {
            "at": _read_shifted_time(block, "at") or 0.0,
            "lines": list(block.texts("lines", BLOCK_LINES, LONGEST_LINE)),
        }
        for block in message.records("said", TRACEBACKS)
    ]
    tail = list(message.texts("tail", TAIL_LINES, LONGEST_LINE))
    activity = {"last_at": _read_shifted_time(message, "last_at") or 0.0, "frozen": message.flag("frozen")}
    return {**failure, **activity, "said": blocks, "tail": tail}


LONGEST_KIND = 16  # characters
LONGEST_TIME = 1e9  # seconds that a run may have left
ADDRESS = re.compile(r"[0-9A-Fa-f:.]{2,45}")
GAVE_UP = (NO_PROGRESS, MAX_RESTARTS, CODE, REASON, NODES, MAJORITY)
ENDED_BETWEEN = ("CANCELLED", "TIMEOUT")  # how a run ends between two attempts, on all nodes alike


class BeatReply(NamedTuple):
    """A peer's answer to a beat: when it was asked, by the hub's clock, and its own time."""

    at: float
    time: float


class HubBeat(NamedTuple):
    """The hub's beat."""

    at: float


class Welcome(NamedTuple):
    """The hub has accepted this peer."""


class Ack(NamedTuple):
    """A peer has kept the record."""


class Failed(NamedTuple):
    """Something failed on a peer."""

    attempt: int
    reason: str


class Ended(NamedTuple):
    """A peer's part of an attempt."""

    attempt: int
    part: NodePart


class Hello(NamedTuple):
    """What a peer tells the next hub."""

    part: Optional[NodePart]
    roster: RosterView


class Cleared(NamedTuple):
    """Nothing is left on a peer of the attempt that ended."""

    unfit: str
    progress: Optional[bool]


class Ready(NamedTuple):
    """A gate waits for GO; of rank 0 with the master's port."""

    attempt: int
    port: Optional[int]
    address: str


class Listening(NamedTuple):
    """Rank 0 listens."""

    attempt: int
    port: int


class Verdict(NamedTuple):
    """The hub's record; of a run that may be started again also how it ended between two attempts."""

    record: JsonObject
    end: JsonObject


class SlotLost(NamedTuple):
    """A slot is lost."""

    slot: Slot
    why: str


class Pause(NamedTuple):
    """An attempt has ended, and there will be another."""

    entry: JsonObject
    seconds: float
    roster: RosterView


class NextAttempt(NamedTuple):
    """The next attempt begins."""

    time_left: Optional[float]
    roster: RosterView


class Go(NamedTuple):
    """GO of a later attempt."""

    address: str
    port: int


Message = Any  # one of the above
Reader = Callable[[Untrusted, Bounds], Message]


def read_message(message: Untrusted, readers: Dict[str, Reader], bounds: Bounds) -> Message:
    """Read one message; MalformedError names its kind."""
    kind = message.text("kind", LONGEST_KIND)
    if kind not in readers:
        raise MalformedError("it sent a malformed message (of no known kind)")
    try:
        return readers[kind](message, bounds)
    except MalformedError as error:
        raise MalformedError(f"it sent a malformed message ({kind}: {error})") from None


def order_fields(order: StopOrder, bounds: Bounds) -> JsonObject:
    """Put an order into a message; nobody asks the others for more time than they would grant."""
    return {"reason": order.reason, "grace": min(order.grace, bounds.grace), "occasion": order.kind}


def _read_stop_order(message: Untrusted, bounds: Bounds) -> StopOrder:
    grace = required(message.number("grace", 0.0, bounds.grace), "grace")
    kind = required(message.one_of("occasion", (FAILURE, STOP, TIME)) or None, "occasion")
    return StopOrder(message.text("reason", LONGEST_REASON), grace, kind)


def _read_beat_reply(message: Untrusted, _: Bounds) -> BeatReply:
    return BeatReply(required(message.moment("at"), "time"), required(message.moment("time"), "time"))


def _read_hub_beat(message: Untrusted, _: Bounds) -> HubBeat:
    return HubBeat(required(message.moment("at"), "time"))


def _read_failed(message: Untrusted, bounds: Bounds) -> Failed:
    return Failed(_read_attempt(message, bounds), message.text("reason", LONGEST_REASON))


def _read_ended(message: Untrusted, bounds: Bounds) -> Ended:
    return Ended(_read_attempt(message, bounds), read_part(message.record("part"), bounds))


def _read_hello(message: Untrusted, bounds: Bounds) -> Hello:
    part = None if message.is_null("part") else read_part(message.record("part"), bounds)
    return Hello(part, read_view(message, bounds))


def _read_cleared(message: Untrusted, _: Bounds) -> Cleared:
    return Cleared(message.text("unfit", LONGEST_REASON), message.choice("progress"))


def _read_ready(message: Untrusted, bounds: Bounds) -> Ready:
    port = None if message.is_null("port") else _read_port(message, "port")
    return Ready(_read_attempt(message, bounds), port, _read_address(message, "address"))


def _read_listening(message: Untrusted, bounds: Bounds) -> Listening:
    return Listening(_read_attempt(message, bounds), _read_port(message, "port"))


def _read_verdict(message: Untrusted, bounds: Bounds) -> Verdict:
    record, end = message.record("record"), _read_end(message.record("end"))
    verdict_record = read_record(record, bounds)
    if "roster" in record:  # a run that may be started again
        history, roster = read_history(record, "attempts", bounds), read_roster(record, bounds)
        verdict_record.update(attempts=history, roster=roster, **_read_end(record))
    return Verdict(verdict_record, end)


def _read_end(message: Untrusted) -> JsonObject:
    gave_up, state = message.one_of("gave_up", GAVE_UP) or None, message.one_of("state", ENDED_BETWEEN)
    return {"gave_up": gave_up, "state": state, "reason": message.text("reason", LONGEST_REASON)}


def _read_slot_lost(message: Untrusted, bounds: Bounds) -> SlotLost:
    slot = Slot(required(message.integer("seat", 0, bounds.slots - 1), "seat"))
    return SlotLost(slot, message.text("why", LONGEST_REASON))


def _read_pause(message: Untrusted, bounds: Bounds) -> Pause:
    seconds = required(message.number("seconds", 0.0, bounds.pause), "pause")
    return Pause(read_entry(message.record("entry"), bounds), seconds, read_view(message, bounds))


def _read_next_attempt(message: Untrusted, bounds: Bounds) -> NextAttempt:
    time_left = (
        None
        if message.is_null("time_left")
        else required(message.number("time_left", 0.0, LONGEST_TIME), "time")
    )
    return NextAttempt(time_left, read_view(message, bounds))


def _read_go(message: Untrusted, _: Bounds) -> Go:
    return Go(_read_address(message, "master_addr"), _read_port(message, "master_port"))


def _read_attempt(message: Untrusted, bounds: Bounds) -> int:
    """Give the attempt that a message is about; a run that is not started again has one, which nobody names."""
    return required(message.integer("attempt", 1, bounds.attempts), "attempt") if "attempt" in message else 1


def _read_port(message: Untrusted, key: str) -> int:
    return required(message.integer(key, 1, 65535), "port")


def _read_address(message: Untrusted, key: str) -> str:
    address = message.text(key)
    if not ADDRESS.fullmatch(address):
        raise MalformedError("no IP address")
    return address


TO_HUB: Dict[str, Reader] = {
    "beat": _read_beat_reply,
    "failed": _read_failed,
    "stop": _read_stop_order,
    "ended": _read_ended,
    "ack": lambda _message, _bounds: Ack(),
    "hello": _read_hello,
    "clear": _read_cleared,
    "ready": _read_ready,
    "listening": _read_listening,
}
TO_PEER: Dict[str, Reader] = {
    "beat": _read_hub_beat,
    "welcome": lambda _message, _bounds: Welcome(),
    "stop": _read_stop_order,
    "verdict": _read_verdict,
    "lost": _read_slot_lost,
    "pause": _read_pause,
    "again": _read_next_attempt,
    "go": _read_go,
}
