"""Messages between the agents of a gang, and the record of the run's end.

The parts of a run's end, and the record that all agents keep of it: how they are written, and read from others.

A part is one node's account of its end: {node, node_rank, address, state, reason, time, stopped_at, failures}. The
record puts the parts together, their times turned to the hub's clock: {run, hub, whole, stop, parts}; the part of a
lost node has its last sign of life as `last_seen`; `whole` is false
in what a node writes before the others were heard, or without the hub. A run that may be started again adds
{attempts, roster, gave_up, state, reason}, see roster.py.

What the agents of one gang send each other, read into values within the bounds of their run.

to the hub    beat failed stop ended ack; of a run that may be started again also hello clear ready listening
to a peer     beat welcome stop verdict; likewise lost pause again go

A channel reads every message here before anybody sees it. MalformedError means that no agent of this version would
have sent it, so its sender is given up. What a message means in which phase is the receiver's affair.
"""

from __future__ import annotations

import json
import re
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Set

from ...protocol.reasons import CODE
from ...protocol.untrusted import LATEST, MalformedError, Untrusted
from ..state.run_record import FINAL
from ..supervise.evidence import BLOCK_LINES, LONGEST_LINE, TAIL_LINES, TRACEBACKS
from .membership import FAILURE, LONGEST_NODE, LONGEST_REASON, STOP, TIME, Bounds, Order, required
from .roster import (
    MAJORITY,
    MOST,
    NO_PROGRESS,
    NODES,
    REASON,
    Told,
    read_entry,
    read_history,
    read_roster,
    read_told,
)

LARGEST_RECORD = 512 << 10
FIRST = 32  # failures that keep their words when there are far too many
CHAINED = (
    "another exception occurred:",
    "direct cause of the following exception:",
)  # before the next traceback
LEANEST = 3  # lines of each failure's last words when there are very many
LOST = "LOST"
ENDS = tuple(state for state in FINAL if state not in (LOST, "UNKNOWN"))  # that a node can tell of itself
HIGHEST_SIGNAL = 64
LONGEST_ADDRESS = 64  # characters
EXITS = 1 << 31

Part = Dict[str, Any]
Facts = Dict[str, Any]


def lost_part(node: str, rank: int, reason: str, time: float, last_seen: Optional[float]) -> Part:
    """Write the part of a node that cannot do it itself any more; `last_seen` is its last sign of life, if known."""
    about = {"node": node, "node_rank": rank, "address": "", "state": LOST, "reason": reason, "time": time}
    return {**about, "last_seen": last_seen, "stopped_at": None, "failures": []}


def on_clock(part: Part, offset: float) -> Part:
    """Turn a part's times to a clock from which its own differs by `offset` seconds."""
    failures = [_failure_on_clock(failure, offset) for failure in part["failures"]]
    return {**part, **_moved(part, ("time", "stopped_at"), offset), "failures": failures}


def _failure_on_clock(failure: Facts, offset: float) -> Facts:
    said = [{**block, **_moved(block, ("at",), offset)} for block in failure.get("said") or ()]
    return {**failure, **_moved(failure, ("time", "last_at"), offset), **({"said": said} if said else {})}


def _moved(entry: Facts, names: Iterable[str], offset: float) -> Facts:
    return {name: entry[name] - offset for name in names if isinstance(entry.get(name), (int, float))}


def make_record(spec: Facts, parts: List[Part], stop: Optional[Facts], *, whole: bool) -> Facts:
    """Put parts together; where very many have failed, each keeps fewer of its last words."""
    record = {"run": spec["run"], "hub": spec.get("hub"), "whole": whole, "stop": stop, "parts": parts}
    return fit(record)


def fit(record: Facts) -> Facts:
    """Leave out so much of the last words that a record, or what else has `parts`, is not too large."""
    parts = record["parts"]
    for most in (12, 6, LEANEST):
        if len(json.dumps(record)) <= LARGEST_RECORD:
            return record
        record = {**record, "parts": [_leaner(part, most) for part in parts]}
    if len(json.dumps(record)) > LARGEST_RECORD:
        record = {**record, "parts": _only_first_words(record["parts"])}
    return record


