"""Limits of time between the agents of a gang: after which silence a node is lost, and how long ends may take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...protocol.frames import SILENCE_LIMIT

if TYPE_CHECKING:
    from ...protocol.messages.files import Spec


FAILURE_WAIT = 1.0  # seconds that the other workers have after one has failed
BEATS_PER_LIMIT = 20  # beats within the limit
SUSPECTED_AFTER = 4  # beats without an answer, after which a node must answer connections (see node_check.py)
READY_LIMIT = 300.0  # seconds for a new attempt's gates
FINAL_GRACE = 2.0  # seconds that the rest of the gang has to take the record
OVERDUE = 120.0  # seconds beyond its grace in which a node kills what is left, looks at its GPUs, and reports
LONGEST_GRACE = 3600.0  # seconds that a node may ask the others for, where the job itself does not allow more
LONGEST_PAUSE = 30.0  # seconds before a restart


def silent_beats(spec: Spec, interval: float) -> int:
    """Count the unanswered beats after which a node is lost."""
    return max(2, round(silence_limit(spec) / interval))


def silence_limit(spec: Spec) -> float:
    """Return the seconds of silence after which a node is lost."""
    return float(spec.get("gang_limit") or SILENCE_LIMIT)


def beat_interval(spec: Spec) -> float:
    """Return the seconds between two beats."""
    return silence_limit(spec) / BEATS_PER_LIMIT


def overdue_after(spec: Spec, grace: float) -> float:
    """Return the seconds after a stop in which every node's part has ended, or never will."""
    after = spec.get("after")
    return grace + (after["time_limit"] if after else 0.0) + float(spec.get("overdue_limit") or OVERDUE)
