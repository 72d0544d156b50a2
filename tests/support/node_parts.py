"""What nodes report of a run on three nodes, as values."""

from __future__ import annotations

from typing import Any

from clusterctl.plans.runs.state import NodeState, parse_state
from clusterctl.protocol.run_id import RunId
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.inventory.parse import parse_inventory

RUN = RunId("a-1")


NODES = parse_inventory("cluster: c\nnodes: [{host: gpu01}, {host: gpu02}, {host: gpu03}]", "-").nodes


def part(node: str, state: str, reason: str, gang: Any = True, **facts: Any) -> NodeState:
    """Read a node's state."""
    about = {"run": RUN, "node": node, "node_rank": int(node[-1]) - 1, "nnodes": 3, "since": 12.0}
    return parse_state(Untrusted({**about, "state": state, "reason": reason, "gang": gang, **facts}))
