"""Many nodes at once, each with an outcome of its own."""

from __future__ import annotations

import threading
import time
from contextlib import closing

import pytest
from servers import node_named
from waiting import HANG

from clusterctl.client.rpc.cluster import fan_out
from clusterctl.errors import ConnectTimeout, InternalError
from clusterctl.specs.inventory.model import Node


def nodes(count: int) -> list[Node]:
    """Make nodes that nobody connects to."""
    return [node_named(f"n{place}") for place in range(count)]


def test_every_node_has_one_outcome() -> None:
    """Values, our errors and bugs all come back under their node."""

    def work(node: Node) -> str:
        if node.name == "n1":
            raise ConnectTimeout("CC-SSH-004", "step", step="answer", limit=1)
        if node.name == "n2":
            return str({}["x"])
        if node.name == "n3":
            raise SystemExit(3)
        return node.name.upper()

    outcomes = {outcome.node.name: outcome for outcome in fan_out(nodes(5), work)}
    assert sorted(outcomes) == ["n0", "n1", "n2", "n3", "n4"]
    assert (outcomes["n0"].value, outcomes["n0"].error, outcomes["n0"].ok) == ("N0", None, True)
    late = outcomes["n1"].error
    assert isinstance(late, ConnectTimeout)
    assert late.node == "n1"
    bug = outcomes["n2"].error
    assert isinstance(bug, InternalError)
    assert "KeyError" in bug.message
    assert "in work" in bug.evidence
    assert isinstance(outcomes["n3"].error, InternalError)


def test_outcomes_come_as_they_complete() -> None:
    """A slow node is last, wherever it stands."""
    gate = threading.Event()

    def work(node: Node) -> None:
        if node.name == "n0":
            assert gate.wait(HANG)

    order = []
    for outcome in fan_out(nodes(8), work):
        order.append(outcome.node.name)
        if len(order) == 7:
            gate.set()
    assert order[-1] == "n0"


def test_the_pool_is_bounded() -> None:
    """Never more than `limit` at a time, and all of them are used."""
    running, most, lock = 0, 0, threading.Lock()

    def work(_: Node) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.01)
        with lock:
            running -= 1

    assert len(list(fan_out(nodes(40), work, limit=7))) == 40
    assert most == 7


def test_no_nodes() -> None:
    """Nothing to do is done at once."""
    assert list(fan_out([], lambda node: node)) == []


def test_leaving_early_cancels_what_has_not_begun() -> None:
    """An interrupt in the caller's loop starts no further node."""
    begun, gate = [], threading.Event()

    def work(node: Node) -> None:
        begun.append(node.name)
        if node.name != "n0":
            assert gate.wait(HANG)

    with pytest.raises(KeyboardInterrupt), closing(fan_out(nodes(20), work, limit=3)) as outcomes:  # type: ignore[type-var]  # a generator has `close`
        for _ in outcomes:
            raise KeyboardInterrupt
    gate.set()
    time.sleep(0.1)
    assert 1 <= len(begun) <= 4


def test_threads_do_not_keep_the_process() -> None:
    """A hanging node does not hold up the end of the process."""
    gate = threading.Event()
    outcomes = fan_out(nodes(2), lambda _: gate.wait(HANG))
    assert all(thread.daemon for thread in threading.enumerate() if thread.name.startswith("node worker"))
    gate.set()
    assert len(list(outcomes)) == 2
