"""A source tree goes to a node through the real payload, over pipes instead of SSH."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pipenodes import RUN, PipeSession, session

from clusterctl.client.rpc import session as conversation
from clusterctl.client.rpc.frames import Frame
from clusterctl.client.sync.contents import PART_SIZE, Contents
from clusterctl.client.sync.scan import ScanResult, scan_source
from clusterctl.client.sync.upload import SyncResult, TreeUpload, send_tree
from clusterctl.errors import ConnectionLost, NodeError, SyncError
from clusterctl.protocol.untrusted import Untrusted

BIG = 20_000_000
AWKWARD = ["a b.txt", "quo'te\".txt", "new\nline", "-rf", "$(touch x)", "caf\u00e9", "cafe\u0301", "\u4e2d"]


def bring(scan: ScanResult, workdir: Path, **how: Any) -> tuple[SyncResult, list[str]]:
    """Send a tree; give what was reported and which contents went over the wire."""
    with session(workdir, **how) as opened:
        return send_tree(opened, TreeUpload(scan), node=how.get("node", "gpu01")), opened.blobs


def code_of(workdir: Path, run: str = RUN, leaf: str = "0-gpu01") -> Path:
    """Name the run's own copy."""
    return workdir / "runs" / run / leaf / "code"


def listing(root: Path) -> dict[str, tuple[str, bytes | str]]:
    """Read a tree with other means than the code under test."""
    found: dict[str, tuple[str, bytes | str]] = {}
    for path in root.rglob("*"):
        if path.is_symlink():
            found[str(path.relative_to(root))] = ("link", str(path.readlink()))
        elif path.is_dir():
            found[str(path.relative_to(root))] = ("dir", b"")
        else:
            kind = "run" if path.stat().st_mode & 0o100 else "file"
            found[str(path.relative_to(root))] = (kind, path.read_bytes())
    return found


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Make a tree of awkward names and sizes."""
    root = tmp_path / "source"
    (root / "pkg/deep/er").mkdir(parents=True)
    (root / "empty folder").mkdir()
    (root / "train.py").write_text("print(1)\n")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "pkg/__init__.py").touch()
    (root / "pkg/deep/er/same.py").write_text("print(1)\n")
    for name in AWKWARD:
        (root / name).write_text(name)
    (root / "big.bin").write_bytes(secrets.token_bytes(BIG))
    (root / "here").symlink_to("pkg/deep")
    (root / "nowhere").symlink_to("/does/not exist")
    return root


def test_everything_arrives_as_it_is(source: Path, tmp_path: Path) -> None:
    """Names, contents, executable bits, links and empty folders are the same on the node."""
    scan = scan_source(source)
    seen, expected = list[int](), list[int]()
    with session(tmp_path / "work") as opened:
        upload = TreeUpload(scan, on_expected=expected.append)
        result = send_tree(opened, upload, node="gpu01", progress=seen.append)
    assert listing(code_of(tmp_path / "work")) == listing(source)
    assert result.tree == scan.manifest.hash
    assert expected == [sum(seen)]
    assert sum(seen) == result.sent > BIG
    assert len(seen) > 5, "a large file's progress is told in pieces"


def test_what_is_there_is_not_sent_again(source: Path, tmp_path: Path) -> None:
    """A second run gets its own copy without a byte of content on the wire."""
    scan = scan_source(source)
    bring(scan, tmp_path / "work")
    result, blobs = bring(scan, tmp_path / "work", run="second-20261120T110001-cd34")
    assert (result.sent, blobs) == (0, [])
    second = code_of(tmp_path / "work", "second-20261120T110001-cd34")
    assert listing(second) == listing(source)
    assert (second / "train.py").stat().st_nlink == 1


def test_edits_after_the_sync_change_nothing(source: Path, tmp_path: Path) -> None:
    """The run has its own copy: neither the source nor another run's code can reach it."""
    scan = scan_source(source)
    before = listing(source)
    bring(scan, tmp_path / "work")
    (source / "train.py").write_text("print(2)\n")
    (source / "big.bin").unlink()
    bring(scan, tmp_path / "work", run="second")
    with (code_of(tmp_path / "work", "second") / "train.py").open("w") as sink:
        sink.write("scribble")
    result, _ = bring(scan, tmp_path / "work", run="third")
    assert result.sent == 0
    assert listing(code_of(tmp_path / "work")) == listing(code_of(tmp_path / "work", "third")) == before


