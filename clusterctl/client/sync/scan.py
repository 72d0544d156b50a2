"""The source directory as it is now: walked, pruned, hashed.

What git ignores is found by git itself, with an empty repository in a temporary directory: an index, hooks, owners and
settings of the user or of the tree change nothing. The same tree gives the same result on every machine, and a tree of
another person runs no program.
"""

from __future__ import annotations

import os
import posixpath
import stat
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from clusterctl.client.local.programs import ProgramLimits, run_program
from clusterctl.client.sync.contents import Contents, StatCache, hash_stable_file, stamp_of, unreadable
from clusterctl.errors import UsageError
from clusterctl.node_texts import describe_system_error
from clusterctl.plans.sync.ignore import LARGEST_GITIGNORE, IgnoreRules, anchored, make_ignore_rules
from clusterctl.plans.sync.manifest import (
    MAX_FILES,
    Manifest,
    check_limits,
    decode_name,
    leaves_tree,
    make_manifest,
)
from clusterctl.protocol.manifest import TreeEntry
from clusterctl.translation import tr

THREADS = min(8, (os.cpu_count() or 1) + 2)
MAX_WALKED_FILES = 4 * MAX_FILES  # files after which a tree that is too large is not walked further
GIT_LIMITS = ProgramLimits(30.0, 64 << 20)
NO_SETTINGS = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
IGNORED = 0  # exit code of `git check-ignore`


@dataclass(frozen=True)
class ScanResult:
    """A source tree, its warnings, and access to its contents."""

    manifest: Manifest
    warnings: tuple[str, ...]
    root: Path
    contents: Contents = field(repr=False, compare=False)


class ScanProgress(Protocol):
    """Receives how much is to be hashed, and what was; from many threads."""

    def add_expected(self, count: int) -> None:
        """So many bytes are going to be hashed."""

    def add_bytes(self, count: int) -> None:
        """So many bytes have been hashed."""


class _Unseen:
    """Receives it where no progress is shown."""

    def add_expected(self, count: int) -> None:
        """Do nothing."""

    def add_bytes(self, count: int) -> None:
        """Do nothing."""


UNSEEN = _Unseen()


def scan_source(
    source: str | Path,
    *,
    exclude: Sequence[str] = (),
    cache_dir: Path | None = None,
    big: bool = False,
    progress: ScanProgress = UNSEEN,
) -> ScanResult:
    """Walk and hash a source directory; `cache_dir` is a folder of ours for remembered hashes.

    Raises UsageError for a source that cannot be meant, is too large or has too many ignore rules, SyncError for
    files that cannot be read or that change while they are read.
    """
    root = checked_root(source)
    walk = _Walk(root, exclude, big)
    walk.run()
    check_limits(
        [(path, file_stat.st_size) for path, file_stat in walk.files], allow_big=big, incomplete=walk.gave_up
    )
    cache = StatCache(cache_dir, walk.root)
    manifest = make_manifest([*walk.links, *walk.empty_folders(), *_hashed(walk, cache, progress)])
    cache.save()
    if not manifest.entries:
        walk.warnings.append(tr("nothing to send: {root} is empty or everything in it is ignored", root=root))
    return ScanResult(manifest, tuple(walk.warnings), root, Contents(walk.root, manifest))


def checked_root(source: str | Path) -> Path:
    """Resolve the source; refuse what is no directory, the root of the file system, and a whole home."""
    try:
        root = Path(source).expanduser().resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise UsageError("CC-SYNC-001", source=source, reason=describe_system_error(error)) from None
    if not root.is_dir():
        raise UsageError("CC-SYNC-001", "no-directory", source=source)
    if root == Path("/"):
        raise UsageError("CC-SYNC-001", "root")
    if _is_home(root):
        raise UsageError("CC-SYNC-001", "home", source=root)
    return root


def _is_home(root: Path) -> bool:
    try:
        return root.samefile(Path("~").expanduser())
    except (OSError, RuntimeError):
        return False


def _find_top(root: Path) -> Path:
    """Return the top of the git checkout that a folder is in, or the folder itself."""
    return next((folder for folder in (root, *root.parents) if (folder / ".git").exists()), root)


