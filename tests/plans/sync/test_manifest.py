"""A tree as a value: order, hash, limits and names."""

from __future__ import annotations

import hashlib
import json

import pytest

from clusterctl.errors import UsageError
from clusterctl.plans.sync.manifest import (
    MAX_BYTES,
    MAX_FILES,
    MAX_NAMED_FILES,
    check_limits,
    decode_name,
    find_largest,
    leaves_tree,
    make_manifest,
)
from clusterctl.protocol.frames import MAX_HEADER
from clusterctl.protocol.manifest import TreeEntry

SHA = hashlib.sha256(b"x").hexdigest()
FILE = TreeEntry("pkg/train.py", "file", 0o644, SHA, 1)


def test_order_is_that_of_bytes() -> None:
    """Entries are sorted by their UTF-8 bytes, wherever they were found."""
    names = ["b", "a/b", "a", "a.b", "\U0001f680", "\uffff", "Z", "é"]
    found = [entry.path for entry in make_manifest(FILE._replace(path=name) for name in names).entries]
    assert found == sorted(names, key=str.encode)
    assert found.index("\uffff") < found.index("\U0001f680")


def test_the_hash_is_the_documented_one() -> None:
    """The format is a contract between versions: it is spelt out here once more."""
    link, folder = TreeEntry("link", "link", 0, "../x"), TreeEntry("logs", "dir", 0, "")
    entries = [FILE, link, folder, TreeEntry("run", "file", 0o755, SHA, 1)]
    fields = ["link", "", "../x", "link", "dir", "", "", "logs"]
    fields += ["file", "644", SHA, "pkg/train.py", "file", "755", SHA, "run", ""]
    text = "clusterctl-tree 1\n" + "\0".join(fields)
    assert make_manifest(entries).hash == hashlib.sha256(text.encode()).hexdigest()
    assert make_manifest(reversed(entries)).hash == make_manifest(entries).hash


@pytest.mark.parametrize(
    "other",
    [
        FILE._replace(path="pkg/trai.py"),
        FILE._replace(mode=0o755),
        FILE._replace(content=hashlib.sha256(b"y").hexdigest()),
        TreeEntry(FILE.path, "link", 0, SHA),
        TreeEntry(FILE.path, "dir", 0, ""),
    ],
)
def test_the_hash_sees_every_difference(other: TreeEntry) -> None:
    """Name, mode, content and kind all count."""
    assert make_manifest([other]).hash != make_manifest([FILE]).hash


def test_equal_contents_are_one_blob() -> None:
    """A content that occurs twice is sent once, from the first place it is in."""
    manifest = make_manifest([FILE, FILE._replace(path="other.py"), TreeEntry("l", "link", 0, "x")])
    assert {sha: entry.path for sha, entry in manifest.blobs.items()} == {SHA: "other.py"}
    assert manifest.size == 2


@pytest.mark.parametrize(
    ("path", "target", "leaves"),
    [
        ("a", "b", False),
        ("a/b", "../c", False),
        ("a", "../c", True),
        ("a/b", "../../c", True),
        ("a", "/etc/hosts", True),
        ("a/b", "x/../../c", False),
        ("a", "..", True),
        ("a", ".", False),
        ("a", "..b", False),
    ],
)
def test_links_that_leave_the_tree(path: str, target: str, leaves: bool) -> None:
    """The link's text decides, seen from where the link lies."""
    assert leaves_tree(path, target) is leaves


def test_a_tree_within_the_limits_passes() -> None:
    """The limits themselves are still allowed."""
    check_limits([("a", MAX_BYTES)])
    check_limits([("a", 0)] * MAX_FILES)


def test_too_many_bytes_name_the_heaviest() -> None:
    """The message reports how much, the limit, and which folders to exclude."""
    files = [("a.py", 1000), ("data/raw/x.bin", MAX_BYTES), ("data/raw/y.bin", 70000000), ("m.pt", 9000000)]
    with pytest.raises(UsageError) as caught:
        check_limits(files)
    assert "579 MB, the limit is 500 MB; largest: data/raw/ 570 MB, m.pt 9.0 MB" in caught.value.message
    assert (caught.value.code, caught.value.exit_code) == ("CC-SYNC-002", 2)
    assert "exclude: [data/raw/]" in caught.value.fix
    check_limits(files, allow_big=True)


def test_too_many_files_name_the_fullest() -> None:
    """Counting that was given up reports it."""
    files = [(f"env/lib/{index}", 0) for index in range(MAX_FILES)] + [("a", 0)]
    with pytest.raises(UsageError, match=r"at least 50001 files.*limit is 50000.*env/lib/ 50000 files"):
        check_limits(files, incomplete=True)


def test_no_word_sends_more_files_than_can_be_named() -> None:
    """Beyond what one frame can name there is another way out than `--big`."""
    check_limits([("a", 0)] * MAX_NAMED_FILES, allow_big=True)
    with pytest.raises(UsageError, match="900001 files; at most") as caught:
        check_limits([("a", 0)] * (MAX_NAMED_FILES + 1), allow_big=True)
    assert "--big" not in caught.value.fix
    assert len(json.dumps({"missing": ["0" * 64] * MAX_NAMED_FILES})) <= MAX_HEADER


def test_largest_descends_only_while_one_child_holds_nearly_all() -> None:
    """A folder whose weight is spread is named itself."""
    files = [("a/b/c/one", 99), ("a/two", 1), ("d/three", 30), ("d/four", 30), ("e", 5)]
    assert find_largest(files, limit=2) == [("a/b/c/one", 99), ("d/", 60)]


def test_names_are_kept_as_they_are() -> None:
    """Composed and decomposed letters stay two different names."""
    assert decode_name("caf\u00e9".encode()) != decode_name("cafe\u0301".encode())


def test_a_name_that_is_not_utf8_is_shown_escaped() -> None:
    """The odd byte is visible in the message."""
    with pytest.raises(UsageError, match=r"pkg/\\xff\.py") as caught:
        decode_name(b"pkg/\xff.py")
    assert caught.value.code == "CC-SYNC-004"


def test_links_and_empty_directories_are_not_counted_as_files() -> None:
    """What `launch` and `sync` call files are files."""
    entries = [FILE, TreeEntry("link", "link", 0, "../x"), TreeEntry("logs", "dir", 0, "")]
    assert (make_manifest(entries).files, len(make_manifest(entries).entries)) == (1, 3)
