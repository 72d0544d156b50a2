"""A source tree as a value: its entries, its hash, and what is refused before a byte is read.

Empty directories are kept (training scripts expect them); a directory that holds anything is implied by what
it holds. Of a file's mode only the executable bit travels.
"""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from clusterctl.errors import UsageError
from clusterctl.protocol.manifest import TreeEntry, tree_hash
from clusterctl.translation import trn

MAX_BYTES = 500_000_000
MAX_FILES = 50_000
MAX_NAMED_FILES = 900_000  # whose names one frame can hold
_MAX_NAMED = 5  # how many of the largest entries an error names


@dataclass(frozen=True)
class Manifest:
    """All entries of a tree, in the order of their UTF-8 paths; made by `make_manifest`."""

    entries: tuple[TreeEntry, ...]

    @cached_property
    def hash(self) -> str:
        """Return the tree hash, computed once."""
        return tree_hash(self.entries)

    @cached_property
    def blobs(self) -> dict[str, TreeEntry]:
        """Return one file for every distinct content, by SHA-256."""
        blobs: dict[str, TreeEntry] = {}
        for entry in self.entries:
            if entry.kind == "file":
                blobs.setdefault(entry.content, entry)
        return blobs

    @property
    def files(self) -> int:
        """Count the files; links and empty directories are entries too."""
        return sum(entry.kind == "file" for entry in self.entries)

    @property
    def size(self) -> int:
        """Return the bytes of all files together."""
        return sum(entry.size for entry in self.entries)


def make_manifest(entries: Iterable[TreeEntry]) -> Manifest:
    """Put entries in order."""
    return Manifest(tuple(sorted(entries, key=lambda entry: entry.path.encode())))


def leaves_tree(path: str, target: str) -> bool:
    """Return whether the link at `path` points out of the tree, judged by its text alone."""
    joined = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    return target.startswith("/") or joined == ".." or joined.startswith("../")


def decode_name(name: bytes) -> str:
    """Decode a name or link target; one that is not UTF-8 is refused, shown with its odd bytes escaped."""
    try:
        return name.decode("utf-8")
    except UnicodeDecodeError:
        shown = name.decode("utf-8", "backslashreplace")
        raise UsageError("CC-SYNC-004", shown=shown) from None


def check_limits(
    files: Sequence[tuple[str, int]], *, allow_big: bool = False, incomplete: bool = False
) -> None:
    """Refuse a tree of more than 500 MB or 50 000 files, unless `allow_big`, and any of more than MAX_NAMED_FILES.

    `files` holds (path, bytes); `incomplete` means that counting was given up.
    """
    size = sum(weight for _, weight in files)
    if len(files) > MAX_NAMED_FILES:
        raise UsageError("CC-SYNC-002", "files", count=len(files), most=MAX_NAMED_FILES)
    if allow_big or (size <= MAX_BYTES and len(files) <= MAX_FILES):
        return
    if size > MAX_BYTES:
        amount, limit = render_megabytes(size), render_megabytes(MAX_BYTES)
        biggest = [(path, render_megabytes(weight)) for path, weight in find_largest(files)]
    else:
        amount, limit = _count_files(len(files)), str(MAX_FILES)
        biggest = [
            (path, _count_files(count)) for path, count in find_largest((path, 1) for path, _ in files)
        ]
    raise UsageError(
        "CC-SYNC-002",
        "incomplete" if incomplete else "",
        amount=amount,
        limit=limit,
        largest=", ".join(f"{path} {weight}" for path, weight in biggest),
        first=biggest[0][0],
    )


def _count_files(count: int) -> str:
    return trn("{n} file", "{n} files", count)


def render_megabytes(size: int) -> str:
    """Write a number of bytes for people."""
    return f"{size / 1e6:.0f} MB" if size >= 10e6 else f"{size / 1e6:.1f} MB"


def find_largest(files: Iterable[tuple[str, int]], limit: int = _MAX_NAMED) -> list[tuple[str, int]]:
    """Name the heaviest files and directories, each as deep as one child holds nearly all of it."""
    weights: dict[str, int] = defaultdict(int)
    children: dict[str, set[str]] = defaultdict(set)
    for path, weight in files:
        below = path
        while below:
            weights[below] += weight
            parent = posixpath.dirname(below.rstrip("/"))
            parent += "/" if parent else ""
            children[parent].add(below)
            below = parent
    tops = sorted(children[""], key=weights.__getitem__, reverse=True)[:limit]
    return [(path, weights[path]) for path in (_descend_to_heaviest(top, weights, children) for top in tops)]


def _descend_to_heaviest(top: str, weights: dict[str, int], children: dict[str, set[str]]) -> str:
    while children[top]:
        heaviest = max(children[top], key=weights.__getitem__)
        if weights[heaviest] < 0.9 * weights[top]:
            break
        top = heaviest
    return top