def _rules_above(root: Path, top: Path, exclude: Sequence[str]) -> IgnoreRules:
    """Read the `.gitignore` files between the top of the checkout and the source root."""
    inner = root.relative_to(top)
    above = []
    for depth in range(len(inner.parts)):
        folder = Path(*inner.parts[:depth])
        text = _read_gitignore(os.fsencode(top / folder))
        above.append((_as_text(folder), text or b""))
    return make_ignore_rules(exclude, prefix=_as_text(inner), above=above)


def _as_text(path: Path) -> str:
    return "" if path == Path() else os.fsencode(path).decode("utf-8", "surrogateescape")


def _read_gitignore(folder: bytes) -> bytes | None:
    """Read a `.gitignore`; like git, pass over one that is a link."""
    try:
        descriptor = os.open(folder + b"/.gitignore", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        return file.read(LARGEST_GITIGNORE + 1) if stat.S_ISREG(os.fstat(descriptor).st_mode) else None


@dataclass
class _Walk:
    source: Path
    exclude: Sequence[str]
    big: bool
    git_ignored: frozenset[str] | None = None  # None: there is no git
    files: list[tuple[str, os.stat_result]] = field(default_factory=list)
    links: list[TreeEntry] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def root(self) -> bytes:
        """The source root as the system names it."""
        return os.fsencode(self.source)

    @property
    def gave_up(self) -> bool:
        return not self.big and len(self.files) > MAX_WALKED_FILES

    def run(self) -> None:
        """Collect what is sent, folder by folder."""
        top = _find_top(self.source)
        self.git_ignored = list_git_ignored(self.source, top, self.exclude)
        rules = make_ignore_rules(self.exclude)
        pending = [("", _rules_above(self.source, top, self.exclude) if self.git_ignored is None else rules)]
        while pending and not self.gave_up:
            folder, ignore = pending.pop()
            absolute = posixpath.join(self.root, folder.encode()) if folder else self.root
            entries = self._list(absolute, folder)
            names = {entry.name for entry in entries}
            if b".gitignore" in names:
                ignore = self._apply_gitignore(ignore, folder, absolute)
            if folder and b".git" in names:
                self._add_repository(folder)
            for entry in entries:
                name = entry.name.decode("utf-8", "surrogateescape")
                path = f"{folder}/{name}" if folder else name
                is_dir = entry.is_dir(follow_symlinks=False)
                by_git = (path + "/" * is_dir) in (self.git_ignored or ())
                if not ignore.ignores(path, is_dir, by_git) and self._record_entry(path, entry):
                    pending.append((path, ignore))

    def _add_repository(self, folder: str) -> None:
        """Add what git ignores in a repository inside the source, such as a submodule: git reads each by itself."""
        if self.git_ignored is not None:
            inner = self.source / folder
            names = list_git_ignored(inner, inner, ()) or ()
            self.git_ignored |= {f"{folder}/{name}" for name in names}

    def empty_folders(self) -> Iterator[TreeEntry]:
        """Return the folders that nothing else implies."""
        paths = [*self.folders, *(path for path, _ in self.files), *(link.path for link in self.links)]
        non_empty = {posixpath.dirname(path) for path in paths}
        return (TreeEntry(folder, "dir", 0, "") for folder in self.folders if folder not in non_empty)

    def _list(self, absolute: bytes, folder: str) -> list[os.DirEntry[bytes]]:
        try:
            with os.scandir(absolute) as entries:
                return list(entries)
        except OSError as error:
            raise unreadable(folder or ".", error) from None

    def _apply_gitignore(self, ignore: IgnoreRules, folder: str, absolute: bytes) -> IgnoreRules:
        text = _read_gitignore(absolute)
        if text is None:
            path = posixpath.join(folder, ".gitignore")
            self.warnings.append(tr("{path} is not a readable file: ignored", path=path))
            return ignore
        return ignore.with_gitignore(folder, text) if self.git_ignored is None else ignore

    def _record_entry(self, path: str, entry: os.DirEntry[bytes]) -> bool:
        """Note an entry; True if it is a folder to walk into."""
        decode_name(path.encode("utf-8", "surrogateescape"))
        if entry.is_dir(follow_symlinks=False):
            self.folders.append(path)
            return True
        try:
            file_stat = entry.stat(follow_symlinks=False)
            if stat.S_ISLNK(file_stat.st_mode):
                self._record_link(path, decode_name(os.readlink(entry.path)))  # noqa: PTH115 - a name in bytes
            elif stat.S_ISREG(file_stat.st_mode):
                self.files.append((path, file_stat))
            else:
                self.warnings.append(tr("{path} is not a file, link or directory: not sent", path=path))
        except OSError as error:
            raise unreadable(path, error) from None
        return False

    def _record_link(self, path: str, target: str) -> None:
        self.links.append(TreeEntry(path, "link", 0, target))
        if leaves_tree(path, target):
            self.warnings.append(
                tr(
                    "link {path} points outside the source, to {target}: sent unchanged",
                    path=path,
                    target=target,
                )
            )


def _hashed(walk: _Walk, cache: StatCache, progress: ScanProgress) -> Iterator[TreeEntry]:
    unknown, size = [], 0
    for path, file_stat in walk.files:
        sha = cache.find(path, stamp_of(file_stat))
        if sha is None:
            unknown.append(path)
            size += file_stat.st_size
        else:
            yield _entry(path, file_stat, sha)
    if not unknown:
        return
    progress.add_expected(size)
    with ThreadPoolExecutor(THREADS, "hash") as pool:
        results = pool.map(lambda path: hash_stable_file(walk.root, path, progress.add_bytes), unknown)
        for path, (file_stat, sha) in zip(unknown, results, strict=True):
            cache.remember(path, stamp_of(file_stat), sha)
            yield _entry(path, file_stat, sha)


def _entry(path: str, file_stat: os.stat_result, sha: str) -> TreeEntry:
    mode = 0o755 if file_stat.st_mode & stat.S_IXUSR else 0o644
    return TreeEntry(path, "file", mode, sha, file_stat.st_size)


def list_git_ignored(folder: Path, top: Path, exclude: Sequence[str]) -> frozenset[str] | None:
    """Return the ignored files and, with a slash at the end, directories below a folder; None without git.

    `top` is the top of the checkout, whose rules count too; where they ignore the folder itself, only its own do.
    `exclude` keeps git out of directories that are not sent anyway.
    """
    try:
        with TemporaryDirectory(prefix="clusterctl-git-") as repository:
            _make_repository(Path(repository))
            if (
                folder != top
                and _run_git(repository, top, top, "check-ignore", "-q", "--", str(folder))[0] == IGNORED
            ):
                top = folder
            prefix = "" if folder == top else str(folder.relative_to(top))
            rules = [f"--exclude={anchored(line, prefix)}" for line in exclude if line.strip("!/ ")]
            rules.append("--exclude-per-directory=.gitignore")
            status, output = _run_git(
                repository, top, folder, "ls-files", "-o", "-i", "--directory", "-z", *rules
            )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return _without_full_directories(output) if status == 0 else None


def _make_repository(folder: Path) -> None:
    """Make the least that git takes for a repository: no settings, no hooks, no index."""
    for name in ("objects", "refs"):
        (folder / name).mkdir()
    (folder / "HEAD").write_text("ref: refs/heads/main\n", encoding="ascii")


def _run_git(repository: str, top: Path, folder: Path, *arguments: str) -> tuple[int, bytes]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"GIT_DIR": repository, "GIT_WORK_TREE": str(top), **NO_SETTINGS}
    command = ["git", "-c", f"core.excludesFile={os.devnull}", "-C", str(folder), *arguments]
    status, stdout, _ = run_program(command, GIT_LIMITS, environment)
    return status, stdout


def _without_full_directories(output: bytes) -> frozenset[str]:
    """Leave out the directories that git lists only because all that is in them is ignored: they are sent empty."""
    names = {name.decode("utf-8", "surrogateescape") for name in output.split(b"\0") if name}
    return frozenset(names - {name.rstrip("/").rpartition("/")[0] + "/" for name in names} - {"./"})
