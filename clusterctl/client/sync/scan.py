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
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from clusterctl.client.local.programs import ProgramLimits, run_program
from clusterctl.client.sync.contents import Contents, StatCache, hash_stable_file, stamp_of, unreadable
from clusterctl.errors import UsageError
from clusterctl.node_texts import describe_system_error
from clusterctl.plans.sync.ignore import MAX_GITIGNORE, IgnoreRules, anchored, make_ignore_rules
from clusterctl.plans.sync.manifest import (
    MAX_FILES,
    MAX_NAMED_FILES,
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
    """A tree to send, its warnings, and access to its contents; `private`: only the account may read some of it.

    `added` are files at its top that are elsewhere on this machine.
    """

    manifest: Manifest
    warnings: tuple[str, ...]
    root: Path
    contents: Contents = field(repr=False, compare=False)
    private: bool = False
    added: Mapping[str, Path] = field(default_factory=dict)

    def path_of(self, name: str) -> Path:
        """Return where a file of the tree is on this machine."""
        return self.added.get(name, self.root / name)

    def with_file(self, path: Path) -> ScanResult:
        """Return the tree with one more file at its top."""
        manifest = make_manifest([*self.manifest.entries, *scan_files(str(path), path.name).manifest.entries])
        added = {path.name: path.resolve()}
        contents = Contents(os.fsencode(self.root), manifest, added=added)
        return replace(self, manifest=manifest, contents=contents, added=added)


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
    walk = _SourceWalk(root, None if big else MAX_WALKED_FILES, exclude)
    walk.run()
    check_limits(
        [(path, file_stat.st_size) for path, file_stat in walk.files], allow_big=big, incomplete=walk.gave_up
    )
    cache = StatCache(cache_dir, walk.root)
    manifest = walk.hash_all(cache, progress)
    cache.save()
    if not manifest.entries:
        walk.warnings.append(tr("nothing to send: {root} is empty or everything in it is ignored", root=root))
    return ScanResult(manifest, tuple(walk.warnings), root, Contents(walk.root, manifest))


def scan_files(
    source: str, name: str, cache_dir: Path | None = None, progress: ScanProgress = UNSEEN
) -> ScanResult:
    """Walk and hash a file or a directory of this machine; nothing is left out but what is no file.

    `cache_dir` is a folder of ours for remembered hashes. With a name all paths begin with it. UsageError if there is
    nothing, SyncError for what cannot be read.
    """
    decode_name(os.fsencode(name))  # refused like any name below it
    try:
        top = Path(source).expanduser().resolve(strict=True)
        is_folder = top.is_dir()
    except (OSError, RuntimeError) as error:
        raise UsageError("CC-COPY-002", "here", path=source, reason=describe_system_error(error)) from None
    walk = Walk(top if is_folder else top.parent, MAX_NAMED_FILES)
    if is_folder:
        walk.run()
    else:
        walk.add(decode_name(os.fsencode(top.name)), top)
    if walk.gave_up:
        raise UsageError("CC-SYNC-002", "files", count=len(walk.files), most=MAX_NAMED_FILES)
    cache = StatCache(cache_dir, walk.root if is_folder else os.fsencode(top))
    manifest = walk.hash_all(cache, progress)
    cache.save()
    prefix = f"{name}/" if name else ""
    shown = [
        entry._replace(path=(prefix + entry.path) if is_folder else name or entry.path)
        for entry in manifest.entries
    ]
    if is_folder and name and not shown:
        shown = [TreeEntry(name, "dir", 0, "")]
    listed = make_manifest(shown)
    private = any(not file_stat.st_mode & 0o077 for _, file_stat in walk.files)
    contents = Contents(walk.root, manifest, listed=listed)
    return ScanResult(listed, tuple(walk.warnings), walk.source, contents, private)


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
        return file.read(MAX_GITIGNORE + 1) if stat.S_ISREG(os.fstat(descriptor).st_mode) else None


@dataclass
class Walk:
    """Files, links and directories below a root; after more than `most` files it goes no further."""

    source: Path
    most: int | None = None
    files: list[tuple[str, os.stat_result]] = field(default_factory=list)
    links: list[TreeEntry] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def root(self) -> bytes:
        """The root as the system names it."""
        return os.fsencode(self.source)

    @property
    def gave_up(self) -> bool:
        """Return whether there are more files than were to be found."""
        return self.most is not None and len(self.files) > self.most

    def run(self) -> None:
        """Collect what is sent, folder by folder."""
        pending = [""]
        while pending and not self.gave_up:
            folder = pending.pop()
            absolute = posixpath.join(self.root, folder.encode()) if folder else self.root
            try:
                with os.scandir(absolute) as scanner:
                    entries = list(scanner)
            except OSError as error:
                raise unreadable(folder or ".", error) from None
            self.enter(folder, absolute, {entry.name for entry in entries})
            for entry in entries:
                name = entry.name.decode("utf-8", "surrogateescape")
                path = f"{folder}/{name}" if folder else name
                is_dir = entry.is_dir(follow_symlinks=False)
                if self.ignores(folder, path, is_dir=is_dir):
                    continue
                if is_dir:
                    self.folders.append(decode_name(os.fsencode(path)))
                    pending.append(path)
                else:
                    self.add(path, entry)

    def enter(self, folder: str, absolute: bytes, names: Collection[bytes]) -> None:
        """Take notice of the names in a directory, before they are added."""

    def ignores(self, folder: str, path: str, *, is_dir: bool) -> bool:  # noqa: ARG002 - for those who ignore something
        """Return whether something in a directory is not sent."""
        return False

    def add(self, path: str, entry: os.DirEntry[bytes] | Path) -> None:
        """Add what is no directory."""
        decode_name(os.fsencode(path))
        try:
            file_stat = entry.lstat() if isinstance(entry, Path) else entry.stat(follow_symlinks=False)
            if stat.S_ISLNK(file_stat.st_mode):
                target = decode_name(os.readlink(os.fsencode(entry)))  # noqa: PTH115 - a name in bytes
                self.links.append(TreeEntry(path, "link", 0, target))
            elif stat.S_ISREG(file_stat.st_mode):
                self.files.append((path, file_stat))
            else:
                self.warnings.append(tr("{path} is not a file, link or directory: not sent", path=path))
        except OSError as error:
            raise unreadable(path, error) from None

    def hash_all(self, cache: StatCache, progress: ScanProgress = UNSEEN) -> Manifest:
        """Hash the files that the cache does not know, and return the tree."""
        return make_manifest(
            [*self.links, *self._empty_folders(), *hash_files(self.root, self.files, cache, progress)]
        )

    def _empty_folders(self) -> Iterator[TreeEntry]:
        """Return the folders that nothing else implies."""
        paths = [*self.folders, *(path for path, _ in self.files), *(link.path for link in self.links)]
        non_empty = {posixpath.dirname(path) for path in paths}
        return (TreeEntry(folder, "dir", 0, "") for folder in self.folders if folder not in non_empty)


class _SourceWalk(Walk):
    """A source tree without what is ignored."""

    def __init__(self, source: Path, most: int | None, exclude: Sequence[str]) -> None:
        super().__init__(source, most)
        top = _find_top(source)
        self.git_ignored = list_git_ignored(source, top, exclude)  # None: there is no git
        rules = _rules_above(source, top, exclude) if self.git_ignored is None else make_ignore_rules(exclude)
        self._rules = {"": rules}  # by directory

    def enter(self, folder: str, absolute: bytes, names: Collection[bytes]) -> None:
        """Apply the rules of a directory."""
        self._rules.setdefault(folder, self._rules[posixpath.dirname(folder)])
        if b".gitignore" in names:
            self._rules[folder] = self._apply_gitignore(self._rules[folder], folder, absolute)
        if folder and b".git" in names:
            self._add_repository(folder)

    def ignores(self, folder: str, path: str, *, is_dir: bool) -> bool:
        """Return whether git or a pattern ignores it."""
        by_git = (path + "/" * is_dir) in (self.git_ignored or ())
        return self._rules[folder].ignores(path, is_dir, by_git)

    def add(self, path: str, entry: os.DirEntry[bytes] | Path) -> None:
        """Warn of a link that leads out of the tree."""
        super().add(path, entry)
        link = self.links[-1] if self.links and self.links[-1].path == path else None
        if link is not None and leaves_tree(path, link.content):
            self.warnings.append(
                tr(
                    "link {path} points outside the source, to {target}: sent unchanged",
                    path=path,
                    target=link.content,
                )
            )

    def _add_repository(self, folder: str) -> None:
        """Add what git ignores in a repository inside the source, such as a submodule: git reads each by itself."""
        if self.git_ignored is not None:
            inner = self.source / folder
            names = list_git_ignored(inner, inner, ()) or ()
            self.git_ignored |= {f"{folder}/{name}" for name in names}

    def _apply_gitignore(self, ignore: IgnoreRules, folder: str, absolute: bytes) -> IgnoreRules:
        text = _read_gitignore(absolute)
        if text is None:
            path = posixpath.join(folder, ".gitignore")
            self.warnings.append(tr("{path} is not a readable file: ignored", path=path))
            return ignore
        return ignore.with_gitignore(folder, text) if self.git_ignored is None else ignore


def hash_files(
    root: bytes,
    files: Sequence[tuple[str, os.stat_result]],
    cache: StatCache,
    progress: ScanProgress = UNSEEN,
) -> Iterator[TreeEntry]:
    """Yield the entries of files below a root; those that the cache does not know are hashed, some at a time."""
    unknown = []
    for path, file_stat in files:
        sha = cache.find(path, stamp_of(file_stat))
        if sha is None:
            unknown.append((path, file_stat.st_size))
        else:
            yield _entry(path, file_stat, sha)
    if not unknown:
        return
    progress.add_expected(sum(size for _, size in unknown))
    with ThreadPoolExecutor(THREADS, "hash") as pool:
        results = pool.map(lambda one: hash_stable_file(root, one[0], progress.add_bytes), unknown)
        for (path, _), (file_stat, sha) in zip(unknown, results, strict=True):
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
