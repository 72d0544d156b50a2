"""The source directory as it is now: walked, pruned, hashed."""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from clusterctl.client.sync.contents import Contents, StatCache, hash_still, stamp_of, unreadable
from clusterctl.errors import UsageError
from clusterctl.plans.sync.ignore import LARGEST, Ignore, rules_of
from clusterctl.plans.sync.manifest import (
    MAX_FILES,
    Entry,
    Manifest,
    check_limits,
    leaves_tree,
    manifest_of,
    text_of,
)

THREADS = min(8, (os.cpu_count() or 1) + 2)
GIVE_UP = 4 * MAX_FILES  # files after which a tree that is too large is not walked further


@dataclass(frozen=True)
class ScanResult:
    """A source tree, what should be said about it, and the way to its contents."""

    manifest: Manifest
    warnings: tuple[str, ...]
    root: Path
    contents: Contents = field(repr=False, compare=False)


def scan_source(
    source: str | Path, *, exclude: Sequence[str] = (), cache_dir: Path | None = None, big: bool = False
) -> ScanResult:
    """Walk and hash a source directory; `cache_dir` is a folder of ours for remembered hashes.

    Raises UsageError for a source that cannot be meant, is too large or has too many ignore rules, SyncError for
    files that cannot be read or that change while they are read.
    """
    root = checked_root(source)
    walk = _Walk(os.fsencode(root), big)
    walk.run(_rules_at(root, exclude))
    check_limits([(path, found.st_size) for path, found in walk.files], big=big, more=walk.gave_up)
    remembered = StatCache(cache_dir, walk.root)
    manifest = manifest_of([*walk.links, *walk.empty_folders(), *_hashed(walk, remembered)])
    remembered.save()
    if not manifest.entries:
        walk.warnings.append(f"nothing to send: {root} is empty, or all in it is ignored")
    return ScanResult(manifest, tuple(walk.warnings), root, Contents(walk.root, manifest))


def checked_root(source: str | Path) -> Path:
    """Resolve the source; refuse what is no directory, the root of the file system, and a whole home."""
    try:
        root = Path(source).expanduser().resolve(strict=True)
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise _refused(f"the source directory {source} cannot be used: {reason}") from None
    if not root.is_dir():
        raise _refused(f"the source {source} is not a directory")
    if root == Path("/"):
        raise _refused("the source is the root of the file system; it would be sent to every node")
    if _is_home(root):
        raise _refused(f"the source {root} is a whole home directory; it would be sent to every node")
    return root


def _is_home(root: Path) -> bool:
    try:
        return root.samefile(Path("~").expanduser())
    except (OSError, RuntimeError):
        return False


def _refused(message: str) -> UsageError:
    fix = "set sync: {source: ...} to the directory that holds the code, relative to the job file"
    return UsageError(message, code="CC-SYNC-001", fix=fix)


def _rules_at(root: Path, exclude: Sequence[str]) -> Ignore:
    """Read the `.gitignore` files between the top of the checkout, if there is one, and the source root."""
    top = next((folder for folder in (root, *root.parents) if (folder / ".git").exists()), root)
    inner = root.relative_to(top)
    above = []
    for depth in range(len(inner.parts)):
        folder = Path(*inner.parts[:depth])
        text = _read_gitignore(os.fsencode(top / folder))
        above.append((_as_text(folder), text or b""))
    return rules_of(exclude, prefix=_as_text(inner), above=above)


def _as_text(path: Path) -> str:
    return "" if path == Path() else os.fsencode(path).decode("utf-8", "surrogateescape")


def _read_gitignore(folder: bytes) -> bytes | None:
    """Read a `.gitignore`; like git, pass over one that is a link."""
    try:
        descriptor = os.open(folder + b"/.gitignore", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        return file.read(LARGEST + 1) if stat.S_ISREG(os.fstat(descriptor).st_mode) else None


@dataclass
class _Walk:
    root: bytes
    big: bool
    files: list[tuple[str, os.stat_result]] = field(default_factory=list)
    links: list[Entry] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def gave_up(self) -> bool:
        return not self.big and len(self.files) > GIVE_UP

    def run(self, rules: Ignore) -> None:
        """Collect what travels, folder by folder."""
        waiting = [("", rules)]
        while waiting and not self.gave_up:
            folder, ignore = waiting.pop()
            place = posixpath.join(self.root, folder.encode()) if folder else self.root
            entries = self._list(place, folder)
            if any(entry.name == b".gitignore" for entry in entries):
                ignore = self._enter(ignore, folder, place)
            for entry in entries:
                name = entry.name.decode("utf-8", "surrogateescape")
                path = f"{folder}/{name}" if folder else name
                if not ignore.ignores(path, entry.is_dir(follow_symlinks=False)) and self._keep(path, entry):
                    waiting.append((path, ignore))

    def empty_folders(self) -> Iterator[Entry]:
        """Give the folders that nothing else implies."""
        paths = [*self.folders, *(path for path, _ in self.files), *(link.path for link in self.links)]
        full = {posixpath.dirname(path) for path in paths}
        return (Entry(folder, "dir", 0, "") for folder in self.folders if folder not in full)

    def _list(self, place: bytes, folder: str) -> list[os.DirEntry[bytes]]:
        try:
            with os.scandir(place) as found:
                return list(found)
        except OSError as error:
            raise unreadable(folder or ".", error) from None

    def _enter(self, ignore: Ignore, folder: str, place: bytes) -> Ignore:
        text = _read_gitignore(place)
        if text is None:
            self.warnings.append(f"{posixpath.join(folder, '.gitignore')} is no readable file: not obeyed")
            return ignore
        return ignore.entering(folder, text)

    def _keep(self, path: str, entry: os.DirEntry[bytes]) -> bool:
        """Note an entry; True if it is a folder to walk into."""
        text_of(path.encode("utf-8", "surrogateescape"))
        if entry.is_dir(follow_symlinks=False):
            self.folders.append(path)
            return True
        try:
            found = entry.stat(follow_symlinks=False)
            if stat.S_ISLNK(found.st_mode):
                self._keep_link(path, text_of(os.readlink(entry.path)))  # noqa: PTH115 - a name in bytes
            elif stat.S_ISREG(found.st_mode):
                self.files.append((path, found))
            else:
                self.warnings.append(f"{path} is neither file, link nor directory: not sent")
        except OSError as error:
            raise unreadable(path, error) from None
        return False

    def _keep_link(self, path: str, target: str) -> None:
        self.links.append(Entry(path, "link", 0, target))
        if leaves_tree(path, target):
            self.warnings.append(f"link {path} points out of the source, to {target}: sent as it is")


def _hashed(walk: _Walk, remembered: StatCache) -> Iterator[Entry]:
    unknown = []
    for path, found in walk.files:
        sha = remembered.find(path, stamp_of(found))
        if sha is None:
            unknown.append(path)
        else:
            yield _entry(path, found, sha)
    if not unknown:
        return
    with ThreadPoolExecutor(THREADS, "hash") as pool:
        results = pool.map(lambda path: hash_still(walk.root, path), unknown)
        for path, (found, sha) in zip(unknown, results, strict=True):
            remembered.remember(path, stamp_of(found), sha)
            yield _entry(path, found, sha)


def _entry(path: str, found: os.stat_result, sha: str) -> Entry:
    mode = 0o755 if found.st_mode & stat.S_IXUSR else 0o644
    return Entry(path, "file", mode, sha, found.st_size)
