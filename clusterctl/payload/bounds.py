"""What one run allows: the bounds within which an agent believes what the other agents of its gang send."""

from __future__ import annotations

import re
from typing import Any, Dict, NamedTuple, Optional, Tuple, TypeVar

from ..protocol.untrusted import MalformedError
from .gang import limit_of

LONGEST_GRACE = 3600.0  # seconds that a node may ask the others for, where the job itself does not allow more
LONGEST_PAUSE = 30.0  # seconds before a restart
BESIDE_RANKS = 2  # failures of a part that are no rank's: torchrun's, and the guardian's
SOME_RANKS = 256  # of one node, where the size of the world is the program's own affair
LONGEST_NODE = 64  # characters
NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

T = TypeVar("T")


class Bounds(NamedTuple):
    """How large a run is, and who takes part in it."""

    run: str
    nodes: Tuple[str, ...]  # by seat; empty where the spec does not name them
    seats: int
    ranks: int  # of nodes
    failures: int  # of one node
    attempts: int
    grace: float
    pause: float

    def is_name(self, node: str) -> bool:
        """Tell whether one of the nodes can have this name."""
        if self.nodes:
            return node in self.nodes
        return len(node) <= LONGEST_NODE and NODE.fullmatch(node) is not None

    def is_name_of(self, seat: int, node: str) -> bool:
        """Tell whether a seat can have this name."""
        return self.is_name(node) and (not self.nodes or self.nodes[seat] == node)


def bounds_of(spec: Dict[str, Any]) -> Bounds:
    """Read the bounds from our own spec."""
    seats, restart = int(spec.get("seats") or spec["nnodes"]), spec.get("restart")
    nodes = [entry["node"] for entry in spec.get("roster") or ()] or spec.get("nodes") or []
    return Bounds(
        run=str(spec["run"]),
        nodes=tuple(map(str, nodes)) if len(nodes) == seats else (),
        seats=seats,
        ranks=int(spec["nnodes"]),
        failures=int(spec.get("world_size") or SOME_RANKS) + BESIDE_RANKS,
        attempts=int(restart["max"]) + seats + 1 if restart else 1,  # each succession may skip a number
        grace=max(float(spec.get("grace") or 0.0), LONGEST_GRACE),
        pause=max(LONGEST_PAUSE, limit_of(spec)),
    )


def required(value: Optional[T], what: str) -> T:
    """Give a value that a message must have; MalformedError if it is missing or out of bounds."""
    if value is None:
        raise MalformedError(f"no valid {what}")
    return value
