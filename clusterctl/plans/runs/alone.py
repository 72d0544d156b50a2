"""Runs whose ranks ran alone: every node reports success, and that its ranks had no process group of the planned size.

Where that is suspected only, because nothing distinguishes the nodes, the run succeeded, with a warning.

The nodes decide what is certain (`node/supervise/ranks/groups.py`), and `protocol/run_end.py` what the run is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterctl.codes.lookup import word
from clusterctl.protocol.end_record import AloneRanks

if TYPE_CHECKING:
    from clusterctl.plans.runs.documents import AloneEntry

ALONE_CODE, SUSPECTED_CODE = "CC-RUN-053", "CC-RUN-050"


def code_of(alone: AloneRanks) -> str:
    """Return the code of an error, or of a warning where it is not certain."""
    return ALONE_CODE if alone.is_certain else SUSPECTED_CODE


def describe_alone(alone: AloneRanks) -> tuple[str, str]:
    """Describe it in a sentence, and what fixes it."""
    facts = {"ranks": alone.ranks, "largest": alone.largest, "planned": alone.planned}
    if not alone.is_certain:
        return word(ALONE_CODE, "suspected", facts)
    return word(ALONE_CODE, "groups" if alone.largest > 1 else "", facts)


def alone_to_json(alone: AloneRanks) -> AloneEntry:
    """Return its place in the JSON of a verdict."""
    return {
        "ranks": alone.ranks,
        "largest": alone.largest,
        "planned": alone.planned,
        "code": code_of(alone),
    }
