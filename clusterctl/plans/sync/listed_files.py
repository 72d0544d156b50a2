"""Which of the files that a node lists are taken, where `cp` puts them, and what is outside the outputs.

Nothing of a name is believed. The first part of a path is ours: a node lists each entry below one of the names that it
was asked for. A path is taken if its parts are plain names, if nothing else has that name, and if it lies below
directories only. A link is made again if it is relative and its way up, which may only be its beginning, stays below
the target: then it leads nowhere else, whatever the other links are.
"""

from __future__ import annotations

import posixpath
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from clusterctl.errors import UsageError
from clusterctl.plans.sync.manifest import Manifest, make_manifest
from clusterctl.protocol.manifest import TreeEntry, parse_manifest
from clusterctl.protocol.untrusted import Row, Untrusted
from clusterctl.specs.nodeset import group_values
from clusterctl.translation import tr

MAX_ENTRIES = 100_000
MAX_BYTES = 100 << 30
MAX_PATH = 4095  # bytes
MAX_NAME = 255  # bytes
MAX_NAMES = 64 << 20  # bytes of all names of one node
ROW_VALUES = 9
MAX_FOLDERS = 100_000  # beyond three for each entry: a path of 4095 bytes can name two thousand

MAX_NAMED = 5  # of the files outside the output directory
MAX_FILE_NAME = 200  # characters
MAX_NUMBER = 1 << 63

META_FOLDER = ".clusterctl"  # of clusterctl itself, next to what was received
# what programs act on as soon as it is there: git and hg run the hooks in them, sshd lets in whom they name
ACTED_ON = frozenset({".git", ".hg", ".ssh"})
SHORT_NAMES = {
    f"{name[1:7]}~": name for name in (*ACTED_ON, META_FOLDER)
}  # their short names on a disk of Windows

NAMELESS = ("", ".", "..", "~", "${output_dir}")  # of a path that ends so what is in the directory is copied
EXECUTABLE, PLAIN = 0o755, 0o644

Stamp = tuple[int, int, int, int]


class FileSource(NamedTuple):
    """Files of a node that are wanted, and the name that they have here; empty for what is in a directory.

    `kind` and `path` are as in the verb `files`. `modes`: files keep their mode, which else is that of a new file.
    """

    kind: str
    path: str
    name: str
    modes: bool = False


@dataclass(frozen=True)
class ListedEntry:
    """One thing on a node; `index` is its number on the node, `path` its place here.

    `source` is the number of what was wanted. `content` is the target of a link, or a file's hash if that was asked
    for. `mode` is None for what gets the mode of a new file.
    """

    index: int
    path: str
    kind: str
    size: int
    stamp: Stamp
    content: str
    source: int
    mode: int | None = None


@dataclass(frozen=True)
class RefusedEntry:
    """What is not downloaded, and why; `by_node` is whether the fault is the node's: another may have the same file."""

    path: str
    reason: str
    by_node: bool = False


@dataclass(frozen=True)
class DownloadPlan:
    """What is taken of a node's list."""

    files: tuple[ListedEntry, ...]
    folders: tuple[ListedEntry, ...]
    links: tuple[ListedEntry, ...]
    refused: tuple[RefusedEntry, ...]

    @property
    def size(self) -> int:
        """Return the bytes of all files."""
        return sum(entry.size for entry in self.files)


def parse_listing(rows: Iterable[Row], start: int, sources: Sequence[FileSource]) -> Iterator[ListedEntry]:
    """Read a batch of rows; each gets a path below the name of its source. ValueError for what is no row."""
    for offset, row in enumerate(rows):
        if len(row) != ROW_VALUES:
            raise ValueError(f"a row does not have {ROW_VALUES} parts")
        number, kind = row.integer(0, 0, len(sources) - 1), row.text(2, 10)
        path, content = row.name(1, MAX_PATH), row.name(7, MAX_PATH)
        if path is None or content is None:  # the system itself has none so long
            raise ValueError("a row has a name that is none, or is too long")
        size, mtime, ctime, inode, mode = (row.integer(at, 0) for at in (3, 4, 5, 6, 8))
        if size is None or mtime is None or ctime is None or inode is None or mode is None or mode > 0o777:
            raise ValueError("a row has a number that is none")
        if kind not in ("file", "link", "dir", "other") or number is None:
            raise ValueError("a row is of no known kind")
        source, stamp = sources[number], (size, mtime, ctime, inode)
        local_path = f"{source.name}/{path}" if source.name and path else source.name or path
        kept_mode = mode if source.modes and kind == "file" else None
        index = start + offset
        yield ListedEntry(index, local_path, kind, size, stamp, content, source=number, mode=kept_mode)