def test_only_what_changed_is_sent(source: Path, tmp_path: Path) -> None:
    """A new version of one file, a mode and a name cost one content."""
    bring(scan_source(source), tmp_path / "work")
    (source / "train.py").write_text("print(2)\n")
    (source / "run.sh").chmod(0o644)
    (source / "a b.txt").rename(source / "c d.txt")
    result, blobs = bring(scan_source(source), tmp_path / "work", run="second")
    assert (result.sent, len(blobs)) == (9, 1)
    assert listing(code_of(tmp_path / "work", "second")) == listing(source)


def test_many_nodes_with_one_home_do_not_disturb_each_other(source: Path, tmp_path: Path) -> None:
    """Four nodes take the same tree into the same store at once."""
    scan = scan_source(source)
    with ThreadPoolExecutor(4) as pool:
        results = pool.map(
            lambda rank: bring(scan, tmp_path / "work", node=f"gpu{rank}", rank=rank)[0].tree, range(4)
        )
        assert set(results) == {scan.manifest.hash}
    for rank in range(4):
        assert listing(code_of(tmp_path / "work", leaf=f"{rank}-gpu{rank}")) == listing(source)
    assert list((tmp_path / "work/store/incoming").iterdir()) == []


@pytest.mark.parametrize("name", ["train.py", "big.bin"])
@pytest.mark.parametrize("altered", [True, False], ids=["altered", "cut"])
def test_a_damaged_store_is_repaired(source: Path, tmp_path: Path, name: str, altered: bool) -> None:
    """A stored content that is not what its name reports is fetched again, before any run sees it."""
    scan = scan_source(source)
    bring(scan, tmp_path / "work")
    sha = {entry.path: entry.content for entry in scan.manifest.entries}[name]
    stored = tmp_path / "work/store" / sha[:2] / sha
    first, *rest = stored.read_bytes()
    stored.write_bytes(bytes([first ^ 1, *rest] if altered else rest))
    result, blobs = bring(scan, tmp_path / "work", run="second")
    assert blobs == [sha]
    assert result.tree == scan.manifest.hash
    assert listing(code_of(tmp_path / "work", "second")) == listing(source)
    assert stored.read_bytes() == (source / name).read_bytes()


class Cut(PipeSession):
    """A connection that breaks after some frames of content."""

    def send(self, header: Mapping[str, Any], body: bytes = b"") -> None:
        """Hang up in the middle of the large file."""
        if header.get("at") == 3 * PART_SIZE:
            raise ConnectionLost("CC-SSH-015")
        super().send(header, body)


def test_a_broken_transfer_is_continued(source: Path, tmp_path: Path) -> None:
    """What had arrived whole is not sent again; nothing half stays behind."""
    (source / "0.txt").write_text("0" * 70_000)
    scan = scan_source(source)
    cut = Cut(tmp_path / "work")
    with pytest.raises(ConnectionLost):
        send_tree(cut, TreeUpload(scan), node="gpu01")
    cut.close()
    assert list((tmp_path / "work/store/incoming").iterdir()) == []
    assert list(code_of(tmp_path / "work").parent.iterdir()) == []
    _, blobs = bring(scan, tmp_path / "work")
    sha = {entry.path: entry.content for entry in scan.manifest.entries}
    assert 0 < len(cut.blobs) == len(scan.manifest.blobs) - len(blobs)
    assert {sha["big.bin"]} <= set(blobs)
    assert listing(code_of(tmp_path / "work")) == listing(source)


class Killed(PipeSession):
    """A node whose process is killed, as by the power or the kernel, when a content of a large file is half there."""

    def send(self, header: Mapping[str, Any], body: bytes = b"") -> None:
        """Send a frame."""
        if header.get("at") == 2 * PART_SIZE:
            self.process.kill()
            self.process.wait()
        super().send(header, body)


