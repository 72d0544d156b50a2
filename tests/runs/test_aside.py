"""Files that are written aside, and folders of ours that stay in bounds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clusterctl.runs import statcache
from clusterctl.runs.aside import keep_newest, make_private, read_own
from clusterctl.runs.statcache import StatCache


def test_the_newest_stay(tmp_path: Path) -> None:
    """The oldest go; a folder in between, or none at all, is no trouble."""
    for number in range(6):
        (tmp_path / f"{number}").touch()
        os.utime(tmp_path / f"{number}", (number, number))
    (tmp_path / "folder").mkdir()
    os.utime(tmp_path / "folder", (0, 0))
    keep_newest(tmp_path, 3)
    keep_newest(tmp_path / "none", 3)

    assert {path.name for path in tmp_path.iterdir()} == {"3", "4", "5", "folder"}


def test_trees_of_long_ago_are_forgotten(tmp_path: Path) -> None:
    """Each source root has a file; a thousand projects do not make a thousand."""
    for number in range(statcache.MOST_TREES + 5):
        cache = StatCache(tmp_path, b"/src/%d" % number)
        cache.remember("train.py", (1, 1, 1, number), "0" * 64)
        cache.save()

    assert len(list(tmp_path.iterdir())) == statcache.MOST_TREES
    assert StatCache(tmp_path, b"/src/%d" % number).find("train.py", (1, 1, 1, number)) == "0" * 64


def test_what_we_make_is_for_us_alone_whatever_the_umask(tmp_path: Path) -> None:
    """Each directory that was missing, not the last one only."""
    before = os.umask(0o002)
    try:
        make_private(tmp_path / "state" / "clusterctl" / "specs")
        make_private(tmp_path / "state" / "clusterctl" / "specs")
    finally:
        os.umask(before)
    made = [
        tmp_path / "state",
        tmp_path / "state" / "clusterctl",
        tmp_path / "state" / "clusterctl" / "specs",
    ]
    assert [folder.stat().st_mode & 0o777 for folder in made] == [0o700] * 3


def test_what_somebody_else_has_put_there_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file counts only if it is ours."""
    (tmp_path / "file").write_bytes(b"ours")
    assert read_own(tmp_path / "file") == b"ours"
    monkeypatch.setattr(os, "geteuid", lambda: (tmp_path / "file").stat().st_uid + 1)
    with pytest.raises(PermissionError):
        read_own(tmp_path / "file")
