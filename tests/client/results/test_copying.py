"""Files to and between nodes, with the real verb `copy` over pipes, and what a hostile node may send."""

from __future__ import annotations

import itertools
import json
import os
import stat
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pipenodes import PipeSession
from waiting import HANG, wait_until

from clusterctl.client.results import file_receiver
from clusterctl.client.results.copying import GivingNode, relayed, scan_files
from clusterctl.client.results.pull import list_results
from clusterctl.client.results.target_dir import TargetDirectory, prepare_target
from clusterctl.client.rpc.frames import Frame
from clusterctl.client.sync.upload import SentFiles, TreeUpload, send_files
from clusterctl.errors import ClusterctlError, NodeError, UsageError
from clusterctl.protocol.untrusted import Untrusted

ASKED = {"run": "", "most": 1000, "folder": False, "overwrite": False, "private": False}
SHA = "a" * 64


@contextmanager
def node(home: Path, do: str, path: Path | str, name: str = "", **how: Any) -> Iterator[Any]:
    """Open the verb on a node whose work directory is below a folder."""
    request = {**ASKED, "do": do, "sources": [[str(path), name]], **how}
    opened = PipeSession(home, copy=request)
    try:
        yield opened
    finally:
        opened.close()


def send(folder: Path, source: Path, target: Path | str, name: str, **how: Any) -> SentFiles:
    """Copy a tree of this machine to a node."""
    with node(folder, "take", target, name, **how) as session:
        return send_files(session, TreeUpload(scan_files(str(source), name).scan), node="gpu01")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A directory with all that can be in one."""
    top = tmp_path / "tree"
    (top / "sub/empty").mkdir(parents=True)
    (top / "a").write_text("first")
    (top / "twin").write_text("first")
    (top / "none").touch()
    (top / "sub/big").write_bytes(os.urandom(3_000_000))
    (top / "run").write_text("#!/bin/sh")
    (top / "run").chmod(0o755)
    (top / "link").symlink_to("a")
    os.mkfifo(top / "pipe")
    return top


def content_of(top: Path) -> dict[str, Any]:
    """Read a tree."""
    return {
        path.relative_to(top).as_posix(): path.readlink()
        if path.is_symlink()
        else path.read_bytes()
        if path.is_file()
        else None
        for path in top.rglob("*")
        if path.name != "pipe"
    }


def test_a_directory_to_a_node(tmp_path: Path, tree: Path) -> None:
    """Into a directory under its name, to a new name; a second time nothing travels, and what differs is kept."""
    (tmp_path / "there").mkdir()
    first = send(tmp_path, tree, tmp_path / "there", "tree")
    assert (first.files, first.unchanged, first.kept_count) == (5, 0, 0)
    assert content_of(tmp_path / "there/tree") == content_of(tree)
    assert os.access(tmp_path / "there/tree/run", os.X_OK)
    send(tmp_path, tree, tmp_path / "there/other", "tree")
    assert content_of(tmp_path / "there/other") == content_of(tree)

    (tmp_path / "there/tree/a").write_text("mine")
    second = send(tmp_path, tree, tmp_path / "there", "tree")
    assert (second.files, second.unchanged, second.kept, second.sent) == (0, 4, ("tree/a",), 0)
    assert (tmp_path / "there/tree/a").read_text() == "mine"
    third = send(tmp_path, tree, tmp_path / "there", "tree", overwrite=True)
    assert (third.files, third.kept_count) == (1, 0)
    assert content_of(tmp_path / "there/tree") == content_of(tree)


def test_nothing_is_written_through_a_link_of_the_destination(tmp_path: Path, tree: Path) -> None:
    """Not even one that was there before."""
    (tmp_path / "there/tree").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "there/tree/sub").symlink_to(tmp_path / "outside")
    with pytest.raises(NodeError, match="sub is not a directory"):
        send(tmp_path, tree, tmp_path / "there", "tree", overwrite=True)
    assert list((tmp_path / "outside").iterdir()) == []


@pytest.mark.parametrize(
    ("target", "how", "text"),
    [
        ("no/dir", {}, "no does not exist"),
        ("file", {}, "file is not a directory"),
        ("file/x", {}, "does not exist"),
    ],
)
def test_destinations_that_cannot_be(tmp_path: Path, tree: Path, target: str, how: Any, text: str) -> None:
    """The node names the path."""
    (tmp_path / "file").touch()
    with pytest.raises(NodeError, match=text):
        send(tmp_path, tree, tmp_path / target, "tree", **how)


def test_a_client_that_leaves_leaves_no_half_file(tmp_path: Path) -> None:
    """What has come of a file has no name there, and is removed."""
    (tmp_path / "there").mkdir()
    rows = [["big", "file", 0o644, SHA, 3_000_000]]
    with node(tmp_path, "take", tmp_path / "there", "big") as session:
        session.send({"manifest": True}, zlib.compress(json.dumps(rows).encode()))
        header = next(frame for frame in iter(lambda: session.receive(HANG)[0], None) if "missing" in frame)
        assert header.texts("missing", 5) == (SHA,)
        session.send({"blob": SHA, "part": 0, "last": False}, zlib.compress(bytes(1_000_000)))
        wait_until(lambda: len(list((tmp_path / "there").iterdir())) == 1, "a part has arrived")
        assert not (tmp_path / "there/big").exists()
    assert list((tmp_path / "there").iterdir()) == []


def test_from_node_to_node_through_this_machine(tmp_path: Path, tree: Path) -> None:
    """A receiver that fails in the middle does not spoil the transfer for the next."""
    key = tmp_path / "tree/key"
    key.touch(0o600)
    with node(tmp_path, "give", tree, "tree") as source:
        giving = GivingNode(source, "gpu01", ["tree"])
        assert giving.tree.left_out == ("tree/pipe",)
        files = relayed(giving, giving.manifest)
        broken = files.scan.contents.shipments(list(giving.manifest.blobs))
        next(iter(broken))
        broken.close()  # type: ignore[attr-defined]  # a generator
        (tmp_path / "there").mkdir()
        with node(tmp_path, "take", tmp_path / "there", "tree", private=files.private) as target:
            done = send_files(target, TreeUpload(files.scan), node="gpu02")
    assert done.files == 6
    assert content_of(tmp_path / "there/tree") == content_of(tree)
    assert (tmp_path / "there/tree/a").stat().st_mode & 0o777 == 0o600


def test_from_node_to_node_directly(tmp_path: Path, tree: Path) -> None:
    """The source gives at a port; nothing passes here."""
    with node(tmp_path, "give", tree, "tree") as source:
        giving = GivingNode(source, "gpu01", ["tree"])
        port = giving.provide({"address": "127.0.0.1", "ports": None, "token": "t"})
        assert port
        with node(tmp_path, "take", f"{tmp_path}/there", "tree", folder=True) as target:
            target.send({"manifest": True}, relayed(giving, giving.manifest).scan.contents.listing)
            while "missing" not in (frame := target.receive(HANG))[0]:
                pass
            target.send({"source": {"address": "127.0.0.1", "port": port, "token": "t"}})
            while "copied" not in (frame := target.receive(HANG))[0]:
                pass
    assert frame[0].record("copied").count("files") == 5
    assert content_of(tmp_path / "there/tree") == content_of(tree)


def test_a_link_is_replaced_if_that_is_wished(tmp_path: Path, tree: Path) -> None:
    """As a file is; a directory of that name stays."""
    send(tmp_path, tree, tmp_path / "there", "tree")
    for changed in ("link", "second"):
        (tree / changed).unlink(missing_ok=True)
        (tree / changed).symlink_to("run")
    (tmp_path / "there/second").mkdir()
    kept = send(tmp_path, tree, f"{tmp_path}/there/", "")
    assert kept.kept == ("link", "second")
    replaced = send(tmp_path, tree, f"{tmp_path}/there/", "", overwrite=True)
    assert (replaced.kept, (tmp_path / "there/link").readlink()) == (("second",), Path("run"))
    assert {path.name for path in (tmp_path / "there").iterdir()} == {
        path.name for path in tree.iterdir()
    } - {"pipe"}


def test_a_name_that_is_not_text(tmp_path: Path) -> None:
    """Of the directory that is named as of a file in it."""
    odd = os.fsdecode(b"caf\xe9")
    (tmp_path / odd).mkdir()
    (tmp_path / odd / "x").touch()
    with pytest.raises(UsageError, match=r"caf\\xe9") as found:
        scan_files(str(tmp_path / odd), odd)
    assert found.value.code == "CC-SYNC-004"


def test_who_may_do_what_with_a_file_that_a_node_sends(tmp_path: Path, tree: Path) -> None:
    """Its owner may write and others may not, and no setuid bit arrives."""
    (tree / "run").chmod(0o4775)
    (tree / "a").chmod(0o600)
    with node(tmp_path, "send", tree, "tree") as session:
        entries = list_results(session, 1000, None, "gpu01").entries
    modes = {entry.path: entry.mode for entry in entries}
    prepare_target(tmp_path / "here")
    sent, run = TargetDirectory(tmp_path / "here", "", "cp-gpu01"), tmp_path / "here/part"
    for entry in entries:
        if entry.kind == "file":
            run.touch()
            sent.install(run, entry, SHA)
    sent.close()

    assert [modes[f"tree/{name}"] for name in ("run", "a", "link")] == [0o775, 0o600, None]
    here = tmp_path / "here/tree"
    assert [stat.S_IMODE((here / name).stat().st_mode) for name in ("run", "a", "twin")] == [
        0o755,
        0o600,
        0o644,
    ]


def test_what_is_in_a_file_is_nothing(tmp_path: Path) -> None:
    """Else `--gather` of a file would make a directory of its name on all other nodes."""
    (tmp_path / "last.pt").touch()
    with node(tmp_path, "give", tmp_path / "last.pt") as source, pytest.raises(NodeError) as found:
        GivingNode(source, "gpu01", [""])
    assert (found.value.code, "last.pt is not a directory" in str(found.value)) == ("CC-COPY-003", True)


def test_paths_that_are_not_there(tmp_path: Path) -> None:
    """Here and on a node."""
    with pytest.raises(UsageError, match="No such file"):
        scan_files(str(tmp_path / "nope"), "nope")
    with node(tmp_path, "give", tmp_path / "nope", "nope") as source, pytest.raises(NodeError, match="nope"):
        GivingNode(source, "gpu01", ["nope"])


def test_paths_of_a_run(tmp_path: Path) -> None:
    """Relative ones begin in its code; `${output_dir}` is that of its job."""
    rundir = tmp_path / "runs/r-1/0-gpu01"
    (rundir / "code").mkdir(parents=True)
    (rundir / "code/log").write_text("x")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/last.pt").write_text("yy")
    spec = {"run": "r-1", "node": "gpu01", "env": {}, "output_dir": str(tmp_path / "out")}
    (rundir / "spec.json").write_text(json.dumps(spec))
    for path, size in (("log", 1), ("${output_dir}/last.pt", 2)):
        with node(tmp_path, "give", path, "x", run="r-1") as source:
            assert [entry.size for entry in GivingNode(source, "gpu01", ["x"]).manifest.entries] == [size]


class Script:
    """A node that sends these frames, whatever it is asked."""

    def __init__(self, *frames: tuple[Mapping[str, Any], bytes]) -> None:
        self._frames = list(frames)
        self.received = 0

    def send(self, header: Mapping[str, Any], body: bytes = b"") -> None:
        """Ignore it."""

    def receive(self, timeout: float) -> Frame | None:
        """Give the next; the last one for ever."""
        del timeout
        self.received += 1
        header, body = self._frames.pop(0) if len(self._frames) > 1 else self._frames[0]
        return Untrusted(header), body


def listing(*rows: list[object]) -> list[tuple[Mapping[str, Any], bytes]]:
    """Render what a node lists."""
    return [
        ({"rows": len(rows)}, zlib.compress(json.dumps(rows).encode())),
        ({"listed": len(rows), "more": False}, b""),
    ]


ONE = ["d/x", "file", 0o644, SHA, 10]


@pytest.mark.parametrize(
    "frames",
    [
        [({"rows": 1}, b"no zlib")],
        [({"rows": 1}, zlib.compress(bytes(5 << 20)))],
        [({"rows": 1}, zlib.compress(b"{}"))],
        [({"blob": SHA, "last": True}, zlib.compress(b"early"))],
        [({"listed": 1, "more": True}, b"")],
        listing(["../x", "file", 0o644, SHA, 10]),
        listing([".bashrc", "file", 0o644, SHA, 10]),
    ],
)
def test_a_hostile_list(frames: list[Any]) -> None:
    """It is an error of that node."""
    with pytest.raises(ClusterctlError):
        relayed(giving := GivingNode(Script(*frames), "gpu01", ["d"]), giving.manifest)  # type: ignore[arg-type]  # a node by shape


@pytest.mark.parametrize(
    "frame",
    [
        ({"blob": SHA, "last": False}, zlib.compress(b"")),
        ({"blob": SHA, "last": False}, zlib.compress(b"0123")),
        ({"blob": SHA, "last": True}, zlib.compress(b"0123")),
        ({"blob": "b" * 64, "last": True}, zlib.compress(b"0123")),
        ({"blobs": [[SHA, 0]]}, zlib.compress(b"")),
        ({"blobs": []}, zlib.compress(b"")),
        ({"blob": SHA, "last": False}, zlib.compress(bytes(3 << 20))),
        ({"blob": SHA, "last": False}, b"no zlib"),
    ],
)
def test_an_endless_or_wrong_stream_ends(frame: Any) -> None:
    """More than was announced, nothing at all again and again, or what was not requested."""
    giving = GivingNode(Script(*listing(ONE), frame), "gpu01", ["d"])  # type: ignore[arg-type]  # a node by shape
    with pytest.raises(ClusterctlError):
        for _ in giving.fetch([SHA]):
            pass


def test_what_a_receiver_leaves_is_read_only_for_the_next() -> None:
    """A full disk there is reported at once, not after a terabyte has come here that no node takes."""
    script = Script(*listing(ONE), ({"blob": SHA, "last": False}, zlib.compress(b"0123")))
    giving = GivingNode(script, "gpu01", ["d"])  # type: ignore[arg-type]  # a node by shape
    shipments = relayed(giving, giving.manifest).scan.contents.shipments([SHA])
    assert next(iter(shipments)).size == 4
    shipments.close()  # type: ignore[attr-defined]  # a generator
    assert script.received == 3
    with pytest.raises(ClusterctlError, match="other data than announced"):
        next(giving.fetch([SHA]))


class Dripping:
    """A node that gives a large file a byte at a time, each just in time by a clock of the test's own."""

    def __init__(self) -> None:
        row = ["a", "file", 0o644, SHA, 1 << 30]
        listing = [
            ({"rows": 1}, zlib.compress(json.dumps([row]).encode())),
            ({"listed": 1, "more": False}, b""),
        ]
        drop = {"blob": SHA, "part": 0, "last": False}, zlib.compress(b"x")
        self.now = 0.0
        self._frames = itertools.chain(listing, itertools.repeat(drop))

    def send(self, header: Mapping[str, Any], body: bytes = b"") -> None:
        """Take anything."""

    def receive(self, timeout: float) -> Frame | None:
        """Answer late."""
        assert timeout > 0
        self.now += 19.0
        header, body = next(self._frames)
        return Untrusted(header), body


def test_a_node_that_hardly_gives_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the node that takes would wait with it for ever."""
    session: Any = Dripping()
    monkeypatch.setattr(file_receiver, "time", SimpleNamespace(monotonic=lambda: session.now))
    giving = GivingNode(session, "gpu02", [""])
    with pytest.raises(NodeError) as caught:
        list(giving.fetch([SHA]))
    assert (caught.value.code, caught.value.node) == ("CC-PULL-006", "gpu02")
    assert session.now < 3600
