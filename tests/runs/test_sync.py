"""A source tree goes to a node through the real payload, over pipes instead of SSH."""

from __future__ import annotations

import json
import os
import secrets
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from clusterctl.errors import ConnectionLost, NodeError
from clusterctl.plans.shell import BOOT
from clusterctl.runs import payload
from clusterctl.runs.frames import Frame, FrameReader, encode_frame
from clusterctl.runs.source import ScanResult, scan_source
from clusterctl.runs.sync import Synced, send_tree

RUN = "digits-20261120T110000-ab12"
BIG = 20_000_000
AWKWARD = ["a b.txt", "quo'te\".txt", "new\nline", "-rf", "$(touch x)", "caf\u00e9", "cafe\u0301", "\u4e2d"]


class PipeSession:
    """The sync verb in a process of its own; what it reports as wrong is raised, as a session does."""

    def __init__(self, workdir: Path, *, run: str | None = RUN, node: str = "gpu01", rank: int = 0) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", BOOT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        sentinel = secrets.token_hex(8)
        self._reader = FrameReader(sentinel)
        self._arrived: list[Frame] = []
        self.blobs: list[str] = []
        request = {"workdir": str(workdir), "run": run, "node": node, "node_rank": rank}
        header = json.dumps({"sentinel": sentinel, "verb": "sync", "request": request}).encode()
        for part in (payload.boot(), header, payload.bundle("sync")):
            self._write(b"%d\n" % len(part) + part)

    def _write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self.process.stdin.write(rest) or 0 :]
        except BrokenPipeError:
            while self.receive(10.0) is not None:
                pass
            raise ConnectionLost("the pipe broke", code="CC-SSH-015") from None

    def send(self, header: Mapping[str, Any], body: bytes = b"") -> None:
        """Send a frame."""
        self.blobs += [header["blob"]] if header.get("last") else [sha for sha, _ in header.get("blobs", ())]
        self._write(encode_frame(header, body))

    def receive(self, timeout: float) -> Frame | None:
        """Wait for a frame; raise what the node reports as wrong."""
        assert self.process.stdout is not None
        while not self._arrived:
            assert select.select([self.process.stdout], [], [], timeout)[0], "no frame in time"
            piece = os.read(self.process.stdout.fileno(), 1 << 16)
            if not piece:
                return None
            self._arrived += self._reader.feed(piece)
        header, body = self._arrived.pop(0)
        if "error" in header:
            raise NodeError(header["error"]["message"], code=header["error"]["code"])
        return None if header.get("end") else (header, body)

    def close(self) -> None:
        """Hang up and wait for the end of the verb."""
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        self.process.wait(10)


@contextmanager
def session(workdir: Path, **how: Any) -> Iterator[PipeSession]:
    """Open a session that is closed in the end."""
    opened = PipeSession(workdir, **how)
    try:
        yield opened
    finally:
        opened.close()


def bring(scan: ScanResult, workdir: Path, **how: Any) -> tuple[Synced, list[str]]:
    """Send a tree; give what was reported and which contents went over the wire."""
    with session(workdir, **how) as opened:
        return send_tree(opened, scan, node=how.get("node", "gpu01")), opened.blobs


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
    seen: list[int] = []
    with session(tmp_path / "work") as opened:
        result = send_tree(opened, scan, node="gpu01", progress=seen.append)
    assert listing(code_of(tmp_path / "work")) == listing(source)
    assert result.tree == scan.manifest.hash
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
