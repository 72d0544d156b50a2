"""Runs whose ranks ran alone: every node reports success, and that its ranks had no process group of the planned size.

The nodes decide what is certain (`node/supervise/ranks/groups.py`), and `protocol/run_end.py` what the run is called.
"""

from __future__ import annotations

from clusterctl.codes.lookup import word
from clusterctl.protocol.end_record import AloneRanks

ALONE_CODE = "CC-RUN-053"


def describe_alone(alone: AloneRanks) -> tuple[str, str]:
    """Describe it in a sentence, and what fixes it."""
    facts = {"ranks": alone.ranks, "largest": alone.largest, "planned": alone.planned}
    return word(ALONE_CODE, "groups" if alone.largest > 1 else "", facts)


def alone_to_json(alone: AloneRanks) -> dict[str, object]:
    """Return its place in the JSON of a verdict."""
    numbers = {"ranks": alone.ranks, "largest": alone.largest, "planned": alone.planned}
    return {**numbers, "code": ALONE_CODE}
