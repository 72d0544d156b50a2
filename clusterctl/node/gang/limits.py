"""Limits between the agents of a gang: of silence, of the time that ends take, and of what messages may hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from ...protocol.frames import SILENCE_LIMIT
from ...protocol.messages.gang import MAX_REASON, Bounds, StopOrder
from ...protocol.reasons import FAILURE

if TYPE_CHECKING:
    from ...protocol.messages.checkpoints import Restore
    from ...protocol.messages.files import Spec


FAILURE_WAIT = 1.0  # seconds that the other workers have after one has failed
BEATS_PER_LIMIT = 20  # beats within the limit
SUSPECTED_AFTER = 4  # beats without an answer, after which a node must answer connections (see node_check.py)
READY_LIMIT = 300.0  # seconds for a new attempt's gates
MIN_RESTORE_RATE = 1e7  # bytes a second that a checkpoint is restored with, even over a slow network
CUT_OFF_ENDS_AFTER = 3  # beats: a node that is cut off ends its part 8 after that, and counts as lost after 5
FINAL_GRACE = 2.0  # seconds that the rest of the gang has to take the record
OVERDUE = 120.0  # seconds beyond its grace in which a node kills what is left, looks at its GPUs, and reports
MAX_GRACE = 3600.0  # seconds that a node may ask the others for, where the job itself does not allow more
MAX_PAUSE = 30.0  # seconds before a restart
NON_RANK_FAILURES = 2  # failures of a part that are no rank's: torchrun's, and the guardian's
DEFAULT_RANKS = 256  # of one node, where the size of the world is the program's own affair


def silent_beats(spec: Spec, interval: float) -> int:
    """Count the unanswered beats after which a node is lost."""
    return max(2, round(silence_limit(spec) / interval))


def silence_limit(spec: Spec) -> float:
    """Return the seconds of silence after which a node is lost."""
    return float(spec.get("gang_limit") or SILENCE_LIMIT)


def beat_interval(spec: Spec) -> float:
    """Return the seconds between two beats."""
    return silence_limit(spec) / BEATS_PER_LIMIT


def find_cut_off_end(spec: Spec, lost: float) -> float:
    """Return when a node that counts as lost since a moment, but may only be cut off, has ended its part."""
    return lost + CUT_OFF_ENDS_AFTER * beat_interval(spec)


def overdue_after(spec: Spec, grace: float) -> float:
    """Return the seconds after a stop in which every node's part has ended, or never will."""
    after = spec.get("after")
    return grace + (after["time_limit"] if after else 0.0) + float(spec.get("overdue_limit") or OVERDUE)


def time_to_restore(resume: Optional[Restore]) -> float:
    """Return the seconds that restoring a checkpoint may take."""
    parts = resume.seal.parts if resume is not None and not resume.seal.shared else ()
    return sum(part.bytes for part in parts) / MIN_RESTORE_RATE


def read_bounds(spec: Spec) -> Bounds:
    """Read the bounds from our own spec."""
    slots, restart = int(spec.get("slots") or spec["nnodes"]), spec.get("restart")
    nodes = [entry["node"] for entry in spec.get("roster") or ()] or spec.get("nodes") or []
    return Bounds(
        run_id=str(spec["run"]),
        nodes=tuple(map(str, nodes)) if len(nodes) == slots else (),
        slots=slots,
        node_ranks=int(spec["nnodes"]),
        failures=int(spec.get("world_size") or DEFAULT_RANKS) + NON_RANK_FAILURES,
        attempts=int(restart["max"]) + slots + 1 if restart else 1,  # each succession may skip a number
        grace=max(float(spec.get("grace") or 0.0), MAX_GRACE),
        pause=max(MAX_PAUSE, silence_limit(spec)),
    )


def failure_order(reason: str) -> StopOrder:
    """End what is left of an attempt that has failed."""
    return StopOrder(reason[:MAX_REASON], FAILURE_WAIT, FAILURE)


def limit_grace(order: StopOrder, bounds: Bounds) -> StopOrder:
    """Ask the others for no more time than they would grant."""
    return order._replace(grace=min(order.grace, bounds.grace))
