"""Which of the files that a node lists are taken, and what it reports of files outside the output directory.

Nothing of a name is believed. The first part of a path is ours: a node lists each entry below one of the names that it
was asked for. A path is taken if its parts are plain names, if nothing else has that name, and if it lies below
directories only. A link is made again if it is relative and its way up, which may only be its beginning, stays below
the target: then it leads nowhere else, whatever the other links are.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from clusterctl.plans.runs.documents import OutsideFilesEntry
from clusterctl.protocol.untrusted import Row, Untrusted
from clusterctl.translation import tr

MAX_ENTRIES = 100_000
MAX_BYTES = 100 << 30
LONGEST_PATH = 4095
LONGEST_NAME = 255
MAX_NAMES = 64 << 20  # bytes of all names of one node
ROW_VALUES = 9
MOST_FOLDERS = 100_000  # beyond three for each entry: a path of 4095 bytes can name two thousand

MAX_NAMED = 5  # of the files outside the output directory
LONGEST_FILE_NAME = 200
MAX_NUMBER = 1 << 63

META_FOLDER = ".clusterctl"  # of clusterctl itself, beside what has arrived
# what programs act on as soon as it is there: git and hg run the hooks in them, sshd lets in whom they name
ACTED_ON = frozenset({".git", ".hg", ".ssh"})
SHORT_NAMES = {
    f"{name[1:7]}~": name for name in (*ACTED_ON, META_FOLDER)
}  # by which a disk of Windows knows them too

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
    """One thing on a node; `index` is what the node calls it, `path` is where it would lie here.

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
    """What is not downloaded, and why."""

    path: str
    reason: str


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
        path, content = row.name(1, LONGEST_PATH), row.name(7, LONGEST_PATH)
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
    """Take what does no harm; `ignores_case` is a file system here that treats upper and lower case alike."""
    names = _Names(ignores_case, MOST_FOLDERS + 3 * len(entries))
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
    """Return what is wrong with an entry by itself; empty if nothing is."""
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
    if len(raw) > LONGEST_PATH or max(map(len, parts)) > LONGEST_NAME:
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
        """Take a name, or give the reason why it cannot be used."""
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
    """The files of one node that were not sent with the code, or changed since; `more`: not all were counted."""

    files: int
    bytes: int
    names: tuple[str, ...]
    more: bool = False


def parse_outside(raw: Untrusted) -> OutsideFiles | None:
    """Read what a node reports; None if it knows nothing, or if that makes no sense."""
    files, size = raw.integer("files", 0, MAX_NUMBER), raw.integer("bytes", 0, MAX_NUMBER)
    if files is None or size is None or not raw.is_list("names"):
        return None
    return OutsideFiles(files, size, raw.texts("names", MAX_NAMED, LONGEST_FILE_NAME), raw.flag("more"))


def with_outside_files(parts: Mapping[str, OutsideFiles | None]) -> dict[str, OutsideFiles]:
    """Keep the nodes that have such files."""
    return {name: files for name, files in parts.items() if files is not None and (files.files or files.more)}


def outside_to_json(files: OutsideFiles | None) -> OutsideFilesEntry | None:
    """Return the entry of one node; None where nothing is known."""
    return (
        None
        if files is None
        else {"files": files.files, "bytes": files.bytes, "names": list(files.names), "more": files.more}
    )
