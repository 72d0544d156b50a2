"""What a launch that waits says of those in its way: once, whatever the nodes' clocks say."""

from __future__ import annotations

from typing import Any

import pytest

from clusterctl.client.launch import locks
from clusterctl.client.launch.locks import HoldersByNode, LockPolicy, LockWaiter, describe_blocked
from clusterctl.client.launch.prepare import describe_start_failure
from clusterctl.protocol.messages.facts import LockHolder

SPECS: dict[str, dict[str, Any]] = {name: {"run": "mine-1", "submitted": 9.0} for name in ("gpu01", "gpu02")}


def held(run: str, **ages: float) -> HoldersByNode:
    """Say which run holds nodes, and since when."""
    return {
        name: (LockHolder(name="clusterctl/node", run=run, job="t", by="ann@x", age=age),)
        for name, age in ages.items()
    }


class Looking(LockWaiter):
    """Sees one thing after another."""

    def __init__(self, *looks: HoldersByNode) -> None:
        self.said: list[str] = []
        super().__init__({}, SPECS, LockPolicy(wait=True, notify=self.said.append))
        self.looks = list(looks)

    def _send_order(self, order: str, nodes: object) -> HoldersByNode:  # noqa: ARG002 - the nodes are not there
        return self.looks.pop(0)


def test_a_holder_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another second on another node is no news, nor a node that has become free; another run is."""
    monkeypatch.setattr(locks, "POLL", 0.0)
    claim = Looking(
        held("a-1", gpu01=61.2, gpu02=60.1),
        held("a-1", gpu02=63.0),
        {**held("a-1", gpu02=64.0), **held("b-2", gpu01=1.0)},
        {},
    )
    claim._wait_until_free(held("a-1", gpu01=59.6, gpu02=58.5))

    assert [line.count("run a-1") for line in claim.said] == [1, 1]
    assert ["run b-2" in line for line in claim.said] == [False, True]


def test_nodes_that_one_run_holds_are_one_line() -> None:
    """It took its locks within a moment; where hours lie between, they are told apart."""
    assert len(describe_blocked(held("a-1", gpu01=61.2, gpu02=60.1), SPECS)) == 1
    assert len(describe_blocked(held("a-1", gpu01=9000.0, gpu02=60.1), SPECS)) == 2


def test_an_interrupt_is_not_called_a_failure() -> None:
    """Ctrl-C between ready and go, and a node that does not start."""
    assert describe_start_failure(KeyboardInterrupt()).startswith("interrupted")
    assert "failed" in describe_start_failure(OSError())
