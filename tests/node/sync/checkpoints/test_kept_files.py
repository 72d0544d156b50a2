"""`pull --checkpoint` lists what a node has of one checkpoint: its own files, and copies of other nodes' files."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from keepers import RUN, NodeKeeper, Ring, close_all
from session import Session

from clusterctl.node.sync.checkpoints import scanning
from clusterctl.node.sync.checkpoints.scanning import Scanner


@pytest.fixture
def nodes() -> Iterator[list[NodeKeeper]]:
    """Hold what a test starts."""
    yield from close_all([])


def list_checkpoint(node: NodeKeeper, generation: str) -> list[list[Any]]:
    """Return the rows of the verb."""
    request = {
        "workdir": str(node.work),
        "node": node.node,
        "run": RUN,
        "sources": [["checkpoint", generation]],
        "most": 100,
        "hashed": True,
        "mark": "",
        "shared_home_probe": "",
    }
    rows: list[list[Any]] = []
    with Session("files", request) as session:
        while (frame := session.receive()) is not None and "listed" not in frame[0]:
            if "rows" in frame[0]:
                rows += json.loads(zlib.decompress(frame[1]))
    return sorted(rows, key=lambda row: row[1])


def test_a_node_lists_whole_parts_that_are_right(nodes: list[NodeKeeper], tmp_path: Path) -> None:
    """What was changed or removed since comes from nodes that have copies."""
    nodes += [NodeKeeper(tmp_path, number) for number in range(2)]
    ring = Ring(*nodes)
    ring.begin()
    seal = ring.save("step-1", config=b"{}")
    listed = list_checkpoint(nodes[0], "1/step-1")
    assert [row[1] for row in listed] == [
        f"{rank}/step-1/{file}" for rank in (0, 1) for file in ("config", f"gpu{rank}.pt")
    ]
    assert [row[2:4] for row in listed if row[1].endswith("config")] == [["file", 2], ["file", 2]]
    assert [row[1] for row in list_checkpoint(nodes[0], "0/step-1")] == [row[1] for row in listed]
    assert list_checkpoint(nodes[0], "2/step-1") == []
    (nodes[0].folder / "step-1" / "gpu0.pt").write_bytes(b"other")
    assert {row[1][0] for row in list_checkpoint(nodes[0], "1/step-1")} == {"1"}
    assert {row[1][0] for row in list_checkpoint(nodes[1], "1/step-1")} == {"0", "1"}
    assert seal.number == 1


def test_a_script_that_removes_files_makes_no_newer_checkpoint(tmp_path: Path) -> None:
    """What goes of an old checkpoint is no change of it; what comes is."""
    scanner = Scanner(f"{tmp_path}/step-*", "")
    scanner.begin()
    scanner.paused.clear()
    folder = tmp_path / "step-1"
    folder.mkdir()
    for name in ("model", "optimizer"):
        (folder / name).write_text(name)

    def marked() -> list[str]:
        return [found.name for _ in range(20) for found in scanner.scan() if found.event == "marked"]

    assert marked() == ["step-1"]
    (folder / "optimizer").unlink()
    assert marked() == []
    (folder / "model").write_text("another model")
    assert marked() == ["step-1"]


def test_a_new_checkpoint_that_cannot_be_kept_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old ones do not count against its number of files, and a link to the newest one is nothing to report."""
    monkeypatch.setattr(scanning, "MAX_FILES", 3)

    def write(name: str, files: int) -> None:
        (tmp_path / name).mkdir(exist_ok=True)
        for number in range(files):
            (tmp_path / name / str(number)).touch()

    write("step-1", 4)
    write("step-2", 3)
    scanner = Scanner(f"{tmp_path}/step-*", "0")
    scanner.begin()
    scanner.paused.clear()
    write("step-3", 3)
    write("step-4", 4)
    (tmp_path / "other").mkdir()
    (tmp_path / "step-5").symlink_to("other")
    (tmp_path / "step-last").symlink_to("step-3")
    (tmp_path / "step-best").symlink_to(tmp_path / "step-3")
    found = {(one.event, one.name, one.why) for _ in range(3) for one in scanner.scan()}
    assert found == {
        ("marked", "step-3", ""),
        ("unusable", "step-4", "it has too many files"),
        ("unusable", "step-5", "it is a symbolic link"),
    }


def test_checkpoints_that_one_look_finds_come_in_the_order_in_which_they_were_written(tmp_path: Path) -> None:
    """The last one is the newest for the hub: 10 after 8 and 9, whatever the order of their names."""
    scanner = Scanner(f"{tmp_path}/step-*", "done")
    scanner.begin()
    scanner.paused.clear()
    last = 0
    for step in (8, 9, 10, 11):
        marker = tmp_path / f"step-{step}" / "done"
        marker.parent.mkdir()
        while (
            not marker.exists() or marker.stat().st_ctime_ns == last
        ):  # two may fall into one tick of its clock
            marker.write_text("")
        last = marker.stat().st_ctime_ns
    (tmp_path / "step-9" / "more").write_text("written after the marker")

    assert [found.name for found in scanner.scan()] == ["step-8", "step-9", "step-10", "step-11"]