def test_a_killed_transfer_is_continued(source: Path, tmp_path: Path) -> None:
    """Nothing had time to tidy up: contents that were whole count, the half one comes again."""
    (source / "0.txt").write_text("0" * 70_000)
    scan = scan_source(source)
    killed = Killed(tmp_path / "work")
    with pytest.raises(ConnectionLost):
        send_tree(killed, TreeUpload(scan), node="gpu01")
    killed.close()
    whole = {path.name for path in (tmp_path / "work/store").glob("??/*")}
    result, blobs = bring(scan, tmp_path / "work")
    sha = {entry.path: entry.content for entry in scan.manifest.entries}
    assert sha["0.txt"] in whole
    assert whole.isdisjoint(blobs)
    assert BIG <= result.sent < scan.manifest.size
    assert listing(code_of(tmp_path / "work")) == listing(source)


@pytest.mark.parametrize("name", ["run.sh", "big.bin"])
def test_a_file_that_changes_before_it_is_sent_is_named(source: Path, tmp_path: Path, name: str) -> None:
    """What was hashed is what is sent, or nothing starts."""
    scan = scan_source(source)
    content = (source / name).read_bytes()
    (source / name).write_bytes(bytes([content[0] ^ 1]) + content[1:])
    with session(tmp_path / "work") as opened, pytest.raises(SyncError, match=f"{name} changed") as caught:
        send_tree(opened, TreeUpload(scan), node="gpu01")
    assert caught.value.code == "CC-SYNC-006"
    assert not code_of(tmp_path / "work").exists()


def test_contents_are_packed_once_for_all_nodes(source: Path, tmp_path: Path) -> None:
    """After the first node has its contents, the others need the source no more."""
    scan = scan_source(source)
    bring(scan, tmp_path / "one")
    source.rename(tmp_path / "gone")
    result, _ = bring(scan, tmp_path / "two")
    assert result.sent > BIG
    assert listing(code_of(tmp_path / "two")) == listing(tmp_path / "gone")


def test_contents_that_exceed_memory_are_read_again(source: Path, tmp_path: Path) -> None:
    """Without room for packed contents every node is served from the source."""
    scan = scan_source(source)
    scan = replace(scan, contents=Contents(os.fsencode(scan.root), scan.manifest, cache_bytes=0))
    for name in ("one", "two"):
        bring(scan, tmp_path / name)
        assert listing(code_of(tmp_path / name)) == listing(source)


def test_without_a_run_only_the_store_is_filled(source: Path, tmp_path: Path) -> None:
    """`run: null` sends contents ahead of time, checked like any other."""
    scan = scan_source(source)
    assert bring(scan, tmp_path / "work", run=None)[0].tree == scan.manifest.hash
    assert not (tmp_path / "work/runs").exists()
    assert bring(scan, tmp_path / "work")[0].sent == 0


def test_an_empty_tree_arrives(tmp_path: Path) -> None:
    """No files at all is a tree too."""
    (tmp_path / "source").mkdir()
    result, _ = bring(scan_source(tmp_path / "source"), tmp_path / "work")
    assert result.files == 0
    assert list(code_of(tmp_path / "work").iterdir()) == []


class Liar:
    """A node whose disk does not keep what is written to it."""

    def send(self, header: Mapping[str, Any], body: bytes = b"") -> None:
        """Take anything."""

    def receive(self, timeout: float) -> Frame | None:
        """Report a tree that no one sent."""
        assert timeout > 0
        return Untrusted({"tree": "0" * 64, "files": 1, "bytes": 1, "differs": ["train.py"]}), b""


def test_another_tree_on_the_node_is_an_error_that_names_it(source: Path) -> None:
    """Node, hashes and the files that differ are in the error."""
    scan = scan_source(source)
    with pytest.raises(SyncError, match=r"differs from the local code in: train\.py") as caught:
        send_tree(Liar(), TreeUpload(scan), node="gpu02")
    assert (caught.value.code, caught.value.node) == ("CC-SYNC-003", "gpu02")
    assert scan.manifest.hash in caught.value.evidence


