"""Real keepers under the ledger of a hub: what is copied where, what a loss costs, and what the run goes on from."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from keepers import LedgerRing, NodeKeeper, close_all, small_disk

from clusterctl.protocol.messages.checkpoints import Restore
from clusterctl.protocol.ranks import NodeRank, Slot

BIG = 24 << 20  # bytes: more than a connection holds
LARGE = 256 << 20  # bytes


@pytest.fixture
def nodes() -> Iterator[list[NodeKeeper]]:
    """Hold what a test starts."""
    yield from close_all([])


def start(
    nodes: list[NodeKeeper],
    root: Path,
    ranks: int,
    spares: int = 0,
    copies: int = 2,
    rate: float | None = None,
) -> LedgerRing:
    """Start nodes, and an attempt on them."""
    nodes += [NodeKeeper(root, number, rate=rate) for number in range(ranks + spares)]
    return LedgerRing(*nodes, ranks=ranks, copies=copies)


def chosen_name(restore: Restore | None) -> str:
    """Name what was chosen."""
    return "" if restore is None else restore.seal.name


def is_taking(node: NodeKeeper) -> bool:
    """Return whether a part of a large file has come; a manifest comes in one piece."""
    with suppress(FileNotFoundError):
        sizes = [path.stat().st_size for path in (node.mirror / "store" / "incoming").glob("*")]
        return max(sizes, default=0) > BIG // 100
    return False


def test_copies_on_all_of_six_nodes(nodes: list[NodeKeeper], tmp_path: Path) -> None:
    """Each takes five parts, none of them is refused, and any one of them is enough."""
    ring = start(nodes, tmp_path, 6, copies=0)
    ring.save("step-1")
    ring.wait_for("step-1")
    held = [report for node in nodes for report in node.seen if report.event == "held"]
    assert ([report.why for report in held], ring.seen) == ([""] * 30, [("step-1", "safe", "")])
    ring.lose(0, 1, 2, 3, 4)
    chosen = ring.choose(1)
    assert chosen is not None
    assert nodes[5].restore(chosen, node_rank=0).files == 5
    assert len(nodes[5].read("step-1")) == 6


def test_two_neighbours_are_lost_at_once(nodes: list[NodeKeeper], tmp_path: Path) -> None:
    """What both had is lost, which is reported at once with what is left; spares go on from that."""
    ring = start(nodes, tmp_path, 4, spares=2)
    ring.save("step-200")
    ring.wait_for("step-200")
    chosen = ring.choose(1)
    assert chosen is not None
    for node in nodes[:4]:
        assert node.restore(chosen).why == ""
    ring.begin(2, ring.ranks)
    ring.save("step-300")
    ring.wait_for("step-300")
    ring.lose(1, 2)
    assert ring.seen[-1] == ("step-300", "lost", "step-200 is left")
    chosen = ring.choose(2)
    assert chosen is not None
    assert chosen.seal.name == "step-200"
    for spare, rank in zip(nodes[4:], (1, 2), strict=True):
        assert spare.restore(chosen, attempt=3, node_rank=rank).why == ""
        assert spare.read("step-200") == {f"gpu{n}.pt": b"step-200 of gpu%d" % n for n in range(4)}


def test_a_node_is_lost_while_it_writes(nodes: list[NodeKeeper], tmp_path: Path) -> None:
    """What the others have of that checkpoint is none: the one before is taken."""
    ring = start(nodes, tmp_path, 3)
    ring.save("step-1")
    ring.wait_for("step-1")
    with (nodes[1].write("step-2") / "gpu1.pt").open("wb") as sink:
        sink.write(b"half of it")
        sink.flush()
        for node in (nodes[0], nodes[2]):
            node.write("step-2", **{f"{node.node}.pt": b"whole"})
        collecting = lambda: any(one["name"] == "step-2" for one in ring.ledger.states)  # noqa: E731
        ring.serve(collecting, "step-2 is seen")
        ring.lose(1)
    assert chosen_name(ring.choose(1)) == "step-1"


def test_a_node_is_lost_while_its_part_is_copied(nodes: list[NodeKeeper], tmp_path: Path) -> None:
    """The copy that had only begun counts for nothing, and the one before is left."""
    ring = start(nodes, tmp_path, 3, rate=BIG / 2)
    ring.save("step-1")
    ring.wait_for("step-1")
    ring.save("step-2", **{"big.pt": os.urandom(BIG)})
    nodes[1].write("step-2", **{"big.pt": os.urandom(BIG)})
    ring.serve(lambda: is_taking(nodes[2]), "the first bytes of node 1")
    ring.lose(1)
    assert ring.seen[-1] == ("step-2", "lost", "step-1 is left")
    assert chosen_name(ring.choose(1)) == "step-1"


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system")
def test_a_full_disk_has_room_again(nodes: list[NodeKeeper], tmp_path: Path) -> None:
    """The part that was refused is taken later in the same attempt; it was noted once that there was no room."""
    with small_disk(tmp_path, 1, "64m") as work:
        ring = start(nodes, tmp_path, 2)
        (work / "of-others").write_bytes(bytes(48 << 20))
        ring.save("step-1", data=os.urandom(BIG))
        ring.wait_for("step-1", "copying")
        (work / "of-others").unlink()
        ring.wait_for("step-1")
        notes = [(report.code, report.name) for report in nodes[1].seen if report.event == "note"]
        assert notes == [("CC-CKPT-010", "step-1")]
        for node in nodes:
            node.close()


def test_files_are_removed_while_they_are_copied(nodes: list[NodeKeeper], tmp_path: Path) -> None:
    """The script keeps only its newest checkpoint: that is safe, and chosen."""
    ring = start(nodes, tmp_path, 2, rate=BIG / 2)
    for node in nodes:
        node.write("step-1", data=os.urandom(BIG))
    ring.serve(lambda: all(is_taking(node) for node in nodes), "the first bytes")
    for node in nodes:
        (node.folder / "step-1" / "data").unlink()
        (node.folder / "step-1").rmdir()
    ring.save("step-2")
    ring.wait_for("step-2")
    assert chosen_name(ring.choose(1)) == "step-2"
    ring.lose(0)
    spare = NodeKeeper(tmp_path, 7)
    nodes.append(spare)
    ring.nodes[Slot(7)] = spare
    chosen = ring.choose(1)
    assert chosen is not None
    assert spare.restore(chosen, node_rank=0).why == ""
    assert sorted(spare.read("step-2")) == ["gpu0.pt", "gpu1.pt"]


@pytest.mark.parametrize("hours", [-30, 30])
def test_clocks_that_differ_by_hours(nodes: list[NodeKeeper], tmp_path: Path, hours: int) -> None:
    """Files of one node seem old, or of tomorrow; the newest checkpoint is still the one that was sealed last."""
    ring = start(nodes, tmp_path, 2)
    for name in ("step-2", "step-1"):
        for node, shift in zip(nodes, (0, hours), strict=True):
            folder = node.write(name, **{f"{node.node}.pt": f"{name} of {node.node}".encode()})
            for path in (folder / f"{node.node}.pt", folder):
                when = path.stat().st_mtime + 3600 * shift
                os.utime(path, (when, when))
        ring.wait_for(name)
    ring.lose(1)
    spare = NodeKeeper(tmp_path, 7)
    nodes.append(spare)
    ring.nodes[Slot(7)] = spare
    chosen = ring.choose(1)
    assert chosen is not None
    assert chosen.seal.name == "step-1"
    assert spare.restore(chosen, node_rank=1).why == ""
    assert spare.read("step-1") == {f"gpu{n}.pt": b"step-1 of gpu%d" % n for n in range(2)}
    ring.begin(2, {Slot(0): NodeRank(0), Slot(7): NodeRank(1)})
    ring.save("step-3")
    ring.wait_for("step-3")


def test_what_was_restored_is_no_checkpoint_of_the_attempt(nodes: list[NodeKeeper], tmp_path: Path) -> None:
    """Although its files were written just now."""
    ring = start(nodes, tmp_path, 2)
    ring.save("step-1")
    ring.wait_for("step-1")
    chosen = ring.choose(1)
    assert chosen is not None
    (nodes[1].folder / "step-1" / "gpu1.pt").unlink()
    for node in nodes:
        assert node.restore(chosen).why == ""
    ring.begin(2, ring.ranks)
    ring.save("step-2")
    ring.wait_for("step-2")
    assert {name for name, _, _ in ring.seen} == {"step-1", "step-2"}
    assert [one["attempt"] for one in ring.ledger.states] == [1, 2]


def test_a_checkpoint_that_is_larger_than_memory(nodes: list[NodeKeeper], tmp_path: Path) -> None:
    """It is hashed, given, taken and restored in pieces: no keeper may have as much memory as it is large."""
    ring = start(nodes, tmp_path, 2, spares=1)
    for node in nodes:
        pages = int((Path("/proc") / str(node.process.pid) / "statm").read_text().split()[0])
        limit = pages * os.sysconf("SC_PAGE_SIZE") + LARGE // 2
        resource.prlimit(node.process.pid, resource.RLIMIT_AS, (limit, limit))
    for node in nodes[:2]:
        with (node.write("step-1") / f"{node.node}.pt").open("wb") as sink:
            sink.write(node.node.encode())
            sink.truncate(LARGE)
    ring.wait_for("step-1")
    ring.lose(0)
    chosen = ring.choose(1)
    assert chosen is not None
    restored = nodes[2].restore(chosen, node_rank=0)
    assert (restored.why, restored.bytes) == ("", 2 * LARGE)
    assert (nodes[2].folder / "step-1" / "gpu0.pt").stat().st_size == LARGE
