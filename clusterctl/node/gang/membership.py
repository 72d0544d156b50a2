"""What hub and peers have in common, and the bounds of a run."""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple, TypeVar

from ...protocol.ranks import Slot
from ...protocol.untrusted import MalformedError
from ..runtime.event_loop import Loop

FAILURE_WAIT = 1.0  # seconds that the other workers have after one has failed
SILENCE_LIMIT = 20.0
BEATS_PER_LIMIT = 10  # beats within the limit
FINAL_GRACE = 2.0  # seconds that the rest of the gang has to take the record
OVERDUE = 120.0  # seconds beyond its grace in which a node kills what is left, looks at its GPUs, and reports
LONGEST_REASON = 1000  # characters

FAILURE, STOP, TIME = "failure", "stop", "time"

NodePart = Dict[str, Any]
JsonObject = Dict[str, Any]


class StopOrder(NamedTuple):
    """That the run shall end: why, seconds between TERM and KILL, and on what occasion."""

    reason: str
    grace: float
    kind: str = STOP


class GangContext(NamedTuple):
    """What the gang's code has of its agent."""

    loop: Loop
    spec: Dict[str, Any]
    token: bytes
    report: Callable[..., None]  # the client
    stop: Callable[[StopOrder], None]  # end this node's part
    save_record: Callable[[JsonObject], None]  # write the record
    leave: Callable[[], None]  # nothing is left to wait for


class Gang:
    """What an agent asks of its gang; this one has no others."""

    def __init__(self, context: GangContext) -> None:
        self.context = context

    @property
    def own_node(self) -> str:
        """This node's name."""
        return str(self.context.spec["node"])

    def open(self) -> None:
        """Begin, before anything is started."""

    def join(self, port: int) -> None:
        """Go to the hub."""

    def set_listen_addresses(self, addresses: List[Any]) -> None:
        """Take where each of the others listens: [slot, address, port]."""

    def on_startup_event(self, event: str, facts: JsonObject) -> None:
        """A later attempt has come so far here."""

    def on_cleared(self, unfit: str, progress: Optional[bool]) -> None:
        """Nothing is left here of the attempt that ended; `unfit`: why this node cannot take part in another."""

    def leave(self) -> None:
        """This node can take part no more; the others will notice."""
        self.context.leave()

    def on_go(self) -> None:
        """GO was given here."""

    def on_failure(self, reason: str) -> None:
        """Something failed here."""

    def on_stop(self, order: StopOrder) -> None:
        """Somebody stopped the run here, or its time was up."""

    def on_end(self, part: NodePart) -> None:  # noqa: ARG002, RUF100 - there is nobody else to hear it
        """This node's part has ended; `leave` is called when the others know."""
        self.context.leave()

    def beat(self) -> None:
        """Say that we are here, and count silence."""


def silent_beats(spec: Dict[str, Any], interval: float) -> int:
    """Count the beats without a word after which somebody is lost."""
    return max(2, round(silence_limit(spec) / interval))


def silence_limit(spec: Dict[str, Any]) -> float:
    """Return the seconds of silence after which a node is lost."""
    return float(spec.get("gang_limit") or SILENCE_LIMIT)


def beat_interval(spec: Dict[str, Any]) -> float:
    """Return the seconds between two beats."""
    return silence_limit(spec) / BEATS_PER_LIMIT


def overdue_after(spec: Dict[str, Any], grace: float) -> float:
    """Return the seconds after a stop in which every node's part has ended, or never will."""
    after = float((spec.get("after") or {}).get("time_limit") or 0.0)
    return grace + after + float(spec.get("overdue_limit") or OVERDUE)


LONGEST_GRACE = 3600.0  # seconds that a node may ask the others for, where the job itself does not allow more
LONGEST_PAUSE = 30.0  # seconds before a restart
NON_RANK_FAILURES = 2  # failures of a part that are no rank's: torchrun's, and the guardian's
DEFAULT_RANKS = 256  # of one node, where the size of the world is the program's own affair
LONGEST_NODE = 64  # characters
NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

T = TypeVar("T")


class Bounds(NamedTuple):
    """How large a run is, and who takes part in it."""

    run_id: str
    nodes: Tuple[str, ...]  # by slot; empty where the spec does not name them
    slots: int
    node_ranks: int  # of nodes
    failures: int  # of one node
    attempts: int
    grace: float
    pause: float

    def is_name(self, node: str) -> bool:
        """Tell whether one of the nodes can have this name."""
        if self.nodes:
            return node in self.nodes
        return len(node) <= LONGEST_NODE and NODE_NAME.fullmatch(node) is not None

    def is_name_of(self, slot: Slot, node: str) -> bool:
        """Tell whether a slot can have this name."""
        return self.is_name(node) and (not self.nodes or self.nodes[slot] == node)


def read_bounds(spec: Dict[str, Any]) -> Bounds:
    """Read the bounds from our own spec."""
    slots, restart = int(spec.get("seats") or spec["nnodes"]), spec.get("restart")
    nodes = [entry["node"] for entry in spec.get("roster") or ()] or spec.get("nodes") or []
    return Bounds(
        run_id=str(spec["run"]),
        nodes=tuple(map(str, nodes)) if len(nodes) == slots else (),
        slots=slots,
        node_ranks=int(spec["nnodes"]),
        failures=int(spec.get("world_size") or DEFAULT_RANKS) + NON_RANK_FAILURES,
        attempts=int(restart["max"]) + slots + 1 if restart else 1,  # each succession may skip a number
        grace=max(float(spec.get("grace") or 0.0), LONGEST_GRACE),
        pause=max(LONGEST_PAUSE, silence_limit(spec)),
    )


def required(value: Optional[T], what: str) -> T:
    """Give a value that a message must have; MalformedError if it is missing or out of bounds."""
    if value is None:
        raise MalformedError(f"no valid {what}")
    return value
