"""The directory here that one node's files go into: nothing is written outside of it or through a link.

DIR/<node>/...                    the downloaded files
DIR/.clusterctl/<node>.json       its index, so that unchanged files are recognised
DIR/.clusterctl/<node>.parts/     files that have not arrived whole yet
DIR/.clusterctl/<node>.lock       held by the one download that writes here

DIR/.clusterctl/homes.json        under which name the outputs of each shared work directory are kept

In a directory like /tmp another account may have made DIR/.clusterctl before: then it is not used.

That nodes share a work directory is accepted only if one of them has found the other's file there: each gets a mark
that no other node knows, and the first to come leaves its own for the others to find.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from clusterctl.client.files.node_files import NodeListing
from clusterctl.client.local.private_files import check_private, read_own, write_atomically
from clusterctl.client.sync.contents import stamp_of
from clusterctl.errors import LocalSystemError
from clusterctl.node_texts import describe_system_error
from clusterctl.plans.sync.listed_files import ACTED_ON, META_FOLDER, ListedEntry, Stamp, plain_name
from clusterctl.translation import tr

DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)
OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
VERSION = 1
MAX_INDEX_SIZE = 256 << 20  # bytes of the index of downloaded files
MAX_MTIME = 1 << 62  # nanoseconds; no sane file is younger
OPEN_TO_OTHERS = stat.S_ISVTX | stat.S_IWOTH  # /tmp, or any directory in which every account can write


@dataclass(frozen=True)
class ReceivedFile:
    """A downloaded file: its stamp on the node, its hash, and its stamp here."""

    remote_stamp: Stamp
    sha256: str
    local_stamp: Stamp


class PathOccupiedError(Exception):
    """Something here has the name that a file needs; the message names it."""


def prepare_target(folder: Path, *, hidden: bool = True) -> bool:
    """Make the target directory; returns whether its file system takes upper and lower case for the same.

    A directory that is made here is kept out of git and out of the code that is sent if it is `hidden`.
    """
    try:
        if not folder.exists():
            folder.mkdir(parents=True)
            if hidden:
                _hide(folder)
        return _prepare_meta(folder)
    except OSError as error:
        raise write_refused(error, folder) from error


def _prepare_meta(folder: Path) -> bool:
    """Make the place of what is not downloaded; returns the same; OSError if that cannot be.

    Who can write in a directory of a few accounts can change the results there in any case, so theirs is used.
    """
    meta = folder / META_FOLDER
    is_open = bool(folder.stat().st_mode & OPEN_TO_OTHERS)
    meta.mkdir(mode=0o700 if is_open else 0o777, exist_ok=True)
    if meta.is_symlink():
        raise NotADirectoryError(errno.ENOTDIR, tr("a link"), str(meta))
    if is_open and _has_modes(folder):
        check_private(meta)
    _hide(meta)
    return (folder / META_FOLDER.upper()).exists()


def _has_modes(folder: Path) -> bool:
    """Return whether a directory there can be closed to others: on a disk of Windows everything is open to all."""
    try:
        probe = Path(tempfile.mkdtemp(prefix=f"{META_FOLDER}-", dir=folder))
    except OSError:
        return True  # not known: then the stricter holds
    try:
        return not probe.stat().st_mode & 0o077
    finally:
        probe.rmdir()


def remove_meta(folder: Path, keys: Iterable[str]) -> None:
    """Remove what was kept under keys that no other download uses, and the place of it if nothing else is there."""
    meta = folder / META_FOLDER
    for key in keys:
        with suppress(OSError, LocalSystemError), _locked(meta / f"{key}.lock", folder):
            if (meta / f"{key}.parts").exists():
                (meta / f"{key}.parts").rmdir()  # not if something has arrived in part: then all of it stays
            for name in (f"{key}.json", f"{key}.lock"):
                (meta / name).unlink(missing_ok=True)
    with suppress(OSError):
        if os.listdir(meta) == [".gitignore"]:  # noqa: PTH208 - names
            (meta / ".gitignore").unlink()
            meta.rmdir()


def _hide(folder: Path) -> None:
    with suppress(FileExistsError), (folder / ".gitignore").open("x", encoding="ascii") as file:
        file.write("*\n")


def write_refused(error: OSError, path: Path) -> LocalSystemError:
    """Report that this machine cannot store what was downloaded."""
    if error.errno in DISK_FULL_ERRNOS:
        return LocalSystemError("CC-PULL-002", "write", path=path, reason=describe_system_error(error))
    name = error.filename if isinstance(error.filename, str) else path
    return LocalSystemError("CC-PULL-004", name=name, reason=describe_system_error(error))


@dataclass(frozen=True)
class UsersDirectory:
    """A directory with other files of the user: what was asked for by name, and whether it is new, or the home.

    A node can then add nothing to it that programs act on, and nothing in place of clusterctl's own files.
    """

    requested: Collection[str] = ()
    is_new: bool = False
    is_home: bool = False

    def find_problem(self, name: str, *, at_top: bool) -> str:
        """Return why nothing in a directory that was here before gets this name; empty if it may."""
        if not self.is_special(name, at_top=at_top):
            return ""
        if at_top and plain_name(name) == META_FOLDER:
            return tr("the name of clusterctl's own files")
        if at_top and (self.is_new or name in self.requested):
            return ""
        return tr("programs act on it; to copy it, name it in the command")

    def is_special(self, name: str, *, at_top: bool) -> bool:
        """Return whether it matters what was here before."""
        plain = plain_name(name)
        own = at_top and (plain == META_FOLDER or (self.is_home and plain.startswith(".")))
        return own or plain in ACTED_ON


class TargetDirectory:
    """One node's part of the target directory; used by one thread."""

    def __init__(self, target: Path, name: str, key: str = "", users: UsersDirectory | None = None) -> None:
        """Open `target / name`; with a `key` its index and parts have that name; `users` if it has other files too."""
        key = key or name
        self.path = target / name
        self._index = target / META_FOLDER / f"{key}.json"
        self._parts = target / META_FOLDER / f"{key}.parts"
        self._users, self._judged = users, dict[str, str]()
        try:
            for folder in (self.path, self._parts):
                folder.mkdir(exist_ok=True)
            with contextlib.ExitStack() as opened:
                # a link there would have what it leads to swept
                self._parts_descriptor = os.open(self._parts, OPEN_FOLDER)
                opened.callback(os.close, self._parts_descriptor)
                self._root = os.open(self.path, OPEN_FOLDER)
                opened.callback(os.close, self._root)
                self._lock_descriptor = _lock(target / META_FOLDER / f"{key}.lock", target)
                opened.pop_all()
        except OSError as error:
            raise write_refused(error, self.path) from error
        self.files, self._begun = _load(self._index)
        self._changed = False

    def __enter__(self) -> TargetDirectory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Save the index of what was downloaded."""
        os.close(self._root)
        os.close(self._parts_descriptor)
        try:
            if self._changed:
                with suppress(OSError):
                    _save(self._index, self.files, self._begun)
        finally:
            os.close(self._lock_descriptor)

    def find(self, path: str) -> os.stat_result | None:
        """Look what has a name here; PathOccupiedError if something above it is no directory."""
        try:
            with self._open_parent(path, make=False) as (parent, name):
                return os.stat(name, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            return None

    @contextmanager
    def open_file(self, path: str) -> Iterator[int]:
        """Open a file that was downloaded before."""
        with self._open_parent(path, make=False) as (folder, name):
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def partial_name(self, entry: ListedEntry) -> str:
        """Name a file that is on its way: the same file, unchanged there, is taken up again."""
        key = json.dumps([entry.path, entry.stamp]).encode("ascii")
        return hashlib.sha256(key).hexdigest()[:40]

    def open_partial(self, name: str, flags: int) -> int:
        """Open a file that is on its way."""
        flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        return os.open(name, flags, 0o666, dir_fd=self._parts_descriptor)

    @contextmanager
    def open_received(self, entry: ListedEntry) -> Iterator[int]:
        """Open what has arrived of a file before."""
        descriptor = self.open_partial(self.partial_name(entry), os.O_RDONLY)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def remove_partial(self, name: str) -> None:
        """Remove a file that was on its way."""
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._parts_descriptor)

    def install(self, partial: str, entry: ListedEntry, sha256: str) -> None:
        """Rename a complete file to its name, and set its time and mode."""
        parts = self._parts_descriptor
        with self._open_parent(entry.path, make=True) as (folder, name):
            if entry.mode is not None:
                self._set_mode(partial, entry.mode)
            if 0 < entry.stamp[1] < MAX_MTIME:
                with suppress(OSError, OverflowError):
                    times = (entry.stamp[1], entry.stamp[1])
                    os.utime(partial, ns=times, dir_fd=parts, follow_symlinks=False)
            os.replace(partial, name, src_dir_fd=parts, dst_dir_fd=folder)
            file_stat = os.stat(name, dir_fd=folder, follow_symlinks=False)
        self.record(entry, sha256, file_stat)

    def _set_mode(self, partial: str, mode: int) -> None:
        descriptor = self.open_partial(partial, os.O_RDONLY)
        try:
            os.fchmod(descriptor, restrict_mode(mode, os.fstat(descriptor).st_mode))
        finally:
            os.close(descriptor)

    def record(self, entry: ListedEntry, sha256: str, file_stat: os.stat_result) -> None:
        """Record a file as downloaded."""
        self.files[entry.path] = ReceivedFile(entry.stamp, sha256, stamp_of(file_stat))
        self._changed = True

    def make_folder(self, path: str) -> None:
        """Make an empty directory."""
        with self._open_parent(path, make=True) as (folder, name), suppress(FileExistsError):
            os.mkdir(name, dir_fd=folder)

    def make_link(self, path: str, target: str) -> bool:
        """Make a link; False if something else has its name."""
        link_target = target.encode("utf-8", "surrogateescape")
        with self._open_parent(path, make=True) as (folder, name):
            try:
                os.symlink(link_target, name, dir_fd=folder)
            except FileExistsError:
                return _points_to(name, link_target, folder)
        return True

    def remove_partials(self) -> None:
        """Remove what is left of files that changed before they had arrived."""
        with suppress(OSError):
            for partial in os.listdir(self._parts_descriptor):  # noqa: PTH208 - names
                self.remove_partial(partial)
            self._parts.rmdir()

    @contextmanager
    def _open_parent(self, path: str, *, make: bool) -> Iterator[tuple[int, bytes]]:
        """Open the directory that holds a path, one step after the other, none of them a link."""
        self._check_names(path)
        *folders, name = path.encode("utf-8", "surrogateescape").split(b"/")
        with contextlib.ExitStack() as stack:
            descriptor = self._root
            for folder in folders:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(folder, dir_fd=descriptor)
                descriptor = _open_folder(folder, descriptor)
                stack.callback(os.close, descriptor)
            yield descriptor, name

    def judge_names(self, paths: Iterable[str]) -> None:
        """Look which of these names may be used, before anything is made; a copy that uses one may have made it."""
        for path in paths:
            with suppress(PathOccupiedError):
                self._check_names(path)

    def _check_names(self, path: str) -> None:
        """Raise PathOccupiedError for a path that leads to something of the user that programs act on."""
        if self._users is None:
            return
        above = ""
        for name in path.split("/"):
            here = f"{above}/{name}" if above else name
            if here not in self._judged and self._users.is_special(name, at_top=not above):
                self._judged[here] = self._find_problem(self._users, above, name)
            if self._judged.get(here):
                raise PathOccupiedError(self._judged[here])
            above = here

    def _find_problem(self, users: UsersDirectory, above: str, name: str) -> str:
        """Judge a name: in a directory that was not here before, all is the node's, also for the rest of that copy."""
        here = f"{above}/{name}" if above else name
        is_new = not os.path.lexists(self.path / above) if above else users.is_new
        problem = "" if is_new and above else users.find_problem(name, at_top=not above)
        if is_new and not problem:
            self._begun.add(here)
            self._changed = True
        begun = here in self._begun or any(known.startswith(f"{here}/") for known in self.files)
        return "" if begun else problem


