"""What is staged: which source, where, with which content; and what of it a node has already."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clusterctl.plans.runs.documents import StagePreview
from clusterctl.plans.sync.listed_files import ListedEntry
from clusterctl.plans.sync.manifest import Manifest
from clusterctl.specs.job.model import Job

SHOWN_DIGITS = 12  # digits of a hash that people compare
MAX_DESCRIBED = 8  # sources in the record of a run


@dataclass(frozen=True)
class StagedItem:
    """One entry of `stage` with its content: `tree` is the hash of its names, sizes and hashes."""

    source: str
    to: str
    revision: str
    tree: str
    files: int
    bytes: int


def describe_items(items: Sequence[StagedItem]) -> str:
    """Write for a run's record what was staged: each source with its revision, if it has one, and its hash."""
    texts = [
        f"{item.source} ({', '.join(filter(None, (item.revision[:SHOWN_DIGITS], f'tree {item.tree[:SHOWN_DIGITS]}')))})"
        for item in items[:MAX_DESCRIBED]
    ]
    return "; ".join([*texts, *(["..."] if len(items) > MAX_DESCRIBED else [])])


def plan_staging(job: Job, nodes: Sequence[str], manifests: Mapping[int, Manifest]) -> list[StagePreview]:
    """Return what of each entry is copied to which nodes; `manifests` are of entries that this machine has."""
    previews: list[StagePreview] = []
    for index, stage in enumerate(job.stage):
        manifest = manifests.get(index)
        to = stage.to or "" if stage.in_cache else posixpath.join(*stage.folder_and_name)
        previews.append(
            {
                "from": stage.label,
                "to": to,
                "files": manifest.files if manifest else None,
                "bytes": manifest.size if manifest else None,
                "nodes": list(nodes),
            }
        )
    return previews


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
