"""The gang of one run: what an agent asks of it, and the orders that pass between its members."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Optional

from .loop import Loop

FAILURE_WAIT = 1.0  # seconds that the other workers have after one has failed
SILENCE_LIMIT = 20.0
STEPS = 10  # beats within the limit
FAREWELL = 2.0  # seconds that the rest of the gang has to take the record
OVERDUE = 120.0  # seconds beyond its grace in which a node kills what is left, looks at its GPUs, and reports
LONGEST_REASON = 1000  # characters

FAILURE, STOP, TIME = "failure", "stop", "time"

Part = Dict[str, Any]
Facts = Dict[str, Any]


class Order(NamedTuple):
    """That the run shall end: why, seconds between TERM and KILL, and on what occasion."""

    reason: str
    grace: float
    kind: str = STOP


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


def overdue_after(spec: Dict[str, Any], grace: float) -> float:
    """Return the seconds after a stop in which every node's part has ended, or never will."""
    after = float((spec.get("after") or {}).get("time_limit") or 0.0)
    return grace + after + float(spec.get("overdue_limit") or OVERDUE)
