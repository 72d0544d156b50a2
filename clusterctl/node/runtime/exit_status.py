"""How a run ended on this node, decided from what was seen."""

from __future__ import annotations

import signal
from typing import Mapping, NamedTuple, Optional, Tuple


class Seen(NamedTuple):
    """What the agent saw until everything had ended."""

    went: bool
    cancelled: Optional[str] = None
    gate_failed: Optional[str] = None
    lost: Optional[str] = None
    first_failure: Optional[str] = None
    exit: Optional[int] = None
    signal: Optional[int] = None
    processes: int = 1
    timed_out: bool = False  # `cancelled` tells of the time limit
    world_size: Optional[int] = 1  # None: what a program's own workers see is its own affair
    worlds: Mapping[int, Optional[int]] = {}


def judge(seen: Seen) -> Tuple[str, str]:
    """Return the state and the reason; a stop that came after a failure does not excuse it."""
    if seen.lost is not None:
        return ("FAILED" if seen.went else "FAILED_SETUP"), seen.lost
    if not seen.went and seen.gate_failed is not None:
        return "FAILED_SETUP", seen.gate_failed
    if seen.first_failure is not None:
        return "FAILED", seen.first_failure
    if seen.cancelled is not None:
        return ("TIMEOUT" if seen.timed_out else "CANCELLED"), seen.cancelled
    if seen.exit != 0:
        return "FAILED", f"torchrun {describe_end(seen.exit, seen.signal)}"
    return _judge_worlds(seen)


def _judge_worlds(seen: Seen) -> Tuple[str, str]:
    if len(seen.worlds) != seen.processes:
        return "FAILED", f"{len(seen.worlds)} of {seen.processes} workers were started"
    for rank, size in sorted(seen.worlds.items()):
        if seen.world_size is not None and size != seen.world_size:
            return "FAILED", f"rank {rank} saw WORLD_SIZE {size}, planned were {seen.world_size}"
    return "SUCCEEDED", ""


def describe_limit(seconds: float) -> str:
    """Say which time limit it was: `time limit of 1 h 30 min`."""
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        count, seconds = divmod(seconds, size)
        parts += [f"{count:g} {unit}"] if count else []
    parts += [f"{seconds:g} s"] if seconds or not parts else []
    return f"time limit of {' '.join(parts)}"


def describe_end(code: Optional[int], number: Optional[int]) -> str:
    """Say how a process ended."""
    if number is not None:
        return f"was killed by {_signal_name(number)}"
    return "ended" if code is None else f"exited with {code}"


def split_status(status: int) -> Tuple[Optional[int], Optional[int]]:
    """Split a wait status into exit code and signal; one of them is None."""
    number = status & 0x7F
    return (None, number) if number else ((status >> 8) & 0xFF, None)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
