"""Checkpoints as hub and peer handle them: what is sent to keepers, waited for, and recorded.

What is known and decided is in `generations`. A job without `checkpoints` has nothing of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, List, Optional, Set

from ...protocol.ranks import Slot
from .attempts import Roster
from .membership import GangContext

if TYPE_CHECKING:
    from ...protocol.messages.checkpoints import KeeperOrder, KeeperReport, Restore
    from ...protocol.messages.files import CheckpointState
    from .generations import Ledger

Send = Callable[[Optional[Slot], "KeeperOrder"], None]  # to all where there is no slot

SERIALS = 1_000_000  # of one hub


class Checkpoints:
    """Keeps the ledger of a run's checkpoints on one node, and acts on what follows from it; only a hub sends."""

    def __init__(self, context: GangContext, roster: Roster) -> None:
        self._context, self._roster = context, roster
        self._ledger: Optional[Ledger] = None
        self._send: Send = lambda _, __: None
        self._serial = roster.own_slot * SERIALS  # a late answer to an earlier hub is none to us
        self._awaited: Set[Slot] = set()  # that have not reported what they have
        self._recorded: List[CheckpointState] = []
        spec = context.spec.get("checkpoints")
        if spec is not None:
            from .generations import Ledger  # noqa: PLC0415, RUF100 - most runs keep no checkpoints

            self._ledger = Ledger(spec["copies"], spec["keep"])

    def lead(self, send: Send) -> None:
        """Send as the hub from now on."""
        self._send = send

    def on_order(self, order: KeeperOrder) -> None:
        """Carry out what the hub orders, as a peer."""
        self._context.order_keeper(order)
        if self._ledger is not None:
            self._ledger.on_order(order)
            self._act()

    def begin(self, present: Set[Slot]) -> None:
        """Begin an attempt, which has GO; idle nodes take copies too."""
        if self._ledger is not None:
            roster = self._roster
            node_ranks = {slot: rank for slot, rank in roster.node_ranks.items() if slot in present}
            self._awaited.clear()
            self._ledger.begin(roster.attempt, node_ranks, present - set(node_ranks) - roster.unfit)
            self._act()

    def on_report(self, slot: Slot, report: KeeperReport, present: Set[Slot]) -> None:
        """Take what a keeper reports."""
        if self._ledger is None:
            return
        seals = self._ledger.seals
        self._ledger.set_address(slot, self._roster.find_address(slot), report.port)
        self._ledger.on_report(slot, report)
        if report.event == "kept" and report.serial == self._serial:
            self._awaited.discard(slot)
        self._act()
        if self._awaited and self._ledger.seals > seals:
            self.conclude(present)  # what was reported before does not have it

    def on_lost(self, slot: Slot) -> None:
        """Take that a node is lost."""
        if self._ledger is not None:
            self._ledger.on_lost(slot)
            self._act()

    def conclude(self, present: Set[Slot]) -> None:
        """Ask all nodes what they have, now that no rank runs."""
        if self._ledger is None:
            return
        from ...protocol.messages.checkpoints import KeeperOrder  # noqa: PLC0415, RUF100 - see above

        self._serial += 1
        self._awaited = set(present)
        self._send(None, KeeperOrder(do="conclude", attempt=self._roster.attempt, serial=self._serial))

    def awaited(self, present: Set[Slot]) -> Set[Slot]:
        """Return the nodes that have not reported yet what they have."""
        return self._awaited & present

    def choose(self, present: Set[Slot]) -> Optional[Restore]:
        """Choose what the next attempt goes on from."""
        if self._ledger is None:
            return None
        chosen = self._ledger.choose(present, self._roster.own_slot)
        self._act()
        return chosen

    def _act(self) -> None:
        """Send and record what has come of a change."""
        ledger = self._ledger
        if ledger is None:
            return
        orders, events = ledger.orders[:], ledger.events[:]
        ledger.orders.clear()
        ledger.events.clear()
        for slot, order in orders:
            self._send(slot, order)
        if events or ledger.states != self._recorded:
            self._recorded = ledger.states
            self._context.save_checkpoints(self._recorded, events)
