"""Next hub after a loss."""

from __future__ import annotations

import time
from typing import Any, Dict, List, Optional, Set

from ...protocol.ranks import Slot
from ..supervise.restarts import Restarts
from .hub import GATHERING, Member, RestartHub
from .listener import Listener
from .membership import Gang, GangContext, JsonObject, NodePart, StopOrder, silence_limit
from .messages import Cleared, Hello, Message, lost_part, make_record
from .peer import RestartPeer
from .restarts import GangState
from .roster import NODES, RosterView

GATHER_SILENCES = 1.25  # silences in which the others must have come


class SuccessorHub(RestartHub):
    """The gang as the lowest slot that is left sees it."""

    def __init__(self, state: GangState) -> None:
        super().__init__(state)
        self._last_seen.update(state.last_seen)
        self._views: Dict[Slot, RosterView] = {}
        self._fallen = Slot(0)  # the hub before

    def lead_after(self, lost_slot: Slot) -> None:
        """Lead on, after a hub that is lost: wait for the others."""
        self._fallen = lost_slot
        self._started = True
        self.phase = GATHERING
        self._lost_by_silence = True
        if self.state.part is not None:
            self.parts[self.slot] = self.state.part
        if self.state.clear is not None:
            self.clear[self.slot] = Cleared(**self.state.clear)
        self.listener = self.state.listener
        if self.listener is not None:
            self.listener.open(self.accept)
        self.context.loop.after(
            GATHER_SILENCES * silence_limit(self.context.spec), "gather", self._finish_gathering
        )
        self._advance()

    def _awaited_slots(self) -> Set[Slot]:
        return self.roster.all_slots - {self.slot} - self.roster.lost

    def _on_hello(self, member: Member, hello: Hello) -> None:
        slot = member.channel.slot
        if hello.part is not None:
            self.parts[slot] = self._normalize_part(member, hello.part)
        self._views[slot] = hello.roster
        self._advance()

    def _finish_gathering(self) -> None:
        """Whoever has not come is lost; then judge the attempt as any other."""
        self.context.loop.cancel("gather")
        self.state.on_hub_found()
        self.state.close()
        present = {slot: view for slot, view in self._views.items() if slot in self.members}
        self.roster.reconcile(list(present.values()))
        for slot in self._awaited_slots() - set(present):
            self.roster.mark_lost(slot, "it did not come to the next hub")
        self.expected = set(self.roster.node_ranks)
        for slot in self.expected - set(self.parts):
            self.parts[slot] = self._part_of_lost(slot)
        if self._fallen not in self.expected:
            self._lost_spares = [self._part_of_lost(self._fallen)]
        self._all_ended()

    def _part_of_lost(self, slot: Slot) -> NodePart:
        why = next((one.get("reason") for one in self.roster.entries if one["seat"] == slot), "")
        seen = self._last_seen.get(slot)
        return lost_part(self.roster.node(slot), self.node_rank_of(slot), why or "", time.time(), seen)

    def _on_message(self, member: Member, message: Message) -> None:
        if not isinstance(message, Hello):
            super()._on_message(member, message)
        elif self.phase == GATHERING:
            self._on_hello(member, message)

    def _advance(self) -> None:
        """Go on with what nobody is missing for any more."""
        if self.phase == GATHERING and self._awaited_slots() <= set(self._views):
            self._finish_gathering()
        else:
            super()._advance()


SUCCESSION_LIMIT = 3.0  # silences within which somebody must be found to follow


class FailoverGang(Gang):
    """What an agent asks of its gang, whoever leads it."""

    def __init__(self, context: GangContext, restarts: Restarts) -> None:
        super().__init__(context)
        self.state = GangState(context, restarts, self.elect_hub)
        self.roster = restarts.roster
        is_hub = self.roster.own_slot == 0
        self.role: Gang = RestartHub(self.state) if is_hub else RestartPeer(self.state, Slot(0))

    def open(self) -> None:
        """Listen, where there are others; VerbError if that is not possible."""
        if self.roster.slot_count > 1 and self.state.listener is None:
            listener = Listener(self.context.loop, self.context.spec, self.context.token)
            self.state.listener = listener
            self.context.report("door", port=listener.port)
            self.role.open()

    def set_listen_addresses(self, addresses: List[Any]) -> None:
        """Remember where the others could be found."""
        self.roster.listen_addresses = {
            Slot(int(slot)): (str(address), int(port)) for slot, address, port in addresses
        }

    def join(self, port: int) -> None:
        """Go to the hub."""
        self.role.join(port)

    def on_go(self) -> None:
        """GO was given here."""
        self.role.on_go()

    def on_startup_event(self, event: str, facts: JsonObject) -> None:
        """A later attempt has come so far here."""
        self.role.on_startup_event(event, facts)

    def on_failure(self, reason: str) -> None:
        """Something failed here."""
        self.role.on_failure(reason)

    def on_stop(self, order: StopOrder) -> None:
        """Somebody stopped the run here, or its time was up."""
        self.state.record_stop(order)
        self.role.on_stop(order)

    def on_end(self, part: NodePart) -> None:
        """This node's part of the attempt has ended."""
        self.state.part, self.state.clear = part, None
        self.role.on_end(part)

    def on_cleared(self, unfit: str, progress: Optional[bool]) -> None:
        """Nothing is left here of it."""
        self.state.clear = {"unfit": unfit, "progress": progress}
        self.role.on_cleared(unfit, progress)

    def beat(self) -> None:
        """Say that we are here, and count silence."""
        self.role.beat()

    def leave(self) -> None:
        """Leave the others without a word: they notice."""
        self.role.leave()
        self.state.close()
        super().leave()

    def elect_hub(self, lost_slot: Slot) -> None:
        """Our part has ended, and the hub is gone: find who follows, or do so."""
        now, state = time.monotonic(), self.state
        state.election_deadline = state.election_deadline or now + SUCCESSION_LIMIT * silence_limit(
            self.context.spec
        )
        candidates = {*self.roster.listen_addresses, self.roster.own_slot} - self.roster.lost
        if (
            state.stop_order is not None
            or not self.roster.can_continue(len(candidates))
            or now > state.election_deadline
        ):
            self.finish_alone()
        elif min(candidates) == self.roster.own_slot:
            successor = SuccessorHub(state)
            self.role = successor
            successor.lead_after(lost_slot)
        else:
            peer = RestartPeer(state, min(candidates))
            self.role = peer
            peer.rejoin(*self.roster.listen_addresses[min(candidates)])

    def finish_alone(self) -> None:
        """End with what is known here: who is lost, and our part."""
        state = self.state
        lost = [
            entry for entry in self.roster.entries if entry.get("lost") and entry["node_rank"] is not None
        ]
        parts = [
            lost_part(
                entry["node"],
                entry["node_rank"],
                entry["reason"],
                time.time(),
                state.last_seen.get(entry["seat"]),
            )
            for entry in lost
        ]
        parts += [state.part] if state.part is not None else []
        candidates = len({*self.roster.listen_addresses, self.roster.own_slot} - self.roster.lost)
        gave_up = (
            None
            if state.stop_order is not None
            else self.roster.find_shortage(candidates, candidates) or NODES
        )
        self.context.save_record(
            state.with_history(make_record(state.spec, parts, None, whole=False), gave_up)
        )
        state.restarts.conclude({"gave_up": gave_up})
        state.close()
        self.context.leave()
