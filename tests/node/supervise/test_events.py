"""What the gang's orders make of a run's spec."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from clusterctl.node.gang.attempts import Roster
from clusterctl.node.supervise.events import GangOrders
from clusterctl.protocol.ranks import Slot

pytestmark = pytest.mark.unit


def test_a_further_attempt_has_the_names_of_its_own_nodes() -> None:
    """Ray's messages name who is missing: the spare that takes part, and not the node that it replaces."""
    names = [(0, "gpu01", 0), (1, "gpu02", 1), (2, "gpu03", None)]
    spec: Any = {
        "slot": 2,
        "slots": 3,
        "nnodes": 2,
        "attempt": 1,
        "restart": {"max": 3, "on": [], "progress": "**"},
        "roster": [
            {"slot": slot, "node": node, "node_rank": rank, "address": f"10.0.0.{slot + 1}"}
            for slot, node, rank in names
        ],
        "ray": {"names": {"10.0.0.1": "gpu01", "10.0.0.2": "gpu02"}, "own_ports": 10},
    }
    called: list[Any] = []
    events: Any = SimpleNamespace(post=called.append)
    roster = Roster(spec)
    roster.assign({Slot(0), Slot(2)})
    not_used: Any = None
    GangOrders(not_used, spec, not_used, events).start_next_attempt(roster, None, None)

    ray = called[0].keywords["spec"]["ray"]
    assert ray == {"names": {"10.0.0.1": "gpu01", "10.0.0.3": "gpu03"}, "own_ports": 10}
    assert spec["ray"]["names"] == {"10.0.0.1": "gpu01", "10.0.0.2": "gpu02"}