class Confused(Liar):
    """A node whose answers have the wrong shape."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.answer = answer

    def receive(self, timeout: float) -> Frame | None:
        """Say it."""
        assert timeout > 0
        return Untrusted(self.answer), b""


@pytest.mark.parametrize(
    "answer",
    [{"missing": 7}, {"missing": [7]}, {"missing": ["0" * 64]}, {"tree": None}, {"tree": "?", "differs": 7}],
    ids=str,
)
def test_an_answer_that_makes_no_sense_is_the_nodes(source: Path, answer: dict[str, Any]) -> None:
    """It is named as the node's, with what was reported; it is no bug of ours."""
    scan = scan_source(source)
    with pytest.raises(SyncError) as caught:
        send_tree(Confused(answer), TreeUpload(scan), node="gpu02")
    assert caught.value.code == ("CC-SYNC-008" if "missing" in answer else "CC-SYNC-003")
    with pytest.raises(SyncError, match="is invalid"):
        send_tree(Confused({"tree": scan.manifest.hash, "files": None}), TreeUpload(scan), node="gpu02")


class Insatiable(Liar):
    """A node that lacks everything, however often it is sent."""

    def __init__(self, scan: Any) -> None:
        self.missing = sorted(scan.manifest.blobs)
        self.sent = 0

    def send(self, header: Mapping[str, Any], body: bytes = b"") -> None:
        """Count the contents that come."""
        assert isinstance(body, bytes)
        self.sent += len(header.get("blobs") or ()) + bool(header.get("last"))

    def receive(self, timeout: float) -> Frame | None:
        """Ask again."""
        assert timeout > 0
        return Untrusted({"missing": self.missing}), b""


def test_a_node_that_asks_again_and_again_is_given_up(source: Path) -> None:
    """Each content leaves as often as an honest node may look for it, and no more."""
    scan = scan_source(source)
    node = Insatiable(scan)
    with pytest.raises(SyncError, match="is invalid") as caught:
        send_tree(node, TreeUpload(scan), node="gpu02")
    assert (caught.value.code, caught.value.node) == ("CC-SYNC-008", "gpu02")
    assert 0 < node.sent <= 3 * len(scan.manifest.blobs)


class Stuck(Liar):
    """A node whose work directory hangs: it is alive and gets nowhere."""

    def receive(self, timeout: float) -> Frame | None:
        """Beat, always at the same step."""
        assert timeout > 0
        return Untrusted({"beat": 1, "steps": 7}), b""


def test_a_disk_that_hangs_is_distinguished_from_a_slow_one(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beats alone are no progress."""
    monkeypatch.setattr(conversation, "STALL", 0.05)
    with pytest.raises(SyncError, match="no progress on the node") as caught:
        send_tree(Stuck(), TreeUpload(scan_source(source)), node="gpu02")
    assert (caught.value.code, caught.value.node) == ("CC-SYNC-012", "gpu02")


def small_disk(place: Path) -> list[str]:
    """Make a command that runs a program with 4 MB of disk at `place`, and lists in the end what is there."""
    place.mkdir()
    script = 'd=$1; shift; mount -t tmpfs -o size=4m tmpfs "$d" && "$@"; cd "$d" && find . -type f >&2'
    how = "-m" if os.geteuid() == 0 else "-rm"
    trial = ["unshare", how, "true"]
    if shutil.which("unshare") is None or subprocess.run(trial, capture_output=True, check=False).returncode:
        pytest.skip("mount namespaces are not allowed here")
    return ["unshare", how, "sh", "-c", script, "sh", str(place)]


@pytest.mark.parametrize(("size", "stored"), [(6_000_000, 0), (3_000_000, 1)], ids=["store", "copy"])
def test_a_full_disk_leaves_nothing_half(tmp_path: Path, size: int, stored: int) -> None:
    """The path is named; no part of a file and no part of a tree stays, whole contents do."""
    (tmp_path / "source").mkdir()
    (tmp_path / "source/data.bin").write_bytes(secrets.token_bytes(size))
    work = tmp_path / "disk/work"
    opened = PipeSession(work, command=small_disk(tmp_path / "disk"), stderr=subprocess.PIPE)
    try:
        with pytest.raises(NodeError, match="No space left") as caught:
            send_tree(opened, TreeUpload(scan_source(tmp_path / "source")), node="gpu01")
        opened.hang_up()
        assert opened.process.stderr is not None
        left = opened.process.stderr.read().decode().splitlines()
    finally:
        opened.close()
    assert caught.value.code == "CC-DISK-001"
    assert str(work) in caught.value.message
    assert len(left) == stored
    assert all(path.startswith("./work/store/") and "incoming" not in path for path in left)
