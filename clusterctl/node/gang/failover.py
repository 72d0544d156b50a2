"""A node's place in its gang: hub or peer, and after the loss of a hub whichever follows.

Who follows: the lowest slot that is left leads, where those who are left are more than half of all and enough for the
job; the others go to it. A run that is never started again, that was stopped, or in which no next hub was found in time
ends on each node by itself.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, List, Optional, Set, Union

from ...protocol.messages.gang import NODES, Cleared, Ended, Failed, Listening, Ready, StopOrder
from ...protocol.ranks import Slot
from .attempts import lost_part
from .channel import Listener
from .hub import Hub
from .limits import silence_limit
from .membership import Gang, GangContext
from .peer import Peer
from .state import GangState

if TYPE_CHECKING:
    from ...protocol.messages.files import PartRecord, RosterEntry
    from ...protocol.messages.verbs import EventFacts, EventName


ELECTION_LIMIT = 3.0  # silences within which the next hub must be found


class GangMember(Gang):
    """What an agent asks of its gang, as hub or peer."""

    def __init__(self, context: GangContext) -> None:
        super().__init__(context)
        self.state = GangState(context, self.elect)
        self.roster = self.state.roster
        self.role: Union[Hub, Peer] = (
            Hub(self.state) if self.roster.own_slot == 0 else Peer(self.state, Slot(0))
        )

    @property
    def roster_entries(self) -> Optional[List[RosterEntry]]:
        """What is known of the nodes of a run that may be started again; None of any other."""
        return None if self.state.policy.never else self.roster.entries

    def open(self) -> None:
        """Listen, where others could come; VerbError if that is not possible."""
        never, role, state = self.state.policy.never, self.role, self.state
        if (isinstance(role, Hub) or not never) and self.roster.slot_count > 1 and state.listener is None:
            state.listener = Listener(self.context.loop, self.context.spec, self.context.token)
            if not never:
                self.context.report("listener", {"port": state.listener.port})
            if isinstance(role, Hub):
                role.open()

    def set_listen_addresses(self, addresses: List[Any]) -> None:
        """Remember where the others could be found."""
        self.roster.listen_addresses = {
            Slot(int(slot)): (str(address), int(port)) for slot, address, port in addresses
        }

    def join(self, port: int) -> None:
        """Go to the hub."""
        if isinstance(self.role, Peer):
            self.role.join(port)

    def on_go(self) -> None:
        """GO was given here."""
        self.role.on_go()

    def on_startup_event(self, event: EventName, facts: EventFacts) -> None:
        """A later attempt has come so far here."""
        attempt, state = self.roster.attempt, self.state
        if event == "port":
            state.master_port = int(facts["port"] or 0)
        elif event == "ready":
            self.role.report(Ready(attempt, state.master_port, state.address))
        elif event == "listening":
            self.role.report(Listening(attempt, int(facts["port"] or 0)))

    def on_failure(self, reason: str) -> None:
        """Something failed here."""
        self.role.report(Failed(self.roster.attempt, reason))

    def on_stop(self, order: StopOrder) -> None:
        """The run was stopped here, or its time was up."""
        self.state.record_stop(order)
        self.role.report(order)

    def on_end(self, part: PartRecord) -> None:
        """This node's part of the attempt has ended."""
        self.state.part, self.state.cleared = part, None
        self.role.report(Ended(self.roster.attempt, part))

    def on_cleared(self, unfit: str, progress: Optional[bool]) -> None:
        """Nothing is left here of it."""
        self.state.cleared = Cleared(unfit, progress)
        self.role.report(self.state.cleared)

    def beat(self) -> None:
        """Send the first message, and start to count silence."""
        self.role.beat()

    def leave(self) -> None:
        """Leave without a message: the others notice."""
        self.role.leave()

    # the hub is lost

    def elect(self, lost_slot: Slot) -> None:
        """Nothing of ours is running, and the hub is gone: find who follows, or do so."""
        now, state, candidates = time.monotonic(), self.state, self._candidates()
        limit = ELECTION_LIMIT * silence_limit(self.context.spec)
        state.election_deadline = state.election_deadline or now + limit
        is_over = state.policy.never or state.stop_order is not None or now > state.election_deadline
        if is_over or not self.roster.can_continue(len(candidates)):
            self._finish_alone()
        elif min(candidates) == self.roster.own_slot:
            hub = self.role = Hub(state)
            hub.lead_after(lost_slot)
        else:
            peer = self.role = Peer(state, min(candidates))
            peer.rejoin(*self.roster.listen_addresses[min(candidates)])

    def _candidates(self) -> Set[Slot]:
        return {*self.roster.listen_addresses, self.roster.own_slot} - self.roster.lost

    def _finish_alone(self) -> None:
        """End with what is known here: who is lost, and our part."""
        state, now, left = self.state, time.time(), len(self._candidates())
        parts = [
            lost_part(entry["node"], rank, entry["reason"], now, state.last_seen.get(entry["slot"]))
            for entry in self.roster.entries
            for rank in [entry["node_rank"]]
            if entry.get("lost") and rank is not None
        ]
        parts += [state.part] if state.part is not None else []
        gave_up = None if state.stop_order is not None else self.roster.find_shortage(left, left) or NODES
        self.context.save_record(state.make_record(parts, None, {"gave_up": gave_up}, whole=False))
        self.context.conclude({"gave_up": gave_up})
        state.close()
        self.context.leave()
