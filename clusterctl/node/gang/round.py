"""One attempt as the hub knows it: how far it is, who takes part, and what they have reported."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Dict, List, Optional, Set

from ...protocol.messages import gang as messages
from ...protocol.ranks import Slot
from .attempts import Roster

if TYPE_CHECKING:
    from ...protocol.messages.files import PartRecord, StopRecord


class Phase(Enum):
    """How far the run is."""

    JOINING = "before the first GO: the client leads"
    STARTING = "a further attempt: its gates get ready, then rank 0 has GO and does not listen yet"
    RUNNING = "all have GO"
    STOPPING = "the attempt ends: some parts are still to come"
    CLEARING = "all parts have come: what is left of the attempt goes, then the next one is decided on"
    PAUSING = "between two attempts"
    GATHERING = "the hub before was lost: those who are left come here"
    OVER = "the record is sent"


class Round:
    """One attempt, as far as it was reported to the hub."""

    def __init__(self, roster: Roster) -> None:
        self.attempt = roster.attempt
        self.expected = set(roster.node_ranks)  # whose parts make it up
        self.parts: Dict[Slot, PartRecord] = {}
        self.cleared: Dict[Slot, messages.Cleared] = {}
        self.ready: Dict[Slot, messages.Ready] = {}
        self.stop: Optional[StopRecord] = None  # what began its end
        self.shortest_grace = float("inf")  # that the others were given
        self.master_port: Optional[int] = None
        self.go_sent = False  # to rank 0
        self.is_late = False  # what is left of it has not gone in time

    @property
    def uncleared(self) -> Set[Slot]:
        """Return the nodes on which it has still to go, as long as that is waited for."""
        return set() if self.is_late else self.expected - set(self.cleared)

    @property
    def ordered_parts(self) -> List[PartRecord]:
        """Return the parts by node rank."""
        return sorted(self.parts.values(), key=lambda part: part["node_rank"] or 0)

    @property
    def progress(self) -> Optional[bool]:
        """Whether the attempt got on: what a lost node has done is not known, without a GO there is nothing."""
        reports = [self.cleared[slot].progress if slot in self.cleared else None for slot in self.expected]
        began = self.go_sent or self.attempt == 1
        return True if True in reports else False if began and None not in reports else None
