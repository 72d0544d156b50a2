"""Room for files, where a file system of a few inodes, or with a quota, is not at hand."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from keepers import small_disk

from clusterctl.node.runtime.stream import VerbError
from clusterctl.node.sync.staging.room import check_room, reserve
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


def test_a_quota_that_is_too_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk says that it has room, and does not give it: nothing was written, and nothing is left."""
    found = SimpleNamespace(f_bavail=10**9, f_frsize=4096, f_files=0, f_favail=0)
    rows = [TreeEntry("file", "file", 0o644, "a" * 64, 1)]
    with small_disk(tmp_path, 1, "256m") as disk:
        free = os.statvfs(disk).f_bfree
        with monkeypatch.context() as patch:
            patch.setattr(os, "statvfs", lambda _: found)
            check_room(os.fsencode(disk), rows, 200 << 20, str(disk / "probe"))
            with pytest.raises(
                VerbError, match=f"no room at {disk}: 314.6MB are needed: No space left on device"
            ):
                check_room(os.fsencode(disk), rows, 300 << 20, str(disk / "probe"))
        assert list(disk.iterdir()) == []
        assert os.statvfs(disk).f_bfree == free


def test_a_file_system_that_cannot_reserve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not held against it that it cannot; nor that a Python has no ctypes."""
    opened = os.open
    probe = tmp_path / "probe"
    probe.touch()
    monkeypatch.setattr(os, "open", lambda *_: opened("/proc/self/comm", os.O_WRONLY))
    assert reserve(str(probe), 1 << 20) == ""
    monkeypatch.setattr(os, "open", opened)
    assert not probe.exists()
    with small_disk(tmp_path, 1, "1m") as disk:
        assert reserve(str(disk / "probe"), 2 << 20) == "No space left on device"
        monkeypatch.setitem(sys.modules, "ctypes", None)
        assert reserve(str(disk / "probe"), 2 << 20) == ""
        assert list(disk.iterdir()) == []


def test_a_quota_of_inodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one more file can be made, and nothing could be written to it."""

    def refuse(*_: object) -> int:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    rows = [TreeEntry("file", "file", 0o644, "a" * 64, 1)]
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(VerbError, match=f"no room at {tmp_path}: 0.0MB are needed: Disk quota exceeded"):
        check_room(os.fsencode(tmp_path), rows, 1, str(tmp_path / "probe"))


def test_a_file_system_that_removes_no_open_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of those that a host shares with a machine in it: the probe goes once it is closed."""
    unlinked, closed = os.unlink, os.close
    opened = []

    def refuse(path: str) -> None:
        if opened:
            raise OSError(errno.ETXTBSY, os.strerror(errno.ETXTBSY))
        unlinked(path)

    monkeypatch.setattr(os, "open", lambda *given, was=os.open: opened.append(was(*given)) or opened[-1])
    monkeypatch.setattr(os, "close", lambda number: closed(number) or opened.remove(number))
    monkeypatch.setattr(os, "unlink", refuse)
    assert reserve(str(tmp_path / "probe"), 1) == ""
    assert list(tmp_path.iterdir()) == []
