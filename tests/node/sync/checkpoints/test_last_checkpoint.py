"""What ranks write last before they end well: real keepers find it at once, and the ledger of a hub seals it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from keepers import LedgerRing, NodeKeeper, Ring, close_all

from clusterctl.protocol.messages.checkpoints import Seal

NEVER = 60.0  # seconds between two looks: a test hangs before the second


@pytest.fixture
def nodes() -> Iterator[list[NodeKeeper]]:
    """Hold what a test starts."""
    yield from close_all([])


def start(nodes: list[NodeKeeper], root: Path, complete: str = "") -> LedgerRing:
    """Start two nodes that look by themselves only once, and an attempt on them."""
    nodes += [NodeKeeper(root, number, look=NEVER, complete=complete) for number in range(2)]
    return LedgerRing(*nodes, ranks=2)


def names(node: NodeKeeper) -> list[str]:
    """Return the events that a node has reported of its attempt, in their order."""
    return [report.event for report in node.seen if report.event in ("marked", "part", "finished")]


def finish(ring: LedgerRing, *nodes: NodeKeeper) -> None:
    """End the ranks of nodes, and wait until the agents may report it."""
    for node in nodes:
        node.order("finish", attempt=1)
    ring.serve(lambda: all("finished" in names(node) for node in nodes), "the last checkpoint")


@pytest.mark.parametrize("complete", ["", "done"])
def test_the_last_checkpoint_is_sealed(nodes: list[NodeKeeper], tmp_path: Path, complete: str) -> None:
    """No look was due before the end; it is sealed before the first node reports that it is done."""
    ring = start(nodes, tmp_path, complete)
    ring.save("step-9", **({complete: b""} if complete else {}))
    finish(ring, *nodes)
    assert [(one["name"], one["nodes"]) for one in ring.ledger.states] == [("step-9", 2)]
    for node in nodes:
        assert names(node)[-2:] == ["part", "finished"]


def test_nodes_that_end_one_after_the_other(nodes: list[NodeKeeper], tmp_path: Path) -> None:
    """The first writes nothing that marks a checkpoint, and still reports its part when the last one does."""
    ring = start(nodes, tmp_path, "done")
    nodes[1].write("step-9", part=b"1")
    finish(ring, nodes[1])
    assert ring.ledger.states == []
    nodes[0].write("step-9", part=b"0", done=b"")
    finish(ring, nodes[0])
    assert [(one["name"], one["nodes"], one["files"]) for one in ring.ledger.states] == [("step-9", 2, 3)]


def test_the_end_is_not_delayed_by_what_was_sealed(nodes: list[NodeKeeper], tmp_path: Path) -> None:
    """The hub has nothing more to report of it."""
    nodes += [NodeKeeper(tmp_path, number) for number in range(2)]
    ring = LedgerRing(*nodes, ranks=2)
    ring.save("step-9")
    ring.wait_for("step-9")
    finish(ring, *nodes)
    assert [one["name"] for one in ring.ledger.states] == ["step-9"]


def test_the_end_does_not_wait_for_a_checkpoint_that_cannot_be_kept(
    nodes: list[NodeKeeper], tmp_path: Path
) -> None:
    """A node cannot read its part: all others are done too, and the reason is recorded."""
    ring = start(nodes, tmp_path)
    ring.save("step-9")
    link = nodes[1].folder / "step-10"
    nodes[0].write("step-10", part=b"0")
    link.symlink_to(tmp_path)
    finish(ring, *nodes)
    assert ("step-10", "skipped", "it is a symbolic link") in ring.seen
    assert ("step-9", 2) in [(one["name"], one["nodes"]) for one in ring.ledger.states]


def test_the_end_does_not_wait_once_ranks_elsewhere_have_failed(
    nodes: list[NodeKeeper], tmp_path: Path
) -> None:
    """The hub ends the attempt: what it has not sealed by then stays so."""
    nodes.append(NodeKeeper(tmp_path, 0, look=NEVER))
    nodes[0].begin()
    nodes[0].write("step-9", part=b"0")
    nodes[0].order("finish", attempt=1)
    nodes[0].wait("marked")
    nodes[0].order("pause")
    nodes[0].wait("finished")


def test_the_end_of_another_attempt(nodes: list[NodeKeeper], tmp_path: Path) -> None:
    """A keeper that was started again meanwhile has nothing to wait for."""
    nodes.append(NodeKeeper(tmp_path, 0, look=NEVER))
    nodes[0].order("finish", attempt=3)
    assert nodes[0].wait("finished").attempt == 3


def test_one_that_is_written_again_is_waited_for(nodes: list[NodeKeeper], tmp_path: Path) -> None:
    """The one of the same name is still being copied: it was sealed, and the last one is not."""
    nodes += [NodeKeeper(tmp_path, number, complete="done", rate=500_000.0) for number in range(2)]
    ring = LedgerRing(*nodes, ranks=2)
    for node in nodes:
        node.write("step-last", part=os.urandom(1_000_000), done=b"")
    ring.serve(lambda: all(list(node.mirror.glob("seals/*")) for node in nodes), "a seal")
    assert [one["state"] for one in ring.ledger.states] == ["copying"]
    for node in nodes:
        node.write("step-last", done=b"again")
    finish(ring, *nodes)
    assert (2, "step-last", 2) in [(one["number"], one["name"], one["nodes"]) for one in ring.ledger.states]


def test_a_seal_is_on_the_disk_before_the_end(nodes: list[NodeKeeper], tmp_path: Path) -> None:
    """`pull --checkpoint` reads it there; a keeper that has much to copy is killed at the end of the run."""
    nodes += [NodeKeeper(tmp_path, number, complete="done", rate=100_000.0) for number in range(2)]
    ring = Ring(*nodes)
    ring.begin()
    for node in nodes:
        node.write("step-8", part=os.urandom(300_000), done=b"")
    before = ring.seal("step-8")
    for node in nodes:
        node.write("step-9", part=b"last", done=b"")
    parts = tuple(ring.collect("step-9"))
    ring.order_take(before, 0, 1)
    for node in nodes:
        seal = Seal(name="step-9", number=2, nodes=2, parts=parts)
        node.order("finish", attempt=1)
        node.order("seal", name="step-8", seal=before)
        node.order("seal", name="step-9", seal=seal)
    nodes[1].wait("finished")
    nodes[1].kill()
    assert len(list((nodes[1].mirror / "seals").iterdir())) == 2


def test_a_name_that_no_hub_takes_is_no_checkpoint(nodes: list[NodeKeeper], tmp_path: Path) -> None:
    """The end does not wait for a line break in a name."""
    ring = start(nodes, tmp_path, "done")
    nodes[0].write("step-9\n", part=b"0", done=b"")
    finish(ring, *nodes)
    assert ring.ledger.states == []