def _lock(file: Path, target: Path) -> int:
    """Keep a second download from writing into the same parts; the lock ends with the descriptor."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise LocalSystemError("CC-PULL-007", target=target) from error
    except OSError:
        pass  # a file system without locks
    return descriptor


@contextmanager
def _locked(file: Path, target: Path) -> Iterator[None]:
    descriptor = _lock(file, target)
    try:
        yield
    finally:
        os.close(descriptor)


def _open_folder(folder: bytes, parent: int) -> int:
    try:
        return os.open(folder, OPEN_FOLDER, dir_fd=parent)
    except (NotADirectoryError, OSError) as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            shown = folder.decode("utf-8", "replace")
            raise PathOccupiedError(tr("{name} is a link or a file here", name=shown)) from error
        raise


def _points_to(name: bytes, target: bytes, folder: int) -> bool:
    try:
        return os.readlink(name, dir_fd=folder) == target
    except OSError:
        return False


class IndexFile(TypedDict, total=False):
    """The index: for each path the stamp there, the content's sha256, and the stamp here.

    `begun` are names that programs act on and that came in a new directory; older versions did not write it.
    """

    version: int
    files: dict[str, list[Any]]
    begun: list[str]


def _load(file: Path) -> tuple[dict[str, ReceivedFile], set[str]]:
    """Read the index; a missing or damaged one knows nothing."""
    try:
        data: IndexFile = json.loads(read_own(file, MAX_INDEX_SIZE))
        rows = data["files"] if data["version"] == VERSION else {}
        files = {
            path: ReceivedFile(_stamp(row[0]), str(row[1]), _stamp(row[2])) for path, row in rows.items()
        }
        return files, set(map(str, data.get("begun", ())))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError):
        return {}, set()


def _stamp(row: list[int]) -> Stamp:
    first, second, third, fourth = map(int, row)
    return first, second, third, fourth


def _save(file: Path, files: dict[str, ReceivedFile], begun: Collection[str]) -> None:
    rows = {
        path: [received.remote_stamp, received.sha256, received.local_stamp]
        for path, received in files.items()
    }
    data: IndexFile = {"version": VERSION, "files": rows}
    if begun:
        data["begun"] = sorted(begun)
    write_atomically(file, json.dumps(data))


def restrict_mode(mode: int, new: int) -> int:
    """Return a mode for a file that arrived: only its owner may write it, others have no more than in a new file."""
    readable = new & 0o444
    return 0o600 | (mode & 0o755 & (readable | readable >> 2 | 0o300))


def is_regular(file_stat: os.stat_result) -> bool:
    """Return whether a name here is an ordinary file."""
    return stat.S_ISREG(file_stat.st_mode)


@dataclass(frozen=True)
class SharedHome:
    """The name under which a work directory's outputs are kept, and the nodes that shared it."""

    name: str
    nodes: frozenset[str]


