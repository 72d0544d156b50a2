"""Files to and between nodes, with the real verb `files` over pipes, and what a hostile node may send."""

from __future__ import annotations

import json
import os
import stat
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pipenodes import PipeSession
from waiting import HANG, wait_until

from clusterctl.client.files.node_files import FileRequest, NodeFiles, open_taking, relayed
from clusterctl.client.files.target_dir import TargetDirectory, prepare_target
from clusterctl.client.rpc.frames import Frame
from clusterctl.client.rpc.session import Interpreter
from clusterctl.client.sync.contents import Contents
from clusterctl.client.sync.distribution import Distribution, TransferAddress
from clusterctl.client.sync.scan import scan_files
from clusterctl.client.sync.upload import SentFiles, TreeUpload, send_files
from clusterctl.errors import ClusterctlError, NodeError, SyncError, UsageError
from clusterctl.plans.sync.listed_files import MAX_NAMES, FileSource, ListedEntry, RelayPlan, plan_relay
from clusterctl.plans.sync.manifest import make_manifest
from clusterctl.protocol.manifest import TreeEntry
from clusterctl.protocol.messages.verbs import TakeRequest
from clusterctl.protocol.untrusted import Untrusted

SHA = "a" * 64


@contextmanager
def node(home: Path, **request: Any) -> Iterator[Any]:
    """Open the verb on a node whose work directory is below a folder."""
    opened = PipeSession(home, files={"run": "", **request})
    try:
        yield opened
    finally:
        opened.close()


def taking(home: Path, target: Path | str, name: str, **how: Any) -> Any:
    """Let a node take files."""
    order = {"folder": False, "overwrite": False, "private": False, "staged": None, **how}
    return node(home, path=str(target), name=name, **order)


@contextmanager
def listing(
    home: Path, path: Path | str, name: str = "", *, run: str = "", hashed: bool = True
) -> Iterator[tuple[NodeFiles, Sequence[ListedEntry]]]:
    """Let a node list what is at a path."""
    places = [FileSource("path" if name else "inside", str(path), name, modes=True)]
    request = {"most": 1000, "hashed": hashed, "shared_home_probe": "", "mark": ""}
    sources = [[place.kind, place.path] for place in places]
    with node(home, sources=sources, run=run, **request) as session:
        files = NodeFiles(session, "gpu01")
        yield files, files.receive_listing(places, 1000, MAX_NAMES, hashed=hashed).entries


def send(folder: Path, source: Path, target: Path | str, name: str, **how: Any) -> SentFiles:
    """Copy a tree of this machine to a node."""
    with taking(folder, target, name, **how) as session:
        return send_files(session, TreeUpload(scan_files(str(source), name)), node="gpu01")


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


def test_many_files_to_a_node(client: Any, server: Any, tmp_path: Path) -> None:
    """The node names all that it lacks, twenty thousand contents, in one frame."""
    manifest = make_manifest(
        TreeEntry(f"{number}", "file", 0o644, f"{number:064x}", 1) for number in range(20_000)
    )
    to = server.node("gpu01", workdir=str(tmp_path / "work"))
    request: TakeRequest = {
        "workdir": to.workdir,
        "node": to.name,
        "run": "",
        "path": str(tmp_path),
        "name": "",
        "folder": True,
        "overwrite": False,
        "private": False,
        "provide": None,
        "staged": None,
    }
    python = Interpreter(sys.executable, None)
    with open_taking(client.connect(to), python, request, manifest) as session:
        session.send({"manifest": True}, Contents(b"", manifest).listing)
        while (frame := session.receive(HANG)) is not None and "missing" not in frame[0]:
            pass
        assert frame is not None
        assert frame[0].length("missing") == 20_000


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
    with pytest.raises(NodeError, match="tree/sub is a link"):
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
    with taking(tmp_path, tmp_path / "there", "big") as session:
        session.send({"manifest": True}, zlib.compress(json.dumps(rows).encode()))
        header = next(frame for frame in iter(lambda: session.receive(HANG)[0], None) if "missing" in frame)
        assert header.texts("missing", 5) == (SHA,)
        session.send({"blob": SHA, "at": 0, "last": False}, zlib.compress(bytes(1_000_000)))
        wait_until(lambda: len(list((tmp_path / "there").iterdir())) == 1, "a part has arrived")
        assert not (tmp_path / "there/big").exists()
    assert list((tmp_path / "there").iterdir()) == []


