"""What of a source a node has already."""

from __future__ import annotations

from clusterctl.plans.sync.listed_files import ListedEntry
from clusterctl.plans.sync.manifest import make_manifest
from clusterctl.plans.sync.staging import Lacking, plan_lacking
from clusterctl.protocol.manifest import TreeEntry

SOURCE = make_manifest(
    [
        TreeEntry("corpus/a", "file", 0o644, "1" * 64, 100),
        TreeEntry("corpus/b", "file", 0o644, "2" * 64, 20),
        TreeEntry("corpus/twin of b", "file", 0o644, "2" * 64, 20),
        TreeEntry("corpus/link", "link", 0, "a"),
    ]
)


def listed(path: str, sha: str, size: int) -> ListedEntry:
    """Return a file of a node."""
    return ListedEntry(0, path, "file", size, (size, 0, 0, 0), sha, 0)


def test_what_is_not_there() -> None:
    """All of it, and a content that several files have comes once."""
    assert plan_lacking(SOURCE, ()) == Lacking(files=3, bytes=120, unchanged=0, replaced=0)


def test_what_is_there() -> None:
    """Equal files stay, others are replaced, and further ones do not matter."""
    there = [
        listed("corpus/a", "1" * 64, 100),
        listed("corpus/b", "3" * 64, 20),
        listed("corpus/c", "4" * 64, 1),
    ]
    assert plan_lacking(SOURCE, there) == Lacking(files=2, bytes=20, unchanged=1, replaced=1)