def _only_first_words(parts: List[Part]) -> List[Part]:
    """Keep what the first to fail have said, and how all others ended."""
    failures = [failure for part in parts for failure in part["failures"]]
    first = {id(one) for one in sorted(failures, key=lambda one: one.get("time") or 0.0)[:FIRST]}
    return [{**part, "failures": [_wordless(one, first) for one in part["failures"]]} for part in parts]


def _wordless(failure: Facts, spared: Set[int]) -> Facts:
    return failure if id(failure) in spared or "said" not in failure else {**failure, "said": [], "tail": []}


def _leaner(part: Part, most: int) -> Part:
    failures = [
        {**failure, "said": _last_chain(failure["said"]), "tail": failure["tail"][-most:]}
        if "said" in failure
        else failure
        for failure in part["failures"]
    ]
    return {**part, "failures": failures}


def _last_chain(said: List[Facts]) -> List[Facts]:
    """Keep the last traceback, and the first of its chain: that one may be the cause."""
    first = len(said) - 1
    while first > 0 and any(line.endswith(CHAINED) for line in said[first]["lines"]):
        first -= 1
    return [*said[first : len(said) - 1][:1], *said[-1:]]


def read_part(told: Untrusted, bounds: Bounds) -> Part:
    """Read a node's account of its own end; the node and its rank are added by who knows them."""
    end = {
        "address": told.text("address", LONGEST_ADDRESS),
        "state": required(told.one_of("state", ENDS) or None, "state"),
        "reason": told.text("reason"),
        "time": required(told.moment("time"), "time"),
        "stopped_at": told.moment("stopped_at"),
    }
    if not told.is_list("failures"):
        raise MalformedError("no list of failures")
    failures = [_read_failure(one) for one in told.records("failures", bounds.failures)]
    (part,) = fit({"parts": [{**end, "failures": failures}]})["parts"]
    return dict(part)


def read_record(told: Untrusted, bounds: Bounds) -> Facts:
    """Read the record of a run's end that a hub has put together."""
    if told.text("run") != bounds.run or not told.is_list("parts"):
        raise MalformedError("no record of this run")
    parts = [_read_recorded(part, bounds) for part in told.records("parts", bounds.seats)]
    stop = told.record("stop")
    return fit(
        {
            "run": bounds.run,
            "hub": told.text("hub", LONGEST_NODE),
            "whole": told.flag("whole"),
            "stop": _read_stop(stop) if stop else None,
            "parts": parts,
        }
    )


def _read_recorded(told: Untrusted, bounds: Bounds) -> Part:
    state = required(told.one_of("state", (*ENDS, LOST)) or None, "state")
    rank = required(told.integer("node_rank", 0, bounds.seats - 1), "node rank")
    end = {"state": state, "reason": told.text("reason"), "time": required(_shifted(told, "time"), "time")}
    failures = [_read_failure(one) for one in told.records("failures", bounds.failures)]
    node = told.text("node", LONGEST_NODE)
    if not bounds.is_name(node):
        raise MalformedError("a part of no node of this run")
    about = {"node": node, "node_rank": rank, "address": told.text("address", LONGEST_ADDRESS)}
    if state == LOST:
        end["last_seen"] = _shifted(told, "last_seen")
    return {**about, **end, "stopped_at": _shifted(told, "stopped_at"), "failures": failures}


def _read_stop(told: Untrusted) -> Facts:
    about = {"node": told.text("node", LONGEST_NODE), "reason": told.text("reason", LONGEST_REASON)}
    return {**about, "time": required(told.moment("time"), "time")}


def _shifted(told: Untrusted, key: str) -> Optional[float]:
    """Give a time that a hub has turned from one clock to another, which may both be wrong."""
    return told.number(key, -2 * LATEST, 2 * LATEST)


