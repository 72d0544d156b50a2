"""How a run ended on this node, decided from what was seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Mapping, NamedTuple, Optional, Tuple

from ...protocol.exit_status import describe_end
from ...protocol.ranks import Rank
from ...protocol.states import CANCELLED, FAILED, FAILED_SETUP, SUCCEEDED, TIMEOUT

if TYPE_CHECKING:
    from ...protocol.states import RunState


class Observed(NamedTuple):
    """What the agent saw until everything had ended."""

    started: bool
    cancelled: Optional[str] = None
    gate_failed: Optional[str] = None
    lost: Optional[str] = None
    first_failure: Optional[str] = None
    exit: Optional[int] = None
    signal: Optional[int] = None
    processes: Optional[int] = 1
    timed_out: bool = False  # `cancelled` tells of the time limit
    world_size: Optional[int] = 1  # None: what a program's own workers see is its own affair
    worlds: Mapping[Rank, Optional[int]] = {}


def judge(observed: Observed) -> Tuple[RunState, str]:
    """Return the state and the reason; a stop that came after a failure does not excuse it."""
    if observed.lost is not None:
        return (FAILED if observed.started else FAILED_SETUP), observed.lost
    if not observed.started and observed.gate_failed is not None:
        return FAILED_SETUP, observed.gate_failed
    if observed.first_failure is not None:
        return FAILED, observed.first_failure
    if observed.cancelled is not None:
        return (TIMEOUT if observed.timed_out else CANCELLED), observed.cancelled
    if observed.exit != 0:
        return FAILED, f"torchrun {describe_end(observed.exit, observed.signal)}"
    return _judge_worlds(observed)


def _judge_worlds(observed: Observed) -> Tuple[RunState, str]:
    if len(observed.worlds) != observed.processes:
        return FAILED, f"{len(observed.worlds)} of {observed.processes} workers were started"
    for rank, world_size in sorted(observed.worlds.items()):
        if observed.world_size is not None and world_size != observed.world_size:
            return FAILED, f"rank {rank} saw WORLD_SIZE {world_size}, planned were {observed.world_size}"
    return SUCCEEDED, ""


def describe_limit(seconds: float) -> str:
    """Say which time limit it was: `time limit of 1 h 30 min`."""
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        count, seconds = divmod(seconds, size)
        parts += [f"{count:g} {unit}"] if count else []
    parts += [f"{seconds:g} s"] if seconds or not parts else []
    return f"time limit of {' '.join(parts)}"