def group_by_workdir(listed: Mapping[str, NodeListing], marks: Mapping[str, str]) -> list[list[str]]:
    """Put nodes together that share a work directory: they found the same mark, as did the node that was given it."""
    owners = {mark: name for name, mark in marks.items()}
    groups: dict[str, list[str]] = {}
    for name, listing in listed.items():
        first = owners.get(listing.mark)
        confirmed = first is not None and first in listed and listed[first].mark == listing.mark
        groups.setdefault(first if first is not None and confirmed else f"{name}/", []).append(name)
    return list(groups.values())


def name_shared_homes(
    groups: Sequence[Sequence[str]], listed: Mapping[str, NodeListing], target: Path
) -> dict[str, str]:
    """Name each group by its first node, or as it was named before, also by one that does not answer now.

    Gives the names by each group's first node. A name of before counts for those alone who shared the directory then:
    by its id, which a node may forge, none gets the name of another.
    """
    file = target / META_FOLDER / "homes.json"
    homes = _load_homes(file)
    names: dict[str, str] = {}
    for group in groups:
        workdir_id = listed[group[0]].workdir_id
        home = homes.get(workdir_id) if workdir_id else None
        previous = home.name if home and home.nodes & set(group) else ""
        keeps_name = previous in group or (
            previous and previous not in listed and previous not in names.values()
        )
        names[group[0]] = previous if keeps_name else group[0]
        if workdir_id and len(group) > 1:
            sharing = {*group, *(home.nodes if home and previous else ())}
            homes[workdir_id] = SharedHome(names[group[0]], frozenset(sharing))
    if homes:
        with suppress(OSError):
            write_atomically(
                file,
                json.dumps(
                    {
                        workdir_id: [shared_home.name, sorted(shared_home.nodes)]
                        for workdir_id, shared_home in homes.items()
                    }
                ),
            )
    return names


def choose_fetching_node(group: Sequence[str], home: str) -> str:
    """Choose the node that sends a group's outputs: the one whose name they have, the only one that writes there."""
    return home if home in group else group[0]


def _load_homes(file: Path) -> dict[str, SharedHome]:
    """Read who shared which work directory; an older version wrote the name alone."""
    try:
        raw = json.loads(read_own(file))
        pairs = (
            (str(workdir_id), (entry, [entry]) if isinstance(entry, str) else entry)
            for workdir_id, entry in raw.items()
        )
        homes = {
            workdir_id: SharedHome(str(name), frozenset(map(str, nodes)))
            for workdir_id, (name, nodes) in pairs
        }
        return {workdir_id: home for workdir_id, home in homes.items() if _is_name(home.name)}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return {}


def _is_name(name: str) -> bool:
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name
