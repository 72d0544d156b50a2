"""Hashes that a node remembers: which files are read, counted in pieces."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from pathlib import Path

import pytest
from waiting import HANG, wait_until

from clusterctl.node.sync.staging import remembered_hashes
from clusterctl.node.sync.staging.remembered_hashes import FINE, MIN_AHEAD, RememberedHashes


class Memory:
    """A work directory whose memory is opened again for each file; `pieces` counts what was read."""

    def __init__(self, workdir: Path) -> None:
        self.workdir, self.pieces = workdir, 0
        workdir.mkdir(mode=0o700)

    def count(self) -> None:
        """Count a piece that was read."""
        self.pieces += 1

    def hash(self, path: Path, *, again: bool = False) -> int:
        """Hash a file; returns how many pieces were read for it."""
        before, hashes = self.pieces, RememberedHashes(str(self.workdir))
        data = path.read_bytes()
        assert hashes.hash(str(path), self.count, again=again) == (
            hashlib.sha256(data).hexdigest(),
            len(data),
        )
        hashes.save()
        return self.pieces - before


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    """An empty one."""
    return Memory(tmp_path / "work")


def settled(path: Path, data: bytes = b"content") -> Path:
    """Write a file, and wait until a change would give it another time stamp."""
    path.write_bytes(data)
    wait_until(lambda: time.time_ns() > path.stat().st_ctime_ns + 2 * FINE, "the file is old enough")
    return path


def test_an_unchanged_file_is_read_once(memory: Memory, tmp_path: Path) -> None:
    """Also under another name, and by a later process; with `again` it is read."""
    file = settled(tmp_path / "file")
    assert [memory.hash(file) for _ in range(3)] == [1, 0, 0]
    assert memory.hash(file, again=True) == 1


@pytest.mark.parametrize("keep_time", [False, True])
def test_a_change_is_seen(memory: Memory, tmp_path: Path, keep_time: bool) -> None:
    """Of the same size, and also if its time is set back."""
    file = settled(tmp_path / "file")
    memory.hash(file)
    before = file.stat()
    file.write_bytes(b"CONTENT")
    if keep_time:
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert memory.hash(file) == 1


def test_a_file_that_was_just_written_is_read_again(memory: Memory, tmp_path: Path) -> None:
    """It could change once more with the same time stamp."""
    file = tmp_path / "file"
    file.write_bytes(b"content")
    os.utime(file, ns=(0, time.time_ns() + 10**12))
    assert [memory.hash(file), memory.hash(file)] == [1, 1]


def test_what_was_written_is_remembered_after_a_while(memory: Memory, tmp_path: Path) -> None:
    """It need not be read at all; one that has changed since is not remembered."""
    file, changed = tmp_path / "file", tmp_path / "changed"
    file.write_bytes(b"content")
    changed.write_bytes(b"content")
    hashes = RememberedHashes(str(memory.workdir))
    sha = hashlib.sha256(b"content").hexdigest()
    written = [(str(path), path.stat(), sha) for path in (file, changed)]
    changed.write_bytes(b"CONTENT")
    hashes.remember_written(written)  # type: ignore[arg-type]  # a list of the wider type
    hashes.save()
    assert (memory.hash(file), memory.hash(changed)) == (0, 1)


@pytest.mark.parametrize("damage", [b"", b"x", bytes(200)])
def test_a_damaged_memory_is_empty(memory: Memory, tmp_path: Path, damage: bytes) -> None:
    """A part of it, other bytes at its end, or zeros after a power cut."""
    file = settled(tmp_path / "file")
    memory.hash(file)
    (saved,) = (memory.workdir / "staged").glob("*/*")
    saved.write_bytes(saved.read_bytes()[:-40] + damage if damage != bytes(200) else damage)
    assert [memory.hash(file), memory.hash(file)] == [1, 0]


def test_it_is_bounded(memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest go first; what another process has added meanwhile stays."""
    monkeypatch.setattr(remembered_hashes, "MAX_ROWS", 3)
    files = [settled(tmp_path / f"file-{number}", b"%d" % number) for number in range(4)]
    other = RememberedHashes(str(memory.workdir))
    memory.hash(files[0])
    other.hash(str(files[1]), memory.count)
    other.save()
    assert memory.hash(files[0]) == 0
    memory.hash(files[2])
    memory.hash(files[3])
    assert [memory.hash(files[number]) for number in (1, 2, 3)] == [0, 0, 0]
    assert memory.hash(files[0]) == 1


def test_without_a_work_directory(tmp_path: Path) -> None:
    """One is made, as a node that only gives files never had one; nothing is made where none is named."""
    for workdir in (str(tmp_path / "new/work"), ""):
        hashes = RememberedHashes(workdir)
        hashes.hash(str(settled(tmp_path / "file")), lambda: None)
        hashes.save()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "new"]
    assert [path.name for path in (tmp_path / "new/work/staged").glob("*/*")] == ["hashes"]


def test_large_files_are_read_at_the_same_time(memory: Memory, tmp_path: Path) -> None:
    """Each once, and what is remembered not at all."""
    hashes = RememberedHashes(str(memory.workdir))
    files = [settled(tmp_path / f"file-{number}", bytes([number]) * MIN_AHEAD) for number in range(3)]
    hashes.hash(files[0], memory.count)
    hashes.save()
    hashes = RememberedHashes(str(memory.workdir))
    together = threading.Barrier(2)

    def step() -> None:
        together.wait(HANG)
        memory.count()

    hashes.read_ahead([(str(file), file.stat()) for file in files], step)
    assert [hashes.hash(str(file), memory.count)[0] for file in files] == [
        hashlib.sha256(file.read_bytes()).hexdigest() for file in files
    ]
    assert memory.pieces == 3


def test_the_first_error_ends_the_reading(memory: Memory, tmp_path: Path) -> None:
    """Of the others not one is read to its end."""
    hashes = RememberedHashes(str(memory.workdir))
    endless = tmp_path / "endless"
    with endless.open("wb") as file:
        file.truncate(1 << 40)
    gone = tmp_path / "gone"
    files = [(str(endless), endless.stat()), (str(gone), settled(gone, b"1" * MIN_AHEAD).stat())]
    gone.unlink()
    with pytest.raises(FileNotFoundError):
        hashes.read_ahead(files, memory.count)


def test_a_changed_file_is_read_again(memory: Memory, tmp_path: Path) -> None:
    """What was read ahead of it counts only for the same file."""
    hashes = RememberedHashes(str(memory.workdir))
    file = settled(tmp_path / "file", b"1" * MIN_AHEAD)
    hashes.read_ahead([(str(file), file.stat())], memory.count)
    file.write_bytes(b"2" * MIN_AHEAD)
    assert hashes.hash(str(file), memory.count)[0] == hashlib.sha256(file.read_bytes()).hexdigest()