def plan_download(entries: Sequence[ListedEntry], *, ignores_case: bool) -> DownloadPlan:
    """Accept what does no harm; `ignores_case` is a file system here that treats upper and lower case alike."""
    names = _Names(ignores_case, MAX_FOLDERS + 3 * len(entries))
    accepted: dict[str, list[ListedEntry]] = {"file": [], "dir": [], "link": []}
    refused: list[RefusedEntry] = []
    for entry in entries:
        reason = find_refusal_reason(entry) or names.claim(entry)
        if reason:
            refused.append(RefusedEntry(entry.path, reason))
        else:
            accepted[entry.kind].append(entry)
    return DownloadPlan(
        tuple(accepted["file"]), tuple(accepted["dir"]), tuple(accepted["link"]), tuple(refused)
    )


def find_refusal_reason(entry: ListedEntry) -> str:
    """Return what is wrong with a single entry; empty if nothing is."""
    problem = find_path_problem(entry.path)
    if problem:
        return problem
    if entry.kind == "other":
        return tr("neither a file, a link nor a directory")
    if entry.kind == "link" and not stays_inside(entry.path, entry.content):
        return tr("a link that leads out of the directory")
    return ""


@lru_cache(4096)
def plain_name(name: str) -> str:
    """Return what a file system may take a name for that ignores case, forms of one letter, and marks not shown."""
    if not name.isascii():
        letters = unicodedata.normalize("NFKD", name)
        name = "".join(letter for letter in letters if unicodedata.category(letter) != "Cf")
    plain = name.casefold().rstrip(" .")
    return SHORT_NAMES.get(plain.rstrip("0123456789"), plain)


def is_acted_on(path: str) -> bool:
    """Return whether a path is, or is below, something that programs act on."""
    return any(plain_name(name) in ACTED_ON for name in path.split("/"))


def find_path_problem(path: str) -> str:
    """Return why a path cannot be used below a directory; empty if it can."""
    try:
        raw = path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return tr("a name that is not text")
    parts = raw.split(b"/")
    if b"\0" in raw or any(part in (b"", b".", b"..") for part in parts):
        return tr("a path that leads out of the directory")
    if len(raw) > MAX_PATH or max(map(len, parts)) > MAX_NAME:
        return tr("a name that is too long")
    return ""


def stays_inside(path: str, target: str) -> bool:
    """Return whether the link at `path` can be made without leading out of the directory that holds all."""
    if not target or "\0" in target or target.startswith("/"):
        return False
    try:
        target.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    parts = [part for part in target.split("/") if part not in ("", ".")]
    climbs = next((index for index, part in enumerate(parts) if part != ".."), len(parts))
    return ".." not in parts[climbs:] and climbs <= path.count("/")


class _Names:
    """The names that are taken and the directories that they imply, as a tree: no path is kept with all its parents."""

    def __init__(self, ignores_case: bool, limit: int) -> None:
        self._ignores_case = ignores_case
        self._limit = limit
        self._numbers: dict[tuple[int, str], int] = {}  # of each name below each directory; the root is 0
        self._claimed: dict[int, str] = {}
        self._folders = {0}

    def claim(self, entry: ListedEntry) -> str:
        """Reserve a name, or return why it cannot be used."""
        *above, last = self._key(entry.path).split("/")
        folder = 0
        for part in above:
            folder = self._number(folder, part)
            if folder in self._claimed:
                return tr("its parent is not a directory")
            self._folders.add(folder)
        number = self._number(folder, last)
        if number in self._claimed:
            is_duplicate = self._claimed[number] == entry.path
            return tr("listed twice") if is_duplicate else tr("another name differs only in case")
        if number in self._folders and entry.kind != "dir":
            return tr("the name of a directory")
        if len(self._numbers) > self._limit:
            return tr("too many directories")
        if entry.kind == "dir":
            self._folders.add(number)
        else:
            self._claimed[number] = entry.path
        return ""

    def _number(self, folder: int, name: str) -> int:
        if len(self._numbers) > self._limit:
            return self._numbers.get((folder, name), -1)
        return self._numbers.setdefault((folder, name), len(self._numbers) + 1)

    def _key(self, path: str) -> str:
        return unicodedata.normalize("NFC", path).casefold() if self._ignores_case else path


@dataclass(frozen=True)
class OutsideFiles:
    """Files of one node that were not sent with the code, or changed since; `more`: not all were counted."""

    files: int
    bytes: int
    names: tuple[str, ...]
    more: bool = False


def parse_outside(raw: Untrusted) -> OutsideFiles | None:
    """Read what a node reports; None if it has no such record, or an impossible one."""
    files, size = raw.integer("files", 0, MAX_NUMBER), raw.integer("bytes", 0, MAX_NUMBER)
    if files is None or size is None or not raw.is_list("names"):
        return None
    return OutsideFiles(files, size, raw.texts("names", MAX_NAMED, MAX_FILE_NAME), raw.flag("more"))


def with_outside_files(parts: Mapping[str, OutsideFiles | None]) -> dict[str, OutsideFiles]:
    """Keep the nodes that have such files."""
    return {name: files for name, files in parts.items() if files is not None and (files.files or files.more)}


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
    """What a node sends to others: its entries, which of them has a content, and paths that are not passed on.

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

    `left_out` is what programs act on, by the node that would have given it: nodes may not trust each other, so that
    none adds it to another's directory.
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