def _read_failure(told: Untrusted) -> Facts:
    """Read how one process ended, and what it wrote last."""
    failure: Facts = {
        "rank": told.integer("rank", 0, EXITS),
        "exit": told.integer("exit", -EXITS, EXITS),
        "signal": told.integer("signal", 1, HIGHEST_SIGNAL),
        "time": _shifted(told, "time") or 0.0,
    }
    if "reason" in told:
        failure["reason"] = told.text("reason")
    if told.flag("starved"):
        failure["starved"] = True
    if not told.is_list("tail"):
        return failure
    said = [
        {"at": _shifted(block, "at") or 0.0, "lines": list(block.texts("lines", BLOCK_LINES, LONGEST_LINE))}
        for block in told.records("said", TRACEBACKS)
    ]
    tail = list(told.texts("tail", TAIL_LINES, LONGEST_LINE))
    seen = {"last_at": _shifted(told, "last_at") or 0.0, "frozen": told.flag("frozen")}
    return {**failure, **seen, "said": said, "tail": tail}


LONGEST_KIND = 16  # characters
LONGEST_TIME = 1e9  # seconds that a run may have left
ADDRESS = re.compile(r"[0-9A-Fa-f:.]{2,45}")
GAVE_UP = (NO_PROGRESS, MOST, CODE, REASON, NODES, MAJORITY)
ENDED_BETWEEN = ("CANCELLED", "TIMEOUT")  # how a run ends between two attempts, on all nodes alike


class Beat(NamedTuple):
    """A peer's answer to a beat: when it was asked, by the hub's clock, and its own time."""

    at: float
    time: float


class Ask(NamedTuple):
    """The hub's beat."""

    at: float


class Welcome(NamedTuple):
    """The hub has heard of us."""


class Ack(NamedTuple):
    """A peer has kept the record."""


class Failed(NamedTuple):
    """Something failed on a peer."""

    attempt: int
    reason: str


class Ended(NamedTuple):
    """A peer's part of an attempt."""

    attempt: int
    part: Part


class Hello(NamedTuple):
    """What a peer tells the next hub."""

    part: Optional[Part]
    course: Told


class Clear(NamedTuple):
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

    record: Facts
    end: Facts


class Gone(NamedTuple):
    """A seat is lost."""

    seat: int
    why: str


class Pause(NamedTuple):
    """An attempt has ended, and there will be another."""

    entry: Facts
    seconds: float
    course: Told


class Again(NamedTuple):
    """The next attempt begins."""

    time_left: Optional[float]
    course: Told


class Go(NamedTuple):
    """GO of a later attempt."""

    address: str
    port: int


Message = Any  # one of the above
Reader = Callable[[Untrusted, Bounds], Message]


def read_message(told: Untrusted, readers: Dict[str, Reader], bounds: Bounds) -> Message:
    """Read one message; MalformedError names its kind."""
    kind = told.text("kind", LONGEST_KIND)
    if kind not in readers:
        raise MalformedError("it sent a malformed message (of no known kind)")
    try:
        return readers[kind](told, bounds)
    except MalformedError as error:
        raise MalformedError(f"it sent a malformed message ({kind}: {error})") from None


def as_facts(order: Order, bounds: Bounds) -> Facts:
    """Put an order into a message; nobody asks the others for more time than they would grant."""
    return {"reason": order.reason, "grace": min(order.grace, bounds.grace), "occasion": order.kind}


def _read_order(told: Untrusted, bounds: Bounds) -> Order:
    grace = required(told.number("grace", 0.0, bounds.grace), "grace")
    kind = required(told.one_of("occasion", (FAILURE, STOP, TIME)) or None, "occasion")
    return Order(told.text("reason", LONGEST_REASON), grace, kind)


def _read_beat(told: Untrusted, _: Bounds) -> Beat:
    return Beat(required(told.moment("at"), "time"), required(told.moment("time"), "time"))