def test_from_node_to_node_through_this_machine(tmp_path: Path, tree: Path) -> None:
    """A receiver that fails in the middle does not spoil the transfer for the next."""
    key = tmp_path / "tree/key"
    key.touch(0o600)
    with listing(tmp_path, tree, "tree") as (source, entries):
        plan = plan_relay(entries)
        assert plan.left_out == ("tree/pipe",)
        files = relayed(source, plan, plan.manifest)
        broken = files.contents.shipments(list(plan.manifest.blobs))
        next(iter(broken))
        broken.close()  # type: ignore[attr-defined]  # a generator
        (tmp_path / "there").mkdir()
        with taking(tmp_path, tmp_path / "there", "tree", private=files.private) as target:
            done = send_files(target, TreeUpload(files), node="gpu02")
    assert done.files == 6
    assert content_of(tmp_path / "there/tree") == content_of(tree)
    assert (tmp_path / "there/tree/a").stat().st_mode & 0o777 == 0o600


def test_what_a_failed_receiver_did_not_request_is_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one waits only for the files that were requested together, and gets all that it lacks."""
    (tmp_path / "tree").mkdir()
    for number in range(450):
        (tmp_path / f"tree/{number}").write_text(f"{number}")
    orders: list[int] = []
    honest = PipeSession.send

    def send(self: PipeSession, header: Mapping[str, Any], body: bytes = b"") -> None:
        orders.extend([len(header["fetch"])] if "fetch" in header else ())
        honest(self, header, body)

    monkeypatch.setattr(PipeSession, "send", send)
    with listing(tmp_path, tmp_path / "tree", "tree") as (source, entries):
        plan = plan_relay(entries)
        contents = relayed(source, plan, plan.manifest).contents
        broken = contents.shipments(list(plan.manifest.blobs))
        next(iter(broken))
        broken.close()  # type: ignore[attr-defined]  # a generator
        sent = [shipment.size for shipment in contents.shipments(list(plan.manifest.blobs))]
    assert (orders, len(sent)) == ([200, 200, 200, 50], 450)


@pytest.mark.parametrize("hashed", [False, True])
def test_a_list_of_full_batches(tmp_path: Path, hashed: bool) -> None:
    """A node sends a thousand rows together."""
    (tmp_path / "tree").mkdir()
    for number in range(2100):
        (tmp_path / f"tree/{number}").touch()
    with node(
        tmp_path,
        sources=[["path", str(tmp_path / "tree")]],
        most=3000,
        hashed=hashed,
        shared_home_probe="",
        mark="",
    ) as session:
        place = FileSource("path", str(tmp_path / "tree"), "tree", modes=True)
        found = NodeFiles(session, "gpu01").receive_listing([place], 3000, MAX_NAMES, hashed=hashed)
    assert len(found.entries) == 2100


def test_from_node_to_node_directly(tmp_path: Path, tree: Path) -> None:
    """The source gives at a port; nothing passes here."""
    with listing(tmp_path, tree, "tree") as (source, entries):
        plan = plan_relay(entries)
        port = source.provide({"address": "127.0.0.1", "ports": None, "token": "t"})
        assert port
        with taking(tmp_path, f"{tmp_path}/there", "tree", folder=True) as target:
            target.send({"manifest": True}, relayed(source, plan, plan.manifest).contents.listing)
            while "missing" not in (frame := target.receive(HANG))[0]:
                pass
            target.send({"source": {"address": "127.0.0.1", "port": port, "token": "t", "index": 1}})
            while "copied" not in (frame := target.receive(HANG))[0]:
                pass
    assert frame[0].record("copied").count("files") == 5
    assert content_of(tmp_path / "there/tree") == content_of(tree)


@pytest.mark.parametrize("size", [3_000_000, 2_000_000, 4_000_000])
def test_a_source_that_changes_meanwhile_is_named(tmp_path: Path, tree: Path, size: int) -> None:
    """The receiver has nothing under its name; who sent it, and which file it is, are in what is reported."""
    notices: list[str] = []
    chain = Distribution(
        "tree", {name: TransferAddress("127.0.0.1") for name in ("gpu01", "gpu02")}, notices.append
    )
    with listing(tmp_path, tree, "tree") as (source, entries):
        plan = plan_relay(entries)
        offer = chain.offer("gpu01", 1)
        assert offer is not None
        port = source.provide(offer)
        assert port is not None
        chain.add_source("gpu01", port)
        (tree / "sub/big").write_bytes(os.urandom(size))
        upload = TreeUpload(relayed(source, plan, plan.manifest), None, chain)
        provide = chain.offer("gpu02", 1)
        with (
            taking(tmp_path, tmp_path / "there", "tree", folder=True, provide=provide) as target,
            pytest.raises(SyncError, match="gpu01:tree/sub/big changed while it was being read") as caught,
        ):
            send_files(target, upload, node="gpu02")
    assert caught.value.code == "CC-SYNC-006"
    assert len(notices) == 1
    assert notices[0].startswith("gpu02 could not fetch files from gpu01 (")
    assert not (tmp_path / "there/tree/sub/big").exists()


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
    with listing(tmp_path, tree, "tree", hashed=False) as (_, entries):
        pass
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
    with pytest.raises(NodeError) as found, listing(tmp_path, tmp_path / "last.pt"):
        pass
    assert (found.value.code, "last.pt is not a directory" in str(found.value)) == ("CC-COPY-003", True)


def test_paths_that_are_not_there(tmp_path: Path) -> None:
    """Here and on a node."""
    with pytest.raises(UsageError, match="No such file"):
        scan_files(str(tmp_path / "nope"), "nope")
    with pytest.raises(NodeError, match="nope"), listing(tmp_path, tmp_path / "nope", "nope"):
        pass


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
        with listing(tmp_path, path, "x", run="r-1") as (_, entries):
            assert [(entry.path, entry.size) for entry in entries] == [("x", size)]


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


def listed(*rows: list[object]) -> list[tuple[Mapping[str, Any], bytes]]:
    """Render what a node lists."""
    return [
        ({"rows": len(rows)}, zlib.compress(json.dumps(rows).encode())),
        ({"listed": len(rows), "more": False}, b""),
    ]


def relay_of(session: Any) -> tuple[NodeFiles, RelayPlan]:
    """Receive the list of a node of the test's own."""
    files, place = NodeFiles(session, "gpu01"), FileSource("path", "d", "d", modes=True)
    return files, plan_relay(files.receive_listing([place], 1000, MAX_NAMES, hashed=True).entries)


ONE = [0, "x", "file", 10, 1, 1, 1, SHA, 0o644]


def test_what_a_receiver_leaves_is_read_only_for_the_next() -> None:
    """A full disk there is reported at once, not after a terabyte has come here that no node takes."""
    script = Script(*listed(ONE), ({"file": 0, "at": 0, "packed": False}, b"0123"))
    giving, plan = relay_of(script)
    shipments = relayed(giving, plan, plan.manifest).contents.shipments([SHA])
    assert next(iter(shipments)).size == 4
    shipments.close()  # type: ignore[attr-defined]  # a generator
    assert script.received == 3
    with pytest.raises(ClusterctlError, match="other data than announced"):
        next(giving.fetch([FileRequest(plan.sources[SHA])]))
