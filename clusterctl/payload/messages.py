"""What the agents of one gang send each other, read into values within the bounds of their run.

to the hub    beat failed stop ended ack; of a run that may be started again also hello clear ready listening
to a peer     beat welcome stop verdict; likewise lost pause again go

A channel reads every message here before anybody sees it. MalformedError means that no agent of this version would
have sent it, so its sender is given up. What a message means in which phase is the receiver's affair.
"""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, NamedTuple, Optional

from ..protocol.untrusted import MalformedError, Untrusted
from .bounds import Bounds, required
from .course import (
    CODE,
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
from .gang import FAILURE, LONGEST_REASON, STOP, TIME, Order
from .parts import Facts, Part, read_part, read_record

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
