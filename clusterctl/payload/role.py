"""What an agent is in its gang: alone, the hub, a peer, or one of those who go on without a hub."""

from __future__ import annotations

from typing import Optional

from .gang import Gang, Side
from .restarts import Restarts


def make_gang(side: Side, restarts: Optional[Restarts]) -> Gang:
    """Choose what this node is; what it is not is not loaded."""
    if restarts is not None:
        from .circle import Circle

        return Circle(side, restarts)
    if not side.spec.get("gang"):
        return Gang(side)
    if side.spec["node_rank"] == 0:
        from .hub import Hub

        return Hub(side)
    from .peer import Peer

    return Peer(side)
