"""What is staged: which source, where, with which content; and what of it a node has already."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from clusterctl.plans.sync.listed_files import ListedEntry
from clusterctl.plans.sync.manifest import Manifest

SHOWN_DIGITS = 12  # digits of a hash that people compare


@dataclass(frozen=True)
class StagedItem:
    """One entry of `stage` with its content: `tree` is the hash of its names, sizes and hashes."""

    source: str
    to: str
    revision: str
    tree: str
    files: int
    bytes: int


def describe_items(items: Iterable[StagedItem]) -> str:
    """Write for a run's record what was staged: each source with its revision, or else the hash of its content."""
    return "; ".join(f"{item.source} ({(item.revision or item.tree)[:SHOWN_DIGITS]})" for item in items)


@dataclass(frozen=True)
class Lacking:
    """What would be copied to a node: so many files and bytes; `replaced` of the files have other content there."""

    files: int
    bytes: int
    unchanged: int
    replaced: int


def plan_lacking(manifest: Manifest, entries: Sequence[ListedEntry]) -> Lacking:
    """Compare a source with what a node lists, with hashes, below the same name."""
    held = {entry.path: (entry.kind, entry.content) for entry in entries}
    wanted = [entry for entry in manifest.entries if entry.kind == "file"]
    lacking = [entry for entry in wanted if held.get(entry.path) != ("file", entry.content)]
    sizes = {entry.content: entry.size for entry in lacking}  # a content comes once
    replaced = sum(entry.path in held for entry in lacking)
    return Lacking(len(lacking), sum(sizes.values()), len(wanted) - len(lacking), replaced)
