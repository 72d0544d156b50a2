"""A node's place in its gang: hub or peer, and after the loss of a hub whichever follows.

Who follows: the lowest slot that is left leads, where those who are left are more than half of all and enough for the
job; the others go to it. A run that is never started again, that was stopped, or in which no next hub was found in time
ends on each node by itself.
"""

from __future__ import annotations

import time
from typing import Set, Union

from ...protocol.messages.gang import NODES
from ...protocol.ranks import Slot
from .attempts import Roster, lost_part
from .hub import Hub
from .limits import silence_limit
from .membership import GangContext
from .peer import Peer
from .role import GangState

ELECTION_LIMIT = 3.0  # silences within which the next hub must be found


def start(context: GangContext) -> Union[Hub, Peer]:
    """Make node 0's agent the hub, and any other a peer of it."""
    state = GangState(context, elect)
    return Hub(state) if state.roster.own_slot == 0 else Peer(state, Slot(0))


def elect(state: GangState, lost_slot: Slot) -> None:
    """Nothing of ours is running, and the hub is gone: find who follows, or do so."""
    roster, context, now, candidates = (
        state.roster,
        state.context,
        time.monotonic(),
        _candidates(state.roster),
    )
    state.election_deadline = state.election_deadline or now + ELECTION_LIMIT * silence_limit(context.spec)
    is_over = state.policy.never or state.stop_order is not None or now > state.election_deadline
    if is_over or not roster.can_continue(candidates):
        _finish_alone(state)
    elif min(candidates) == roster.own_slot:
        hub = context.gang = Hub(state)
        hub.lead_after(lost_slot)
    else:
        peer = context.gang = Peer(state, min(candidates))
        peer.rejoin(*roster.listen_addresses[min(candidates)])


def _candidates(roster: Roster) -> Set[Slot]:
    return {*roster.listen_addresses, roster.own_slot} - roster.lost


def _finish_alone(state: GangState) -> None:
    """End with what is known here: who is lost, and our part."""
    roster, context, now, left = state.roster, state.context, time.time(), _candidates(state.roster)
    parts = [
        lost_part(entry["node"], rank, entry["reason"], now, state.last_seen.get(entry["slot"]))
        for entry in roster.entries
        for rank in [entry["node_rank"]]
        if entry.get("lost") and rank is not None
    ]
    parts += [state.part] if state.part is not None else []
    gave_up = None if state.stop_order is not None else roster.find_shortage(left, left) or NODES
    context.save_record(state.make_record(parts, None, {"gave_up": gave_up}, whole=False))
    context.conclude({"gave_up": gave_up})
    state.close()
    context.leave()
