"""The source directory is read as it is, quickly, and never half."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clusterctl.client.sync.scan import ScanResult, scan_source
from clusterctl.errors import SyncError, UsageError
from clusterctl.plans.sync.manifest import MAX_BYTES

OLD_FOLDER = Path(json.__file__).parent  # files that were there long before this test
NOBODY = 65534


def paths(scan: ScanResult) -> list[str]:
    """List what would be sent."""
    return [entry.path for entry in scan.manifest.entries]


def plant(root: Path, *names: str) -> None:
    """Make files that hold their own names."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)


def test_entries_say_what_is_there(tmp_path: Path) -> None:
    """Kind, mode, hash, target and size of each entry."""
    plant(tmp_path, "a.py", "run.sh")
    (tmp_path / "run.sh").chmod(0o711)
    (tmp_path / "empty/inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to("a.py")
    sha = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("a.py", "run.sh")}
    assert [list(entry) for entry in scan_source(tmp_path).manifest.entries] == [
        ["a.py", "file", 0o644, sha["a.py"], 4],
        ["empty/inner", "dir", 0, "", 0],
        ["link", "link", 0, "a.py", 0],
        ["run.sh", "file", 0o755, sha["run.sh"], 6],
    ]


def test_ignored_things_stay_at_home(tmp_path: Path) -> None:
    """Rules at every level and the job's list; ignored directories are not even entered."""
    plant(tmp_path, "a.py", "a.log", "sub/b.log", "sub/keep.log", "data/x", "out/keep.py", ".git/config")
    plant(tmp_path, "__pycache__/a.pyc", "m.pyc")
    (tmp_path / ".gitignore").write_text("*.log\nout/\n!out/keep.py\n")
    (tmp_path / "sub/.gitignore").write_text("!keep.log\n")
    (tmp_path / "out/inner").mkdir()
    scan = scan_source(tmp_path, exclude=["data/"])
    assert paths(scan) == [".gitignore", "a.py", "sub/.gitignore", "sub/keep.log"]
    assert scan.warnings == ()