def _read_ask(told: Untrusted, _: Bounds) -> Ask:
    return Ask(required(told.moment("at"), "time"))


def _read_failed(told: Untrusted, bounds: Bounds) -> Failed:
    return Failed(_attempt(told, bounds), told.text("reason", LONGEST_REASON))


def _read_ended(told: Untrusted, bounds: Bounds) -> Ended:
    return Ended(_attempt(told, bounds), read_part(told.record("part"), bounds))


def _read_hello(told: Untrusted, bounds: Bounds) -> Hello:
    part = None if told.is_null("part") else read_part(told.record("part"), bounds)
    return Hello(part, read_told(told, bounds))


def _read_clear(told: Untrusted, _: Bounds) -> Clear:
    return Clear(told.text("unfit", LONGEST_REASON), told.choice("progress"))


def _read_ready(told: Untrusted, bounds: Bounds) -> Ready:
    port = None if told.is_null("port") else _port(told, "port")
    return Ready(_attempt(told, bounds), port, _address(told, "address"))


def _read_listening(told: Untrusted, bounds: Bounds) -> Listening:
    return Listening(_attempt(told, bounds), _port(told, "port"))


def _read_verdict(told: Untrusted, bounds: Bounds) -> Verdict:
    record, end = told.record("record"), _read_end(told.record("end"))
    kept = read_record(record, bounds)
    if "roster" in record:  # a run that may be started again
        history, roster = read_history(record, "attempts", bounds), read_roster(record, bounds)
        kept.update(attempts=history, roster=roster, **_read_end(record))
    return Verdict(kept, end)


def _read_end(told: Untrusted) -> Facts:
    gave_up, state = told.one_of("gave_up", GAVE_UP) or None, told.one_of("state", ENDED_BETWEEN)
    return {"gave_up": gave_up, "state": state, "reason": told.text("reason", LONGEST_REASON)}


def _read_gone(told: Untrusted, bounds: Bounds) -> Gone:
    seat = required(told.integer("seat", 0, bounds.seats - 1), "seat")
    return Gone(seat, told.text("why", LONGEST_REASON))


def _read_pause(told: Untrusted, bounds: Bounds) -> Pause:
    seconds = required(told.number("seconds", 0.0, bounds.pause), "pause")
    return Pause(read_entry(told.record("entry"), bounds), seconds, read_told(told, bounds))


def _read_again(told: Untrusted, bounds: Bounds) -> Again:
    left = (
        None if told.is_null("time_left") else required(told.number("time_left", 0.0, LONGEST_TIME), "time")
    )
    return Again(left, read_told(told, bounds))


def _read_go(told: Untrusted, _: Bounds) -> Go:
    return Go(_address(told, "master_addr"), _port(told, "master_port"))


def _attempt(told: Untrusted, bounds: Bounds) -> int:
    """Give the attempt that a message is about; a run that is not started again has one, which nobody names."""
    return required(told.integer("attempt", 1, bounds.attempts), "attempt") if "attempt" in told else 1


def _port(told: Untrusted, key: str) -> int:
    return required(told.integer(key, 1, 65535), "port")


def _address(told: Untrusted, key: str) -> str:
    address = told.text(key)
    if not ADDRESS.fullmatch(address):
        raise MalformedError("no IP address")
    return address


TO_HUB: Dict[str, Reader] = {
    "beat": _read_beat,
    "failed": _read_failed,
    "stop": _read_order,
    "ended": _read_ended,
    "ack": lambda _told, _bounds: Ack(),
    "hello": _read_hello,
    "clear": _read_clear,
    "ready": _read_ready,
    "listening": _read_listening,
}
TO_PEER: Dict[str, Reader] = {
    "beat": _read_ask,
    "welcome": lambda _told, _bounds: Welcome(),
    "stop": _read_order,
    "verdict": _read_verdict,
    "lost": _read_gone,
    "pause": _read_pause,
    "again": _read_again,
    "go": _read_go,
}
