"""A launch that fails on one node: what the other nodes are still preparing ends before it does."""

from __future__ import annotations

from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import pytest
from waiting import HANG

from clusterctl.client.launch.prepare import AbandonedError, LaunchInputs, Ready, cancel_in_flight
from clusterctl.client.rpc.cluster import Outcome
from clusterctl.errors import NodeError
from clusterctl.specs.inventory.parse import parse_inventory

NODES = parse_inventory("cluster: c\nnodes: [{host: gpu01}, {host: gpu02}]", "-").nodes


class Session:
    """A node that ends what it prepares when it is cancelled, and not before."""

    def __init__(self) -> None:
        self.sent: SimpleQueue[dict[str, str]] = SimpleQueue()

    def send(self, message: dict[str, str]) -> None:
        """Take an order."""
        self.sent.put(message)


def test_nodes_that_are_still_preparing_are_cancelled_and_waited_for() -> None:
    """The session of a node that is ready is not touched: `cancel` ends that one."""
    hanging, through = Session(), Session()
    sessions: Any = {"gpu01": hanging, "gpu02": through}
    in_flight = {"gpu01"}

    def outcomes() -> Iterator[Outcome[Ready]]:
        assert hanging.sent.get(timeout=HANG) == {"do": "cancel"}
        yield Outcome(NODES[0], None, NodeError("CC-RUN-033", node="gpu01"), 0.0)

    cancel_in_flight(sessions, outcomes(), in_flight)
    assert (in_flight, through.sent.empty()) == (set(), True)


def test_an_abandoned_launch_starts_nothing_more() -> None:
    """A node's thread looks at it before and after it starts an agent, and with each piece of code it sends."""
    inputs: Any = LaunchInputs({}, None, {})  # type: ignore[arg-type]  # nothing is sent
    inputs.check_not_abandoned()
    inputs.abandoned.set()
    with pytest.raises(AbandonedError):
        inputs.check_not_abandoned()
