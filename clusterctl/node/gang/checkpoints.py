"""Checkpoints as hub and peer handle them: what is sent to keepers, waited for, and recorded.

What is known and decided is in `generations`. A job without `checkpoints` has nothing of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, List, Optional, Set

from ...protocol.messages.gang import CheckpointOrder
from ...protocol.ranks import Slot
from .attempts import Roster
from .limits import MIN_RESTORE_RATE
from .membership import GangContext

if TYPE_CHECKING:
    from ...protocol.messages.checkpoints import KeeperOrder, KeeperReport, Restore
    from ...protocol.messages.files import CheckpointState
    from .generations import Ledger

SERIALS = 1_000_000  # of one hub
MIN_TIME_TO_REPORT = 60.0  # seconds


class Checkpoints:
    """Keeps the ledger of a run's checkpoints on one node, and acts on what follows from it; only a hub sends."""

    def __init__(self, context: GangContext, roster: Roster) -> None:
        self._context, self._roster = context, roster
        self._ledger: Optional[Ledger] = None
        self._present: Callable[[], Set[Slot]] = set
        self._send: Callable[[Slot, CheckpointOrder], None] = lambda _, __: None
        self._serial = roster.own_slot * SERIALS  # a late answer to an earlier hub is none to us
        self.awaited: Set[Slot] = set()  # that have not reported what they have
        self._recorded: List[CheckpointState] = []
        spec = context.spec.get("checkpoints")
        if spec is not None:
            from .generations import Ledger  # noqa: PLC0415, RUF100 - most runs keep no checkpoints

            self._ledger = Ledger(spec["copies"], spec["keep"], spec["needs"])

    def lead(self, present: Callable[[], Set[Slot]], send: Callable[[Slot, CheckpointOrder], None]) -> None:
        """Act as the hub from now on: which nodes are here, and what sends to one of the others."""
        self._present, self._send = present, send
        if self._ledger is not None:
            self._ledger.leads = True

    def on_order(self, order: KeeperOrder) -> None:
        """Carry out what the hub orders, as a peer."""
        self._context.order_keeper(order)
        if self._ledger is not None:
            self._ledger.on_order(order)
            self._act()

    def begin(self) -> None:
        """Begin an attempt, which has GO; idle nodes take copies too."""
        if self._ledger is not None:
            roster, present = self._roster, self._present()
            node_ranks = {slot: rank for slot, rank in roster.node_ranks.items() if slot in present}
            self.awaited.clear()
            self._ledger.begin(roster.attempt, node_ranks, present - set(node_ranks) - roster.unfit)
            self._act()

    def on_report(self, slot: Slot, report: KeeperReport) -> None:
        """Take what a keeper reports."""
        if self._ledger is None:
            return
        seals = self._ledger.seals
        self._ledger.set_address(slot, self._roster.find_address(slot), report.port)
        self._ledger.on_report(slot, report)
        if report.event == "kept" and report.serial == self._serial:
            self.awaited.discard(slot)
        self._act()
        if self.awaited and self._ledger.seals > seals:
            self.conclude()  # what was reported before does not have it

    def reject(self, slot: Slot, report: KeeperReport, resume: Optional[Restore]) -> bool:
        """Take that the checkpoint an attempt was to go on from has failed; returns whether it is at fault itself."""
        if self._ledger is None or resume is None or not self._ledger.reject(slot, report, resume.seal):
            return False
        self._act()
        return True

    def on_lost(self, slot: Slot) -> None:
        """Take that a node is lost."""
        if self._ledger is not None:
            self._ledger.on_lost(slot)
            self._act()

    def conclude(self) -> None:
        """Ask all nodes what they have, now that no rank runs."""
        if self._ledger is None:
            return
        from ...protocol.messages.checkpoints import KeeperOrder  # noqa: PLC0415, RUF100 - see above

        self._ledger.conclude(self._roster.attempt, self._roster.node_ranks)
        self._serial += 1
        self.awaited = self._present()
        self._order(None, KeeperOrder(do="conclude", attempt=self._roster.attempt, serial=self._serial))

    def time_to_report(self) -> float:
        """Return the seconds in which nodes that still hash may report the only copies; 0 if others are known."""
        size = (
            0
            if self._ledger is None or not self.awaited & self._present()
            else self._ledger.size_of_unknown(self._present())
        )
        return MIN_TIME_TO_REPORT + size / MIN_RESTORE_RATE if size else 0.0

    def choose(self) -> Optional[Restore]:
        """Choose what the next attempt goes on from."""
        if self._ledger is None:
            return None
        chosen = self._ledger.choose(self._present(), self._roster.own_slot)
        self._act()
        return chosen

    def _order(self, slot: Optional[Slot], order: KeeperOrder) -> None:
        """Send an order to the keeper of a node, or of all."""
        for receiver in sorted(self._present() if slot is None else {slot} & self._present()):
            if receiver == self._roster.own_slot:
                self._context.order_keeper(order)
            else:
                self._send(receiver, CheckpointOrder(order))

    def _act(self) -> None:
        """Send and record what has come of a change."""
        ledger = self._ledger
        if ledger is None:
            return
        orders, events = ledger.orders[:], ledger.events[:]
        ledger.orders.clear()
        ledger.events.clear()
        for slot, order in orders:
            self._order(slot, order)
        if events or ledger.states != self._recorded:
            self._recorded = ledger.states
            self._context.save_checkpoints(self._recorded, events)
