"""Checkpoints are found, mirrored by the next node, and restored on a node that takes the place of a lost one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from keepers import NodeKeeper, Ring, close_all, held_names, parts_held, restore_from

from clusterctl.node.sync.checkpoints.scanning import ABSENT, ABSENT_FIRST, Scanner


@pytest.fixture
def nodes() -> Iterator[list[NodeKeeper]]:
    """Hold what a test starts."""
    yield from close_all([])


def start(nodes: list[NodeKeeper], root: Path, count: int, **settings: object) -> Ring:
    """Start so many nodes, and an attempt on them."""
    nodes += [NodeKeeper(root, number, **settings) for number in range(count)]
    ring = Ring(*nodes)
    ring.begin()
    return ring


def test_a_spare_gets_all_files_of_a_lost_node(nodes: list[NodeKeeper], tmp_path: Path) -> None:
    """After each node's part was taken by the next, any one node can be lost."""
    ring = start(nodes, tmp_path, 3)
    seal = ring.save("step-100", config=b"{}")
    nodes[1].kill()
    left = [(node, node.conclude()) for node in (nodes[0], nodes[2])]
    assert [held_names(report) for _, report in left] == [[("step-100", [0, 2])], [("step-100", [1, 2])]]
    spare = NodeKeeper(tmp_path, 7)
    nodes.append(spare)
    restored = spare.restore(restore_from(seal, *left), node_rank=1)
    assert (restored.why, restored.path, restored.files) == ("", str(spare.folder / "step-100"), 4)
    assert "restoring" in {report.event for report in spare.seen}
    assert spare.read("step-100") == {
        "config": b"{}",
        **{f"gpu{number}.pt": f"step-100gpu{number}".encode() for number in range(3)},
    }
    again = nodes[0].restore(restore_from(seal, *left))
    assert (again.why, again.files) == ("", 2)


def test_a_checkpoint_is_marked_when_its_files_no_longer_change(
    nodes: list[NodeKeeper], tmp_path: Path
) -> None:
    """Files of an earlier attempt do not count, and one that changes again is marked again."""
    nodes.append(node := NodeKeeper(tmp_path, 0))
    node.write("step-1", old=b"1")
    node.begin()
    node.write("step-2", new=b"2")
    assert node.wait("marked").name == "step-2"
    node.write("step-2", more=b"3")
    assert node.wait("marked").name == "step-2"
    node.write("step-1", new=b"1")
    assert node.wait("marked").name == "step-1"
    node.order("collect", attempt=1, name="step-1", identity="", node_rank=0)
    part = node.wait("part").part
    assert part is not None
    assert (part.files, part.bytes) == (1, 1)  # not the one that was there before


def test_a_file_that_is_written_last_marks_a_checkpoint(nodes: list[NodeKeeper], tmp_path: Path) -> None:
    """Without it, a checkpoint is never marked; a node without files has an empty part."""
    ring = start(nodes, tmp_path, 2, complete=".metadata")
    nodes[0].write("step-1", data=b"1")
    nodes[0].write("step-2", **{"data": b"1", ".metadata": b"2"})
    assert nodes[0].wait("marked").name == "step-2"
    parts = ring.collect("step-2")
    assert [(part.node_rank, part.files) for part in parts] == [(0, 2), (1, 0)]


@pytest.mark.parametrize(("complete", "looks"), [("", ABSENT_FIRST), ("done", ABSENT)])
def test_a_node_that_has_no_files_yet_has_time_to_write_them(
    tmp_path: Path, complete: str, looks: int
) -> None:
    """Without a file that is written last the first answer takes longer, and the following ones do not."""
    scanner = Scanner(f"{tmp_path}/step-*", complete)
    scanner.begin()
    scanner.paused.clear()

    def count_looks(name: str) -> int:
        scanner.collect(name, "?", is_first=False)
        return next(number for number in range(1, 1000) if scanner.scan())

    assert [count_looks(name) for name in ("step-1", "step-2")] == [looks, ABSENT]


def test_what_was_half_written_when_a_node_began_to_watch_late_is_never_half_a_checkpoint(
    tmp_path: Path,
) -> None:
    """Its first files were not seen: it is refused when the hub asks, and so is no part without files."""
    scanner = Scanner(f"{tmp_path}/step-*", "")
    (tmp_path / "step-1").mkdir()
    (tmp_path / "step-1" / "a").write_bytes(b"1")
    scanner.begin(is_late=True)
    scanner.paused.clear()
    for name in ("step-1", "step-2"):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "b").write_bytes(b"1")
    found = [found for _ in range(10) for found in scanner.scan()]
    assert [(one.event, one.name) for one in found] == [("marked", "step-2")]

    scanner.collect("step-1", "?", is_first=False)
    (refused,) = scanner.scan()
    assert (refused.event, refused.why) == ("absent", "it was begun before its node could watch it")
    (tmp_path / "step-1").rename(tmp_path / "old")
    (tmp_path / "step-1").mkdir()
    (tmp_path / "step-1" / "a").write_bytes(b"2")
    found = [found for _ in range(10) for found in scanner.scan()]
    assert [(one.event, one.name) for one in found] == [("marked", "step-1")]


def test_files_that_come_after_a_node_has_reported_none(nodes: list[NodeKeeper], tmp_path: Path) -> None:
    """The seal without them is forgotten, and they are read with the next one."""
    ring = start(nodes, tmp_path, 2)
    nodes[0].write("step-1", **{"0.pt": b"0"})
    void = ring.seal("step-1")
    ring.order_take(void, 0, 1)
    assert nodes[1].wait("held").why == ""
    assert [part.files for part in void.parts] == [1, 0]
    nodes[1].write("step-1", **{"1.pt": b"1"})
    assert nodes[1].wait("late").name == "step-1"
    assert nodes[1].wait("marked").name == "step-1"
    for node in nodes:
        node.order("void", name="step-1", attempt=1, seal=void)
    seal = ring.seal("step-1")
    assert [part.files for part in seal.parts] == [1, 1]
    ring.mirror(seal)
    reports = [node.conclude() for node in nodes]
    assert [(parts_held(report, void), parts_held(report, seal)) for report in reports] == [((), (0, 1))] * 2


def test_files_that_had_not_settled_when_the_attempt_ended(nodes: list[NodeKeeper], tmp_path: Path) -> None:
    """They are no part of a checkpoint, but the one without them is none either."""
    ring = start(nodes, tmp_path, 2)
    nodes[0].write("step-1", **{"0.pt": b"0"})
    ring.seal("step-1")
    for node in nodes:
        node.order("pause")
    nodes[1].write("step-1", **{"1.pt": b"half of"})
    nodes[1].conclude()
    assert [report.event for report in nodes[1].seen if report.name == "step-1"][-1] == "late"


def test_a_checkpoint_that_is_written_again_and_again_counts_once(
    nodes: list[NodeKeeper], tmp_path: Path
) -> None:
    """With `keep: 2` the one before it stays, however often it was sealed."""
    ring = start(nodes, tmp_path, 2)
    for name in ("step-1", "step-2"):
        ring.save(name)
    for number in range(3):
        ring.save("step-2", more=b"%d" % number)
    assert held_names(nodes[1].conclude()) == [("step-2", [0, 1]), ("step-1", [0, 1])]
