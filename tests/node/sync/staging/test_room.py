"""Room for files, where a file system of a few inodes, or with a quota, is not at hand."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from clusterctl.node.runtime.stream import VerbError
from clusterctl.node.sync.staging.room import check_room
from clusterctl.protocol.manifest import TreeEntry


def test_inodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file needs one; a file system without a count of them has no limit."""
    rows = [TreeEntry(f"deep/{number}", "file", 0o644, "a" * 64, 1) for number in range(5)]
    found = SimpleNamespace(f_bavail=1000, f_frsize=4096, f_files=10, f_favail=4)
    monkeypatch.setattr(os, "statvfs", lambda _: found)
    with pytest.raises(VerbError, match=f"no room at {tmp_path}: 5 inodes are needed, 4 are free"):
        check_room(os.fsencode(tmp_path), rows, 5, str(tmp_path / "probe"))
    found.f_files = 0
    check_room(os.fsencode(tmp_path), rows, 5, str(tmp_path / "probe"))
    assert list(tmp_path.iterdir()) == []


def test_a_used_up_quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk has room, and this account has none: the first write shows it, and leaves nothing."""

    def refuse(*_: object) -> int:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(os, "write", refuse)
    rows = [TreeEntry("file", "file", 0o644, "a" * 64, 1)]
    with pytest.raises(VerbError, match=f"no room at {tmp_path}: 0.0MB are needed: Disk quota exceeded"):
        check_room(os.fsencode(tmp_path), rows, 1, str(tmp_path / "probe"))
    assert list(tmp_path.iterdir()) == []
