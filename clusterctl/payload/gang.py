"""The gang of one run: what an agent asks of it, and the record of the end that all of them keep.

A part is one node's word on its end: {node, node_rank, address, state, reason, time, stopped_at, failures}. The record
puts the parts together, their times turned to the hub's clock: {run, hub, whole, stop, parts}; `whole` is false in what
a node writes before the others were heard, or without the hub.
"""

from __future__ import annotations

import json
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional

from .loop import Loop

FAILURE_WAIT = 1.0  # seconds that the other workers have after one has failed
SILENCE_LIMIT = 20.0
STEPS = 10  # beats within the limit
FAREWELL = 2.0  # seconds that the rest of the gang has to take the record
LARGEST_RECORD = 512 << 10
LONGEST_REASON = 1000  # characters
FIRST = 32  # failures that keep their words when there are far too many
LEANEST = 3  # lines of each failure's last words when there are very many
LOST = "LOST"

FAILURE, STOP, TIME = "failure", "stop", "time"

Part = Dict[str, Any]
Facts = Dict[str, Any]


class Order(NamedTuple):
    """That the run shall end: why, seconds between TERM and KILL, and on what occasion."""

    reason: str
    grace: float
    kind: str = STOP


def read_order(message: Facts) -> Order:
    """Take an order out of a message."""
    return Order(str(message["reason"])[:LONGEST_REASON], float(message["grace"]), str(message["occasion"]))


def as_facts(order: Order) -> Facts:
    """Put an order into a message."""
    return {"reason": order.reason, "grace": order.grace, "occasion": order.kind}


class Side(NamedTuple):
    """What the gang's code has of its agent."""

    loop: Loop
    spec: Dict[str, Any]
    token: bytes
    tell: Callable[..., None]  # the client
    stop: Callable[[Order], None]  # end this node's part
    keep: Callable[[Facts], None]  # write the record
    leave: Callable[[], None]  # nothing is left to wait for


class Gang:
    """What an agent asks of its gang; this one has no others."""

    def __init__(self, side: Side) -> None:
        self.side = side

    @property
    def here(self) -> str:
        """This node's name."""
        return str(self.side.spec["node"])

    def open(self) -> None:
        """Begin, before anything is started."""

    def join(self, port: int) -> None:
        """Go to the hub."""

    def know(self, doors: List[Any]) -> None:
        """Hear where each of the others could be found: [seat, address, port]."""

    def departs(self, event: str, facts: Facts) -> None:
        """A later attempt has come so far here."""

    def cleared(self, unfit: str, progress: Optional[bool]) -> None:
        """Nothing is left here of the attempt that ended; `unfit`: why this node cannot take part in another."""

    def desert(self) -> None:
        """This node can take part no more; the others will notice."""
        self.side.leave()

    def went(self) -> None:
        """GO was given here."""

    def failed(self, reason: str) -> None:
        """Something failed here."""

    def stopped(self, order: Order) -> None:
        """Somebody stopped the run here, or its time was up."""

    def ended(self, part: Part) -> None:  # noqa: ARG002, RUF100 - there is nobody else to hear it
        """This node's part has ended; `leave` is called when the others know."""
        self.side.leave()

    def beat(self) -> None:
        """Say that we are here, and count silence."""


def silent_beats(spec: Dict[str, Any], interval: float) -> int:
    """Count the beats without a word after which somebody is lost."""
    return max(2, round(limit_of(spec) / interval))


def limit_of(spec: Dict[str, Any]) -> float:
    """Return the seconds of silence after which a node is lost."""
    return float(spec.get("gang_limit") or SILENCE_LIMIT)


def interval_of(spec: Dict[str, Any]) -> float:
    """Return the seconds between two beats."""
    return limit_of(spec) / STEPS


def lost_part(node: str, rank: int, reason: str, time: float) -> Part:
    """Write the part of a node that cannot do it itself any more."""
    about = {"node": node, "node_rank": rank, "state": LOST, "reason": reason, "time": time}
    return {**about, "stopped_at": None, "failures": []}


def on_clock(part: Part, offset: float) -> Part:
    """Turn a part's times to a clock from which its own differs by `offset` seconds."""
    failures = [_failure_on_clock(failure, offset) for failure in part["failures"]]
    return {**part, **_moved(part, ("time", "stopped_at"), offset), "failures": failures}


def _failure_on_clock(failure: Facts, offset: float) -> Facts:
    said = [{**block, **_moved(block, ("at",), offset)} for block in failure.get("said") or ()]
    return {**failure, **_moved(failure, ("time", "last_at"), offset), **({"said": said} if said else {})}


def _moved(entry: Facts, names: Iterable[str], offset: float) -> Facts:
    return {name: entry[name] - offset for name in names if isinstance(entry.get(name), (int, float))}


def is_part(value: Any) -> bool:
    """Whether this can be somebody's part."""
    if not isinstance(value, dict) or not isinstance(value.get("failures"), list):
        return False
    texts = all(isinstance(value.get(name), str) for name in ("state", "reason"))
    return texts and all(isinstance(failure, dict) for failure in value["failures"])


def make_record(spec: Facts, parts: List[Part], stop: Optional[Facts], *, whole: bool) -> Facts:
    """Put parts together; where very many have failed, each keeps fewer of its last words."""
    record = {"run": spec["run"], "hub": spec.get("hub"), "whole": whole, "stop": stop, "parts": parts}
    for most in (12, 6, LEANEST):
        if len(json.dumps(record)) <= LARGEST_RECORD:
            break
        record["parts"] = [_leaner(part, most) for part in parts]
    if len(json.dumps(record)) > LARGEST_RECORD:
        record["parts"] = _only_first_words(record["parts"])
    return record


def _only_first_words(parts: List[Part]) -> List[Part]:
    """Keep what the first to fail have said, and how all others ended."""
    times = sorted(failure.get("time") or 0.0 for part in parts for failure in part["failures"])
    last = times[:FIRST][-1:] or [0.0]
    return [
        {
            **part,
            "failures": [
                failure if (failure.get("time") or 0.0) <= last[0] else {**failure, "said": [], "tail": []}
                for failure in part["failures"]
            ],
        }
        for part in parts
    ]


def _leaner(part: Part, most: int) -> Part:
    failures = [
        {**failure, "said": failure["said"][-1:], "tail": failure["tail"][-most:]}
        if "said" in failure
        else failure
        for failure in part["failures"]
    ]
    return {**part, "failures": failures}
