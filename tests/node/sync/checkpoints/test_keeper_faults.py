"""Nodes, disks and scripts that fail while checkpoints are kept: nothing wrong is restored, and the keeper goes on."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import socket
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from keepers import TOKEN, NodeKeeper, Ring, close_all, held_names, parts_held, restore_from, small_disk
from waiting import HANG, wait_until

from clusterctl.node.runtime.stream import VerbError
from clusterctl.node.sync.checkpoints import transfers
from clusterctl.node.sync.checkpoints.claim import Claim
from clusterctl.node.sync.checkpoints.keeper import Keeper, KeeperProvider
from clusterctl.node.sync.checkpoints.transfers import Restoring
from clusterctl.node.sync.store import Store
from clusterctl.node.sync.transfer import Provider
from clusterctl.protocol.messages.checkpoints import (
    Address,
    KeeperOrder,
    KeeperSettings,
    Part,
    PartSources,
    Restore,
    Seal,
)
from clusterctl.protocol.ranks import NodeRank

BIG = 24 << 20  # bytes: more than a connection holds
MANY = 64  # files


@pytest.fixture
def nodes() -> Iterator[list[NodeKeeper]]:
    """Hold what a test starts."""
    yield from close_all([])


def start(nodes: list[NodeKeeper], root: Path, count: int, **settings: Any) -> Ring:
    """Start so many nodes, and an attempt on them."""
    nodes += [NodeKeeper(root, number, **settings) for number in range(count)]
    ring = Ring(*nodes)
    ring.begin()
    return ring


def contents(node: NodeKeeper) -> list[Path]:
    """List what a node has mirrored, manifests included."""
    return [path for path in (node.mirror / "store").rglob("*") if path.is_file()]


def damage(node: NodeKeeper, content: bytes) -> None:
    """Flip a bit of a mirrored content."""
    (path,) = [path for path in contents(node) if path.read_bytes() == content]
    path.write_bytes(bytes([content[0] ^ 1]) + content[1:])


def test_a_damaged_copy_is_not_reported(nodes: list[NodeKeeper], tmp_path: Path) -> None:
    """Nor is it restored from where it was reported before."""
    ring = start(nodes, tmp_path, 2)
    seal = ring.save("step-1")
    before = nodes[1].conclude()
    assert parts_held(before, seal) == (0, 1)
    damage(nodes[1], b"step-1gpu0")
    assert parts_held(nodes[1].conclude(serial=2), seal) == (1,)
    spare = NodeKeeper(tmp_path, 5)
    nodes.append(spare)
    nodes[0].kill()
    restored = spare.restore(restore_from(seal, (nodes[1], before)), node_rank=0)
    assert (restored.code, restored.path) == ("CC-CKPT-013", "")
    assert "gpu0.pt" not in spare.read("step-1")


def test_a_part_comes_from_another_node_if_the_first_is_wrong(
    nodes: list[NodeKeeper], tmp_path: Path
) -> None:
    """A flipped bit is found by the receiver."""
    ring = start(nodes, tmp_path, 2)
    seal = ring.save("step-1")
    both = [(node, node.conclude()) for node in (nodes[1], nodes[0])]
    damage(nodes[1], b"step-1gpu0")
    spare = NodeKeeper(tmp_path, 5)
    nodes.append(spare)
    restored = spare.restore(restore_from(seal, *both), node_rank=0)
    assert (restored.why, restored.files) == ("", 2)
    assert spare.read("step-1")["gpu0.pt"] == b"step-1gpu0"


def test_a_checkpoint_that_the_script_overwrote_comes_back(nodes: list[NodeKeeper], tmp_path: Path) -> None:
    """Its own files were killed in the middle of the next one: the next node has the older ones."""
    ring = start(nodes, tmp_path, 2)
    seal = ring.save("step-last")
    for node in nodes:
        node.write("step-last", **{f"{node.node}.pt": b"half of ste"})
    reports = [(node, node.conclude()) for node in nodes]
    assert [parts_held(report, seal) for _, report in reports] == [(1,), (0,)]
    for node in nodes:
        assert node.restore(restore_from(seal, *reports)).why == ""
        assert node.read("step-last") == {"gpu0.pt": b"step-lastgpu0", "gpu1.pt": b"step-lastgpu1"}


def test_what_the_script_removes_before_it_is_copied_is_not_copied(
    nodes: list[NodeKeeper], tmp_path: Path
) -> None:
    """Nothing of it stays, and the next checkpoint is copied."""
    ring = start(nodes, tmp_path, 2)
    for node in nodes:
        node.write("step-1", **{f"{node.node}.pt": b"1" * 100})
    seal = ring.seal("step-1")
    (nodes[0].folder / "step-1" / "gpu0.pt").unlink()
    ring.order_take(seal, 0, 1)
    assert nodes[1].wait("held").why == "it does not have all contents"
    assert parts_held(nodes[0].conclude(), seal) == (1,)[:0]
    ring.begin(2)
    ring.save("step-2", 2)
    assert held_names(nodes[1].conclude(2, serial=3))[0] == ("step-2", [0, 1])


def test_a_source_that_dies_in_the_middle(nodes: list[NodeKeeper], tmp_path: Path) -> None:
    """What came is dropped, the part is not held, and another node gives it."""
    ring = start(nodes, tmp_path, 3, rate=BIG / 2)
    for node in nodes:
        node.write("step-1", **{f"{node.node}.pt": os.urandom(BIG)})
    seal = ring.seal("step-1")
    ring.order_take(seal, 0, 2)
    assert nodes[2].wait("held").why == ""
    ring.order_take(seal, 0, 1)
    incoming = nodes[1].mirror / "store" / "incoming"
    wait_until(lambda: any(path.stat().st_size for path in incoming.iterdir()), "the first bytes")
    nodes[0].kill()
    assert nodes[1].wait("held").why != ""
    assert list(incoming.iterdir()) == []
    nodes[1].order(
        "take", attempt=1, name="step-1", part=seal.parts[0], sources=(nodes[0].address, nodes[2].address)
    )
    assert nodes[1].wait("held").why == ""


def test_a_keeper_that_is_killed_while_it_takes(nodes: list[NodeKeeper], tmp_path: Path) -> None:
    """The next one on this node has what was whole, and nothing else."""
    ring = start(nodes, tmp_path, 2, rate=BIG / 2)
    ring.save("step-1")
    for node in nodes:
        node.write("step-2", **{f"{node.node}.pt": os.urandom(BIG)})
    seal = ring.seal("step-2")
    ring.order_take(seal, 0, 1)
    incoming = nodes[1].mirror / "store" / "incoming"
    wait_until(lambda: any(path.stat().st_size for path in incoming.iterdir()), "the first bytes")
    nodes[1].kill()
    again = NodeKeeper(tmp_path, 1)
    nodes.append(again)
    assert held_names(again.conclude()) == [("step-2", [1]), ("step-1", [0, 1])]
    assert list(incoming.iterdir()) == []


def test_skipped_checkpoints_leave_nothing(nodes: list[NodeKeeper], tmp_path: Path) -> None:
    """Of what one node has reported and the hub has not sealed, only the newest may still be needed."""
    ring = start(nodes, tmp_path, 2)
    ring.save("step-1")
    kept = set(contents(nodes[0]))
    for number in range(2, 5):
        for node in nodes:
            node.write(f"step-{number}", **{f"{node.node}.pt": b"%d" % number})
        parts = ring.collect(f"step-{number}")
    assert {path.name for path in set(contents(nodes[0])) - kept} == {parts[0].manifest}
    assert kept <= set(contents(nodes[0]))


def test_a_hand_over_is_given_up(nodes: list[NodeKeeper], tmp_path: Path) -> None:
    """A stop or a lost source ends it; what follows is served at once."""
    ring = start(nodes, tmp_path, 2)
    seal = ring.save("step-1")
    reports = [(node, node.conclude()) for node in nodes]
    restore = restore_from(seal, reports[0])
    nodes[0].kill()
    spare = NodeKeeper(tmp_path, 5)
    nodes.append(spare)
    spare.order("restore", attempt=1, restore=restore, node_rank=0, serial=2)
    spare.order("pause")
    report = spare.restore(restore_from(seal, reports[1]), node_rank=0)
    assert (report.why, len(spare.read("step-1"))) == ("", 2)


def test_files_of_a_restore_that_was_given_up(nodes: list[NodeKeeper], tmp_path: Path) -> None:
    """None comes after the next attempt has begun, in which they are no checkpoint."""
    ring = start(nodes, tmp_path, 2, complete="marker")
    for number in range(MANY):
        with (nodes[0].write("step-1") / f"{number}.pt").open("wb") as sink:
            sink.write(b"%d" % number)
            sink.truncate(BIG // MANY * 4)
    for node in nodes:
        node.write("step-1", **{node.node: b"x"})
    nodes[1].write("step-1", marker=b"x")
    seal = ring.seal("step-1")
    ring.mirror(seal)
    order = restore_from(seal, *((node, node.conclude()) for node in nodes))
    place = nodes[1].folder / "step-1"
    nodes[1].order("restore", attempt=1, restore=order, node_rank=1, serial=2)
    wait_until(lambda: any(place.glob("*.pt")), "the first file")
    nodes[1].order("pause")
    nodes[1].begin(3)
    restored = nodes[1].read("step-1").keys()
    nodes[1].conclude(3, serial=3)
    assert nodes[1].read("step-1").keys() == restored
    assert not [report for report in nodes[1].seen if report.event == "marked" and report.attempt == 3]


def test_a_full_disk_of_the_neighbour(nodes: list[NodeKeeper], tmp_path: Path) -> None:
    """It is noted, the part is not held, and a smaller one is taken after it."""
    with small_disk(tmp_path, 1, "2m"):
        ring = start(nodes, tmp_path, 2)
        for node in nodes:
            node.write("step-1", **{f"{node.node}.pt": os.urandom(BIG)})
        seal = ring.seal("step-1")
        ring.order_take(seal, 0, 1)
        note = nodes[1].wait("note")
        assert (note.code, note.name) == ("CC-CKPT-010", "step-1")
        assert nodes[1].wait("held").why.startswith("no room at ")
        ring.save("step-2")
        assert held_names(nodes[1].conclude()) == [("step-2", [0, 1]), ("step-1", [1])]
        for node in nodes:
            node.close()


def test_a_copy_leaves_room_for_the_script(nodes: list[NodeKeeper], tmp_path: Path) -> None:
    """A part that would just fit is refused before its first byte: the script writes to the same disk."""
    with small_disk(tmp_path, 1, "8m"):
        ring = start(nodes, tmp_path, 2)
        for node in nodes:
            node.write("step-1", **{f"{node.node}.pt": os.urandom((8 << 20) - (8 << 20) // 40)})
        ring.order_take(ring.seal("step-1"), 0, 1)
        assert nodes[1].wait("held").why.startswith("no room at ")
        for node in nodes:
            node.close()


def test_a_checkpoint_that_came_in_part_does_not_seem_whole(nodes: list[NodeKeeper], tmp_path: Path) -> None:
    """Its marker comes last, when a node that has a part of it has lost the files."""
    ring = start(nodes, tmp_path, 2, complete="marker")
    for node, files in zip(nodes, ({"marker": b"done", "0.pt": b"0"}, {"1.pt": b"1"}), strict=True):
        node.write("step-1", **files)
    seal = ring.seal("step-1")
    restore = restore_from(seal, *[(node, node.conclude()) for node in nodes])
    (nodes[1].folder / "step-1" / "1.pt").unlink()
    spare = NodeKeeper(tmp_path, 5, complete="marker")
    nodes.append(spare)
    report = spare.restore(restore, node_rank=0)
    assert report.code == "CC-CKPT-013"
    assert spare.read("step-1") == {"0.pt": b"0"}


def test_nodes_that_see_the_same_files(nodes: list[NodeKeeper], tmp_path: Path) -> None:
    """Nothing is hashed twice or copied; what was changed since is not restored."""
    both = tmp_path / "shared"
    nodes += [NodeKeeper(tmp_path, number, folder=both) for number in range(2)]
    ring = Ring(*nodes)
    ring.begin()
    nodes[0].write("step-1", data=b"1")
    identity = nodes[0].wait("marked").identity
    for node in nodes:
        node.order("collect", attempt=1, name="step-1", identity=identity, node_rank=0)
    report = nodes[1].wait("part")
    assert (report.part, report.identity, report.why) == (None, identity, "")
    parts = tuple(Part(node_rank=NodeRank(rank)) for rank in range(2))
    seal = Seal(name="step-1", attempt=1, number=1, nodes=2, parts=parts, shared=True)
    for node in nodes:
        node.order("seal", seal=seal)
        assert parts_held(node.conclude(), seal) == (0, 1)
        restored = node.restore(Restore(seal=seal))
        assert (restored.why, restored.path, restored.files) == ("", str(both / "step-1"), 0)
    nodes.append(elsewhere := NodeKeeper(tmp_path, 2))
    failed = elsewhere.restore(
        Restore(seal=seal)
    )  # its file system is not mounted: that is no fault of the files
    assert (failed.code, failed.why) == (
        "CC-DISK-002",
        f"cannot use {elsewhere.folder / 'step-1'}: No such file or directory",
    )
    nodes[0].write("step-1", data=b"2")
    assert [parts_held(node.conclude(serial=2), seal) for node in nodes[:2]] == [(), ()]


@pytest.mark.parametrize(("workdir", "ends"), [("one", "first"), ("another", "first"), ("another", "second")])
def test_two_runs_that_write_to_one_directory(
    nodes: list[NodeKeeper], tmp_path: Path, workdir: str, ends: str
) -> None:
    """Neither keeps anything until the other one has ended, and nothing of the other one ever.

    Their work directories may be different ones, and their nodes, if they see the same files.
    """
    root = tmp_path if workdir == "one" else tmp_path / "other"
    first = NodeKeeper(tmp_path, 0, folder=tmp_path / "shared" / "run")
    second = NodeKeeper(root, 0, run="train-20260101-000000-ffff", folder=first.folder)
    nodes += [first, second]
    first.begin()
    first.write("step-1", data=b"1")
    assert first.wait("marked").name == "step-1"
    second.begin()
    assert [path.name for path in first.folder.iterdir()] == ["step-1"]
    assert [report.code for report in second.seen if report.event == "note"] == ["CC-CKPT-012"]
    second.write("step-2", data=b"2")
    note = first.wait("note")
    assert (note.code, "train-20260101-000000-ffff" in note.why) == ("CC-CKPT-012", True)
    for name in ("step-1", "step-2"):
        first.order("collect", attempt=1, name=name, identity="?", node_rank=0)
        assert first.wait("part").why == note.why
        first.wait("note", lambda report, name=name: report.name == name)  # else it may come below
    left, gone = (first, second) if ends == "second" else (second, first)
    gone.close()
    left.poll()
    number = iter(range(10, 1000))

    def write_another() -> bool:
        left.write(f"step-{next(number)}", data=b"3")
        return not left.idle()

    wait_until(write_another, "the run is the only one", every=0.2)
    left.wait("marked")
    marked = [report.name for report in left.seen if report.event == "marked"]
    assert marked[0] == "step-1" if left is first else "step-1" not in marked
    assert "step-2" not in marked


def test_a_run_that_was_refused_and_ended_between_two_looks(tmp_path: Path) -> None:
    """Its files are seen by the next look: they belong to no run."""
    first, second = (Claim(str(tmp_path), os.fsencode(tmp_path), run_id) for run_id in ("first", "second"))
    assert (first.find_rival(), second.find_rival(), first.find_rival()) == ("", "first", "second")
    second._close(second._contesting.values())
    second._contesting.clear()
    assert first.find_rival() == ""
    assert second.find_rival() == "first"
    second._close(second._contesting.values())
    assert [first.find_rival() for _ in range(2)] == ["second", ""]


def test_ranks_that_may_have_died(nodes: list[NodeKeeper], tmp_path: Path) -> None:
    """What is seen after that has not settled: a file may be half of one. Nor has one that is still written to."""
    nodes.append(node := NodeKeeper(tmp_path, 0))
    node.begin()
    with (node.folder / "step-1").open("wb") as sink:
        sink.write(b"half")
        sink.flush()
        node.write("step-2", data=b"2")
        assert node.wait("marked").name == "step-2"
        node.order("pause")
        node.write("step-3", data=b"3")
    node.conclude()
    assert [report.name for report in node.seen if report.event == "marked"] == ["step-2"]


def test_each_node_has_its_own_file_of_one_name(nodes: list[NodeKeeper], tmp_path: Path) -> None:
    """Where all ranks write a file of one name, a node gets that of its node rank; by `own` nothing else."""
    ring = start(nodes, tmp_path, 2)
    for node in nodes:
        node.write("step-1", state=node.node.encode(), **{f"{node.node}.pt": b"x"})
    seal = ring.seal("step-1")
    ring.mirror(seal)
    left = restore_from(seal, *((node, node.conclude()) for node in nodes))
    for rank, needs, files in ((0, "all", 3), (1, "all", 3), (1, "own", 2)):
        spare = NodeKeeper(tmp_path / f"{rank}{needs}", 5, needs=needs)
        nodes.append(spare)
        assert spare.restore(left, node_rank=rank).why == ""
        assert spare.read("step-1")["state"] == f"gpu{rank}".encode()
        assert len(spare.read("step-1")) == files


@pytest.mark.parametrize("same", [False, True])
def test_a_node_that_saw_the_files_of_another_one_is_replaced(
    nodes: list[NodeKeeper], tmp_path: Path, *, same: bool
) -> None:
    """Where only some nodes share a disk, it has no part of its own: it gets all, unless these contradict."""
    both = tmp_path / "shared"
    nodes += [NodeKeeper(tmp_path, number, folder=both, needs="own") for number in range(2)]
    nodes.append(NodeKeeper(tmp_path, 2, needs="own"))
    Ring(*nodes).begin()
    for node in (nodes[0], nodes[2]):
        node.write("step-1", **{"state" if same else f"{node.node}.pt": node.node.encode()})
    identity = nodes[0].wait("marked").identity
    for node in nodes:
        node.order("collect", attempt=1, name="step-1", identity=identity, node_rank=0)
    found = [node.wait("part").part or Part(node_rank=node.number) for node in nodes]
    assert [part.files for part in found] == [1, 0, 1]
    seal = Seal(name="step-1", attempt=1, number=1, nodes=3, parts=tuple(found))
    for node in nodes:
        node.order("seal", seal=seal)
    left = restore_from(seal, *((node, node.conclude()) for node in (nodes[0], nodes[2])))
    assert nodes[1].restore(left).why == ""
    assert nodes[1].read("step-1") == {"state" if same else "gpu0.pt": b"gpu0"}
    nodes[1].kill()
    nodes.append(spare := NodeKeeper(tmp_path, 5, needs="own"))
    restored = spare.restore(left, node_rank=1)
    if same:
        assert (restored.code, restored.path) == ("CC-CKPT-013", "")
        assert not (spare.folder / "step-1").exists()
    else:
        assert (restored.why, restored.path) == ("", str(spare.folder / "step-1"))
        assert spare.read("step-1") == {"gpu0.pt": b"gpu0", "gpu2.pt": b"gpu2"}


def test_what_a_restore_left_that_was_killed(nodes: list[NodeKeeper], tmp_path: Path) -> None:
    """It is gone when the ranks begin, and other files are not touched."""
    nodes.append(node := NodeKeeper(tmp_path, 0))
    (node.folder / f".clusterctl-part-{'ab' * 32}").write_bytes(b"half")
    node.folder.joinpath(f".clusterctl-part-{'ab' * 32}").chmod(0o600)
    (node.folder / ".hidden").touch()
    node.begin()
    assert [path.name for path in node.folder.iterdir()] == [".hidden"]


def test_older_copies_go(nodes: list[NodeKeeper], tmp_path: Path) -> None:
    """With `keep: 1` those of the newest safe checkpoint stay; the files of the script stay in any case."""
    ring = start(nodes, tmp_path, 2, keep=1)
    for number in range(1, 4):
        ring.save(f"step-{number}", same=b"in all")
    assert held_names(nodes[1].conclude()) == [("step-3", [0, 1])]
    kept = {path.read_bytes() for path in contents(nodes[1])}
    assert {b"step-3gpu0", b"in all"} <= kept
    assert b"step-2gpu0" not in kept
    assert len(nodes[1].read("step-1")) == 2


def give_manifest(root: Path, rows: list[list[Any]], promised: dict[str, Any]) -> tuple[Restore, Provider]:
    """Return the order to restore what a hostile node gives."""
    root.mkdir(mode=0o700)
    store = Store(str(root))
    content = zlib.compress(json.dumps(rows).encode())
    sha = store_content(store, content)
    data = store_content(store, b"evil")
    provider = Provider(
        store, {sha: len(content), data: 4}, {"address": "127.0.0.1", "ports": None, "token": TOKEN}
    )
    values = {"node_rank": NodeRank(0), "manifest": sha, "size": len(content), "files": 1, "bytes": 4}
    part = Part(**{**values, **promised})
    seal = Seal(name="step-1", attempt=1, number=1, nodes=1, parts=(part,))
    source = Address(address="127.0.0.1", port=provider.port)
    return Restore(seal=seal, parts=(PartSources(node_rank=NodeRank(0), sources=(source,)),)), provider


def store_content(store: Store, content: bytes) -> str:
    """Store a content, and return its name."""
    sha = hashlib.sha256(content).hexdigest()
    store.add(sha, content, len(content))
    return sha


@pytest.mark.parametrize(
    ("row", "promised"),
    [
        pytest.param(["step-1/../../evil", "file", 0o644], {}, id="a path that leads out"),
        pytest.param(["/evil", "file", 0o644], {}, id="an absolute path"),
        pytest.param(["step-2/evil", "file", 0o644], {}, id="another checkpoint"),
        pytest.param(["step-1/evil", "file", 0o644], {"bytes": 3}, id="more bytes than the seal names"),
        pytest.param(["step-1/evil", "file", 0o644], {"files": 2}, id="fewer files than the seal names"),
        pytest.param(["step-1/evil", "file", 0o4755], {}, id="a mode that no file has"),
        pytest.param(["step-1/evil", "link", 0, "../../target", 0], {"bytes": 0}, id="a link that leads out"),
        pytest.param(["step-1/evil", "link", 0, "/etc", 0], {"bytes": 0}, id="an absolute link"),
    ],
)
def test_a_hostile_manifest(
    nodes: list[NodeKeeper], tmp_path: Path, row: list[Any], promised: dict[str, Any]
) -> None:
    """It is refused before anything of it is written, and the keeper serves on."""
    file = [*row, hashlib.sha256(b"evil").hexdigest(), 4][: 5 if len(row) == 3 else len(row)]
    restore, provider = give_manifest(tmp_path / "hostile", [file], promised)
    nodes.append(node := NodeKeeper(tmp_path, 0))
    try:
        restored = node.restore(restore)
    finally:
        provider.close()
    assert (restored.code, restored.path) == ("CC-CKPT-013", "")
    with suppress(FileNotFoundError):
        assert list(node.folder.iterdir()) == []
    assert not list(tmp_path.rglob("evil"))
    node.begin()


@pytest.mark.parametrize("name", ["results.csv", "..", "step-1/../../out", ".step-1"])
def test_a_seal_of_something_else(nodes: list[NodeKeeper], tmp_path: Path, name: str) -> None:
    """What the pattern does not mean is neither noted down nor replaced."""
    row = [name, "file", 0o644, hashlib.sha256(b"evil").hexdigest(), 4]
    restore, provider = give_manifest(tmp_path / "hostile", [row], {})
    restore = restore.replace(seal=restore.seal.replace(name=name))
    nodes.append(node := NodeKeeper(tmp_path, 0))
    (node.folder / "results.csv").write_bytes(b"precious")
    try:
        restored = node.restore(restore)
    finally:
        provider.close()
    assert (restored.code, restored.path) == ("CC-CKPT-013", "")
    node.order("seal", seal=restore.seal)
    assert node.conclude().held == ()
    assert (node.folder / "results.csv").read_bytes() == b"precious"


def test_a_pause_while_an_attempt_still_begins(nodes: list[NodeKeeper], tmp_path: Path) -> None:
    """What dying ranks write after it has not settled, however long the first look takes."""
    nodes.append(node := NodeKeeper(tmp_path, 0))
    for number in range(300):
        (node.folder / f"step-old{number}").touch()
    node.order("begin", attempt=1, node_rank=0)
    node.order("pause")
    assert node.wait("begun").attempt == 1
    node.write("step-2", whole=b"2")
    time.sleep(1.0)  # several looks, each of which would find it
    node.order("conclude", attempt=1, serial=1)
    node.wait("kept")
    node.begin(2)
    node.write("step-3", whole=b"3")
    assert node.wait("marked").name == "step-3"
    assert [report.name for report in node.seen if report.event == "marked"] == ["step-3"]


def test_checkpoints_that_never_become_safe(nodes: list[NodeKeeper], tmp_path: Path) -> None:
    """Only the newest two stay beside the safe one, which a keeper that is started again reports too."""
    ring = start(nodes, tmp_path, 2, keep=1)
    ring.save("step-1")
    for number in range(2, 7):
        for node in nodes:
            node.write(f"step-{number}", **{f"{node.node}.pt": b"%d" % number})
        seal = ring.seal(f"step-{number}")
        ring.order_take(seal, 0, 1)
        assert nodes[1].wait("held").why == ""
    expected = [("step-6", [0, 1]), ("step-5", [0, 1]), ("step-1", [0, 1])]
    assert held_names(nodes[1].conclude()) == expected
    assert not [path for path in contents(nodes[1]) if path.read_bytes() in (b"2", b"3", b"4")]
    nodes[1].kill()
    nodes.append(again := NodeKeeper(tmp_path, 1, keep=1))
    assert held_names(again.conclude()) == expected
    again.order("seal", seal=seal.replace(name="step-7", number=9))
    again.order("seal", seal=seal.replace(name="step-8", number=10))
    assert held_names(again.conclude(serial=2))[-1] == ("step-1", [0, 1])


@pytest.mark.parametrize(("most", "code"), [(0, "CC-NET-030"), (1, "CC-CKPT-013")])
def test_a_busy_source_says_nothing_about_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, code: str
) -> None:
    """One that turns others away is not one that lacks the files: the checkpoint is not given up for good."""
    monkeypatch.setattr(transfers, "RETRY_DELAY", 0.0)
    monkeypatch.setattr(transfers, "NO_DATA_LIMIT", 0.5 if not most else 2 * HANG)
    monkeypatch.setattr(KeeperProvider, "most", most)
    tmp_path.chmod(0o700)
    store, sha = Store(str(tmp_path)), "cd" * 32
    provider = KeeperProvider(store, {}, {"address": "127.0.0.1", "ports": None, "token": TOKEN})
    missing, progress = {sha}, list[set[str]]()
    transfer = transfers.Transfer(TOKEN, lambda: False, None, lambda: progress.append(set(missing)))
    try:
        with pytest.raises(VerbError) as raised:
            transfer.retry(store, {sha: 1}, missing, (Address(address="127.0.0.1", port=provider.port),))
    finally:
        provider.close()
    assert raised.value.code == code
    assert len(progress) > 1
    assert all(progress)  # it is shown to go on, also where nothing comes


def test_a_disk_that_fails_is_no_fault_of_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system names no path: another node may restore the same files."""

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(Restoring, "restore", fail)
    ours, its = socket.socketpair()
    with ours, its, ours.makefile("rb") as lines:
        keeper = Keeper(str(tmp_path / "runs" / "x"), its, KeeperSettings(path=f"{tmp_path}/out/step-*"))
        restore = Restore(seal=Seal(name="step-1", number=1))
        keeper._restore(KeeperOrder(do="restore", name="step-1", restore=restore), 0)
        report = json.loads(lines.readline())
    assert (report["code"], report["why"]) == ("CC-CKPT-014", "OSError: [Errno 5] Input/output error")