def test_a_source_inside_a_checkout_obeys_the_files_above(tmp_path: Path) -> None:
    """From the top of the checkout down; what lies above the checkout does not count."""
    top = tmp_path / "checkout"
    plant(top, "play/a/x.py", "play/a/x.ckpt", "play/a/out", "play/a/tmp")
    (top / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("*.py")
    (top / ".gitignore").write_text("*.ckpt\n/play/a/out\n")
    (top / "play/.gitignore").write_text("a/tmp\n/x.py\n")
    assert paths(scan_source(top / "play/a")) == ["x.py"]


def test_odd_things_are_left_out_with_a_word(tmp_path: Path) -> None:
    """Pipes are skipped, links that leave are kept; both are reported, and so is a rule file that is a link."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "up").symlink_to("../x")
    (tmp_path / "root").symlink_to("/etc")
    (tmp_path / ".gitignore").symlink_to("elsewhere")
    scan = scan_source(tmp_path)
    assert paths(scan) == [".gitignore", "root", "up"]
    assert sorted(scan.warnings) == [
        ".gitignore is not a readable file: ignored",
        "link root points outside the source, to /etc: sent unchanged",
        "link up points outside the source, to ../x: sent unchanged",
        "pipe is not a file, link or directory: not sent",
    ]


def test_an_empty_tree_is_reported(tmp_path: Path) -> None:
    """Rules that ignore everything do not pass silently."""
    plant(tmp_path, "a.py")
    (tmp_path / ".gitignore").write_text("*")
    scan = scan_source(tmp_path)
    assert paths(scan) == []
    assert "nothing to send" in scan.warnings[0]


def test_a_name_that_is_not_utf8_is_refused_unless_ignored(tmp_path: Path) -> None:
    """The message shows the odd byte; a rule gets it out of the way."""
    (tmp_path / os.fsdecode(b"caf\xe9.py")).touch()
    with pytest.raises(UsageError, match=r"caf\\xe9\.py"):
        scan_source(tmp_path)
    (tmp_path / ".gitignore").write_text("caf*\n")
    assert paths(scan_source(tmp_path)) == [".gitignore"]


@pytest.mark.parametrize("source", ["/", "//", "~", "~/.", "/tmp/..", "/no/such/place", __file__])
def test_sources_that_cannot_be_meant_are_refused(source: str) -> None:
    """The root, a home, a missing directory, a file: exit 2 before anything is read."""
    with pytest.raises(UsageError) as caught:
        scan_source(source)
    assert (caught.value.code, caught.value.exit_code) == ("CC-SYNC-001", 2)
    assert "source" in caught.value.message


def test_a_tree_that_is_too_large_is_refused_before_it_is_read(tmp_path: Path) -> None:
    """A file with a hole of half a gigabyte is named by its folder."""
    plant(tmp_path, "a.py", "data/x")
    os.truncate(tmp_path / "data/x", MAX_BYTES)
    with pytest.raises(UsageError, match="data/x 500 MB") as caught:
        scan_source(tmp_path)
    assert caught.value.code == "CC-SYNC-002"
    assert "--big" in caught.value.fix
    assert paths(scan_source(tmp_path, exclude=["data"])) == ["a.py"]


def test_hashes_of_old_files_are_remembered(tmp_path: Path) -> None:
    """The second scan takes the cache's word: a forged hash shows that the file was not read again."""
    first = scan_source(OLD_FOLDER, cache_dir=tmp_path / "cache")
    (file,) = (tmp_path / "cache").iterdir()
    data = json.loads(file.read_text())
    assert scan_source(OLD_FOLDER, cache_dir=tmp_path / "cache").manifest == first.manifest
    data["files"]["decoder.py"][4] = "0" * 64
    file.write_text(json.dumps(data))
    forged = scan_source(OLD_FOLDER, cache_dir=tmp_path / "cache").manifest
    assert {entry.path: entry.content for entry in forged.entries}["decoder.py"] == "0" * 64
    data["files"]["decoder.py"][1] += 1
    file.write_text(json.dumps(data))
    assert scan_source(OLD_FOLDER, cache_dir=tmp_path / "cache").manifest == first.manifest


def test_young_files_are_not_remembered(tmp_path: Path) -> None:
    """A file that was written just now could change again within the same time stamp."""
    plant(tmp_path, "src/a.py")
    os.utime(tmp_path / "src/a.py", (1, 1))
    scan_source(tmp_path / "src", cache_dir=tmp_path / "cache")
    kept = [json.loads(file.read_text())["files"] for file in tmp_path.glob("cache/*")]
    assert kept in ([], [{}])


@pytest.mark.parametrize(
    "damage", ["", "\0", "[]", "{}", '{"version":1,"files":[]}', '{"version":1,"files":{"decoder.py":[1]}}']
)
def test_a_damaged_cache_is_ignored(tmp_path: Path, damage: str) -> None:
    """Whatever stands in the cache file, the scan is right, and repairs it."""
    whole = scan_source(OLD_FOLDER, cache_dir=tmp_path / "cache")
    (file,) = (tmp_path / "cache").iterdir()
    good = file.read_text()
    file.write_text(damage)
    assert scan_source(OLD_FOLDER, cache_dir=tmp_path / "cache").manifest == whole.manifest
    assert json.loads(file.read_text()) == json.loads(good)


def test_a_cache_that_cannot_be_written_does_not_matter(tmp_path: Path) -> None:
    """A file where the folder should be costs only time."""
    (tmp_path / "cache").touch()
    assert scan_source(OLD_FOLDER, cache_dir=tmp_path / "cache").manifest.entries


def test_a_file_that_does_not_keep_still_is_named(tmp_path: Path) -> None:
    """A log that grows while it is read cannot be sent as anything definite."""
    growing, stop = tmp_path / "train.log", threading.Event()
    growing.write_bytes(bytes(30_000_000))

    def grow() -> None:
        with growing.open("ab", buffering=0) as sink:
            while not stop.is_set():
                sink.write(b"x")

    writer = threading.Thread(target=grow)
    writer.start()
    try:
        with pytest.raises(SyncError, match=r"train\.log changed") as caught:
            scan_source(tmp_path)
    finally:
        stop.set()
        writer.join()
    assert caught.value.code == "CC-SYNC-006"


@contextmanager
def ordinary_user() -> Iterator[None]:
    """Act as an ordinary user where the tests run as root, to whom nothing is unreadable."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@pytest.mark.parametrize("name", ["secret.key", "closed"])
def test_what_cannot_be_read_is_named(name: str) -> None:
    """A file or folder without permission stops the scan with its name and the way out."""
    root = Path(tempfile.mkdtemp(prefix="clusterctl-test-"))
    try:
        root.chmod(0o755)
        plant(root, "secret.key" if name == "secret.key" else "closed/a")
        (root / name).chmod(0)
        with ordinary_user(), pytest.raises(SyncError, match=f"{name}.*Permission denied") as caught:
            scan_source(root)
        assert caught.value.code == "CC-SYNC-005"
        assert "exclude" in caught.value.fix
        with ordinary_user():
            assert paths(scan_source(root, exclude=[name])) == []
    finally:
        (root / name).chmod(0o700)
        shutil.rmtree(root)
