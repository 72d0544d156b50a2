"""The work directory: private, ours, and an error with its name when it cannot be."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from noderun import NodeRun
from session import BOOT

from clusterctl.node.runtime.stream import VerbError
from clusterctl.node.state import workdir

Make = Callable[..., NodeRun]


def test_it_is_made_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`~` is the account's home, every directory made is 0700, whatever the umask."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    path = Path(workdir.open_workdir("~/a/b"))
    inner = Path(workdir.make_below(str(path), "runs", "x"))

    assert path == tmp_path / "home" / "a" / "b"
    for folder in (path, path.parent, inner, inner.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_one_that_others_can_write_is_refused(tmp_path: Path, mode: int) -> None:
    """Whoever can write there could run code as us."""
    (tmp_path / "w").mkdir()
    (tmp_path / "w").chmod(mode)
    with pytest.raises(VerbError, match="written by others") as refusal:
        workdir.open_workdir(str(tmp_path / "w"))
    assert refusal.value.code == "CC-DISK-002"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_one_of_another_account_is_refused(tmp_path: Path) -> None:
    """Its owner could exchange the payload."""
    (tmp_path / "w").mkdir(mode=0o700)
    os.chown(tmp_path / "w", 12345, 12345)
    with pytest.raises(VerbError, match="uid 12345"):
        workdir.open_workdir(str(tmp_path / "w"))


def test_links_are_not_followed_inside(tmp_path: Path) -> None:
    """A link in the place of a directory or file leads nowhere."""
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "runs").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(VerbError, match="not a directory"):
        workdir.make_below(str(tmp_path), "runs")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(FileExistsError):
        workdir.write_new(str(tmp_path / "link"), b"x")
    with pytest.raises(OSError, match="symbolic"):
        workdir.read_bytes(str(tmp_path / "link"))
    assert not (tmp_path / "target").exists()


def test_one_that_cannot_be_made_is_named(node: Make) -> None:
    """The system's reason, the directory that failed, and no traceback."""
    run = node("print(1)")
    run.workdir = Path("/proc/x/y")
    session = run.start()
    (error, _), _ = session.frames()
    assert error["error"] == {
        "code": "CC-DISK-002",
        "message": "cannot make directory /proc/x: No such file or directory",
        "traceback": "",
    }


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "nul\0"])
def test_names_are_single_components(name: str) -> None:
    """Nothing outside the directory can be named."""
    with pytest.raises(VerbError):
        workdir.component(name)


def test_writing_replaces_at_once(tmp_path: Path) -> None:
    """The new content or the old, and nothing beside it."""
    path = tmp_path / "state.json"
    for content in (b"old", b"new"):
        workdir.write_atomically(str(path), content)
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def small_disk(size: str, folder: Path) -> tuple[str, ...] | None:
    """A command prefix under which `folder` is a disk of that size, if this machine allows it."""
    mount = f'mount -t tmpfs -o mode=0700,size={size} none {folder} && exec "$@"'
    prefix = ("unshare", "-Urm", "sh", "-c", mount, "sh")
    if shutil.which("unshare") is None:
        return None
    allowed = subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0
    return prefix if allowed else None


@pytest.mark.parametrize("size", ["4k", "80k"])
def test_a_full_disk_is_reported_and_nothing_is_half_started(node: Make, tmp_path: Path, size: str) -> None:
    """No room for the payload, or for the spec: an error frame with the path, no process, no spec."""
    (tmp_path / "disk").mkdir()
    prefix = small_disk(size, tmp_path / "disk")
    if prefix is None:
        pytest.skip("no user namespaces here")
    run = node("print(1)", env={"FILLER": "x" * 100_000})
    run.workdir = tmp_path / "disk"
    session = run.start(command=(*prefix, sys.executable, "-c", BOOT))
    frames = []
    while not frames or "end" not in frames[-1]:
        frame = session.receive()
        assert frame is not None
        frames.append(frame[0])
        if "need" in frame[0]:
            session.send({"payload": True}, run.zip)

    (error,) = [frame["error"] for frame in frames if "error" in frame]
    assert error["code"] == "CC-DISK-001"
    assert str(tmp_path / "disk") in error["message"]
    assert not [frame for frame in frames if "event" in frame]
