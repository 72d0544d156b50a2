"""What one attempt of a run has of the agent that makes it: a place, a record, and somebody to tell."""

from __future__ import annotations

from typing import Any, Dict, List, Protocol

from .client import Client
from .gang import Facts, Gang
from .locks import Claim
from .logbook import Logbook
from .loop import Loop
from .state import Record


class Host(Protocol):
    """The agent, as an attempt sees it."""

    rundir: str
    spec: Dict[str, Any]  # the run's, as it was given
    loop: Loop
    record: Record
    client: Client
    claim: Claim
    logbook: Logbook
    gang: Gang

    def count_time(self) -> None:
        """Begin the job's time limit, if it has not begun yet."""

    def attempt_ended(self, part: Facts, left: List[Facts]) -> None:
        """Nothing of the attempt runs any more but what could not be ended."""
