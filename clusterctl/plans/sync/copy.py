"""What the words of `cp` mean: copy_paths here and on nodes, and the names that copies get."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from clusterctl.errors import UsageError
from clusterctl.plans.sync.manifest import Manifest, make_manifest
from clusterctl.plans.sync.received_names import ListedEntry, is_acted_on, plan_download
from clusterctl.protocol.manifest import TreeEntry, parse_manifest
from clusterctl.specs.nodeset import group_values

NAMELESS = ("", ".", "..", "~", "${output_dir}")  # of a path that ends so what is in the directory is copied
EXECUTABLE, PLAIN = 0o755, 0o644


@dataclass(frozen=True)
class CopyPath:
    """A path on this machine, or on the nodes of a pattern."""

    pattern: str | None
    path: str

    @property
    def name(self) -> str:
        """Return the name of what is there; empty if what is in it is meant."""
        name = posixpath.basename(self.path.rstrip("/"))
        return "" if name in NAMELESS else name

    @property
    def is_folder(self) -> bool:
        """Return whether the path can only be that of a directory."""
        return self.path.endswith("/") or posixpath.basename(self.path) in NAMELESS

    def below(self, name: str) -> str:
        """Return the path of a directory in it; without a path that is one in the home directory."""
        return posixpath.join(self.path, name, "")


@dataclass(frozen=True)
class RelayPlan:
    """What a node gives to others: its entries, which of them has a content, and paths that are not passed on.

    `private`: only the account may read some of it.
    """

    manifest: Manifest
    sources: Mapping[str, ListedEntry]
    left_out: tuple[str, ...]
    private: bool


def parse_copy_path(text: str) -> CopyPath:
    """Read PATH or NODE:PATH; a path of this machine with a colon needs a slash before it."""
    pattern, colon, path = text.partition(":")
    if not colon or not pattern or "/" in pattern or pattern.startswith((".", "~")):
        return CopyPath(None, text)
    return CopyPath(pattern, path)


def parse_copy_paths(sources: Sequence[str], target: str) -> tuple[tuple[CopyPath, ...], CopyPath]:
    """Read the words of the command line; UsageError if nothing of it is on a node, or the sources are mixed."""
    copy_paths, to = tuple(map(parse_copy_path, sources)), parse_copy_path(target)
    if not any(copy_path.pattern for copy_path in (*copy_paths, to)):
        raise UsageError("CC-COPY-001", "local", target=target)
    if len({copy_path.pattern is None for copy_path in copy_paths}) > 1:
        raise UsageError("CC-COPY-001", "mixed")
    return copy_paths, to


@dataclass(frozen=True)
class GatherPlan:
    """Transfers as (source, receivers, files), and files whose content differs between nodes.

    `left_out` is what programs act on, by the node that would have given it: of nodes that may be strangers to each
    other none adds that to another's directory.
    """

    parts: tuple[tuple[str, tuple[str, ...], Manifest], ...]
    conflicts: tuple[str, ...]
    left_out: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def plan_gather(manifests: Mapping[str, Manifest]) -> GatherPlan:
    """Plan that the first node with a file sends it to all nodes without one; nothing where they differ."""
    known = {name: {entry.path: entry for entry in manifest.entries} for name, manifest in manifests.items()}
    parts: list[tuple[str, tuple[str, ...], Manifest]] = []
    conflicts: set[str] = set()
    owners: dict[str, TreeEntry] = {}
    owned: dict[str, list[TreeEntry]] = {name: [] for name in manifests}
    for name, entries in known.items():
        for path, entry in entries.items():
            first = owners.setdefault(path, entry)
            if first is entry:
                owned[name].append(entry)
            elif (first.kind, first.content) != (entry.kind, entry.content):
                conflicts.add(path)
    acted_on = {path for path in owners if path not in conflicts and is_acted_on(path)}
    missing = {path for path in acted_on if any(path not in entries for entries in known.values())}
    left_out: dict[str, tuple[str, ...]] = {}
    for name, own in owned.items():
        if paths := tuple(entry.path for entry in own if entry.path in missing):
            left_out[name] = paths
        given = [entry for entry in own if entry.path not in conflicts and entry.path not in acted_on]
        receivers = group_values(
            (tuple(entry for entry in given if entry.path not in known[other]), other) for other in manifests
        )
        parts += [
            (name, tuple(others), make_manifest(lacking)) for lacking, others in receivers.items() if lacking
        ]
    return GatherPlan(tuple(parts), tuple(sorted(conflicts)), left_out)


def plan_relay(entries: Sequence[ListedEntry]) -> RelayPlan:
    """Take what others may get of what a node has listed with hashes; ValueError for what no receiver would take."""
    plan = plan_download(entries, ignores_case=False)
    rows = [TreeEntry(entry.path, entry.kind, 0, entry.content) for entry in (*plan.folders, *plan.links)]
    modes = [entry.mode or 0 for entry in plan.files]
    for entry, mode in zip(plan.files, modes, strict=True):
        kept = EXECUTABLE if mode & 0o100 else PLAIN
        rows.append(TreeEntry(entry.path, "file", kept, entry.content, entry.size))
    return RelayPlan(
        make_manifest(parse_manifest(rows)),
        {entry.content: entry for entry in reversed(plan.files)},
        tuple(refused.path for refused in plan.refused),
        any(not mode & 0o077 for mode in modes),
    )
