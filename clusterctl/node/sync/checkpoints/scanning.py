"""What the script writes: matches of the job's pattern, and when one of them has settled.

A file counts if it is new or changed since `begin`. A match has settled when its files were the same in so many looks
and no process has one of them open for writing; a look during which ranks may have died counts for nothing.
"""

from __future__ import annotations

import fnmatch
import os
import stat
from contextlib import suppress
from threading import Event
from typing import Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

from ....protocol.manifest import decode_name, encode_name
from ....protocol.messages.checkpoints import MAX_NAME
from ...runtime.processes import all_pids
from ..removal import list_entries
from .kept import is_inside

MAX_FILES = 100_000  # of a match; one with more is not kept
OWN_PREFIX = ".clusterctl-"  # files that transfers write beside those that they become
UNCHANGED = 2  # looks in which a match is the same; one where the job names the file that is written last
ABSENT = 3  # looks without any file, after which a node has none of a checkpoint that others have
ABSENT_FIRST = (
    15  # the same, where no file shows that all have been written, until the node has had none of one
)
ABSENT_WRITER = (
    150  # the same for a node that has written others, where no file shows that all have been written
)
ACCESS_MODE = 0o3  # of the flags of an open file
HALF = "it was begun before its node could watch it"
IGNORE_WRITERS = 10  # looks in which nothing has changed although a file is open for writing


class Stamp(NamedTuple):
    """What is unchanged while a file is not written to; `link`: where a link leads."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    link: str
    is_executable: bool


Stamps = Dict[str, Stamp]  # by paths below the directory of the pattern


class UnusableError(Exception):
    """A match that cannot be kept; the text gives the reason."""


class Found(NamedTuple):
    """What a look has found of a generation: `marked`; if that is collected `same`, `settled` or `absent`; `late`.

    `unusable`: it cannot be kept; `why` is the reason.
    """

    event: str
    name: str
    identity: str
    stamps: Stamps
    why: str = ""


class Match:
    """A file or directory of the pattern, as it was at the last look."""

    def __init__(self, stamps: Stamps, identity: str, marker: Optional[Stamp]) -> None:
        self.stamps, self.identity, self.marker = stamps, identity, marker
        self.unchanged = 0

    def follows(self, before: Match) -> None:
        """Count the looks since which it is as before."""
        self.unchanged = before.unchanged + 1 if before.stamps == self.stamps else 0

    @property
    def written(self) -> int:
        """Return when it was written (ns, by the clock of this node, for an order of its matches alone)."""
        return max(stamp.ctime_ns for stamp in ([self.marker] if self.marker else self.stamps.values()))


class Collection:
    """A generation that the hub asks for."""

    def __init__(self, identity: str, *, is_first: bool) -> None:
        self.identity, self.is_first = identity, is_first
        self.absent = 0  # looks


class Scanner:
    """The matches of one attempt; all methods but `pause` belong to one thread."""

    def __init__(self, pattern: str, complete: str) -> None:
        folder, self._pattern = os.path.split(pattern)
        self.folder = encode_name(folder)
        self._complete = complete
        self.paused = Event()  # set by another thread: ranks may have died
        self.paused.set()
        self._baseline: Dict[str, Stamps] = {}
        self._unusable: Set[str] = set()  # names of what is reported, or was there before
        self._halves: Dict[str, int] = {}  # inodes of what may have been written by half before
        self._matches: Dict[str, Match] = {}
        self._marked: Dict[str, Stamps] = {}
        self._collections: Dict[str, Collection] = {}
        self._absent_limit = ABSENT
        self._absent: Set[str] = set()  # generations of which there was no file when they were collected

    def begin(self, *, is_late: bool = False) -> None:
        """Begin an attempt: nothing that is there now counts; who calls this clears `paused`.

        If this is late, ranks run: what they write on to was not seen whole, and does not count before it is replaced.
        """
        self._matches, self._marked, self._collections, self._absent = {}, {}, {}, set()
        self._absent_limit = ABSENT if self._complete else ABSENT_FIRST
        problems: Dict[str, str] = {}
        found = list(self._walk(problems))
        self._baseline = {name: stamps for name, stamps, _ in found}
        self._halves = {name: top.inode for name, _, top in found} if is_late else {}
        self._unusable = {*problems, *self._halves}

    def collect(self, name: str, identity: str, *, is_first: bool) -> None:
        """Find a generation, at the next looks; one that is asked for later takes the place of an earlier one."""
        self._collections = {name: Collection(identity, is_first=is_first)}

    def scan(self) -> List[Found]:
        """Look once; nothing is found if ranks may have died meanwhile."""
        if self.paused.is_set():
            return []
        broken: Dict[str, str] = {}
        matches = dict(self._read_matches(broken))
        if self.paused.is_set():
            return []
        for name, match in matches.items():
            if name in self._matches:
                match.follows(self._matches[name])
        self._matches = matches
        unusable = [
            Found("unusable", name, "", {}, broken[name]) for name in sorted(broken.keys() - self._unusable)
        ]
        self._unusable.update(broken)
        return [*unusable, *self._find_late(matches), *self._find_marked(), *self._find_collected(broken)]

    def refuse(self, found: List[Found], why: str) -> List[Found]:
        """Return what counts of a look that may have seen files of others: what is collected is not read."""
        refused = [one.name for one in found if one.event in ("same", "settled", "absent")] + [
            *self._collections
        ]
        self._collections = {}
        late = [one for one in found if one.event == "late"]
        return late + [Found("absent", name, "", {}, why) for name in refused]

    def find_late(self) -> List[Found]:
        """Look once more, after `paused` is set, for files of what had none: they need not have settled."""
        return list(self._find_late(dict(self._read_matches({})))) if self._absent else []

    def _find_late(self, matches: Dict[str, Match]) -> Iterator[Found]:
        for name in self._absent & matches.keys():
            self._absent.discard(name)
            yield Found("late", name, "", {})

    def _read_matches(self, broken: Dict[str, str]) -> Iterator[Tuple[str, Match]]:
        for name, stamps, top in self._walk(broken):
            if self._halves.get(name) == top.inode:
                broken[name] = HALF
                continue
            before = self._baseline.get(name, {})
            fresh = {path: stamp for path, stamp in stamps.items() if before.get(path) != stamp}
            if fresh:
                marker = fresh.get(f"{name}/{self._complete}") if self._complete else None
                shown = marker or top
                yield name, Match(fresh, f"{shown.inode}:{shown.ctime_ns}", marker)

    def _walk(self, problems: Dict[str, str]) -> Iterator[Tuple[str, Stamps, Stamp]]:
        """Yield each match with its files and its own stamp; of one that is unusable the reason is a problem."""
        for entry in list_entries(self.folder):
            name = decode_name(entry.name)
            if self.is_match(name):
                with suppress(OSError):  # removed meanwhile
                    try:
                        yield (name, *read_match(self.folder, name))
                    except UnusableError as error:
                        if not self._is_alias(entry.path):
                            problems[name] = str(error)

    def _is_alias(self, path: bytes) -> bool:
        """Return whether a link leads to another match, such as to the newest one: that one is kept."""
        if not os.path.islink(path):
            return False
        folder, name = os.path.split(os.path.normpath(os.path.join(self.folder, os.readlink(path))))
        return folder == os.path.normpath(self.folder) and self.is_match(decode_name(name))

    def is_match(self, name: str) -> bool:
        """Return whether a name is one component of a path that the pattern means."""
        if name in ("", ".", "..") or {"/", "\0", "\n"} & set(name):
            return False
        is_hidden = name.startswith(".") and not self._pattern.startswith(".")
        return not is_hidden and not name.startswith(OWN_PREFIX) and fnmatch.fnmatchcase(name, self._pattern)

    def _find_marked(self) -> Iterator[Found]:
        """Yield matches that seem whole for the first time, or again after a change; what was written last comes last.

        The last one is the newest for the hub. A script that removes files of an old checkpoint does not change that.
        """
        for name, match in sorted(self._matches.items(), key=lambda entry: entry[1].written):
            if self._complete:
                whole: Stamps = {} if match.marker is None else {self._complete: match.marker}
            else:
                whole = match.stamps if match.unchanged >= UNCHANGED and self._is_closed(name) else {}
            marked = self._marked.get(name, {})
            if any(marked.get(path) != stamp for path, stamp in whole.items()):
                self._marked[name] = whole
                yield Found("marked", name, match.identity, {})

    def _find_collected(self, broken: Dict[str, str]) -> Iterator[Found]:
        for name, collection in list(self._collections.items()):
            found = self._find_one(name, collection)
            if name in broken:
                found = Found("absent", name, "", {}, broken[name])
            if found is not None:
                del self._collections[name]
                yield found

    def _find_one(self, name: str, collection: Collection) -> Found | None:
        match = self._matches.get(name)
        if match is None:
            collection.absent += 1
            if collection.absent < self._absent_limit:
                return None
            if self._absent_limit == ABSENT_WRITER:
                return Found("absent", name, "", {}, "this node has not written its files")
            self._absent_limit = ABSENT
            self._absent.add(name)
            return Found("absent", name, "", {})
        if match.identity == collection.identity and not collection.is_first:
            return Found("same", name, match.identity, {})
        enough = 1 if self._complete else UNCHANGED
        if match.unchanged >= enough and self._is_closed(name):
            self._absent_limit = ABSENT if self._complete else ABSENT_WRITER
            return Found("settled", name, match.identity, match.stamps)
        return None

    def _is_closed(self, name: str) -> bool:
        top = os.path.join(os.path.realpath(self.folder), encode_name(name))
        return self._matches[name].unchanged >= IGNORE_WRITERS or not is_written(top)


def read_match(folder: bytes, name: str) -> Tuple[Stamps, Stamp]:
    """Read the stamps of all files of a match, and its own; OSError if it is gone, UnusableError if it is refused."""
    try:
        too_long = len(name.encode("utf-8")) > MAX_NAME
    except UnicodeEncodeError:
        raise UnusableError("its name is not UTF-8") from None
    if too_long:
        raise UnusableError("its name is too long")
    status = os.lstat(os.path.join(folder, encode_name(name)))
    if stat.S_ISLNK(status.st_mode):
        raise UnusableError("it is a symbolic link")
    top = stamp_of(status, "")
    stamps: Stamps = {}
    for path, stamp in _read_files(folder, name):
        stamps[path] = stamp
        if len(stamps) > MAX_FILES:
            raise UnusableError("it has too many files")
    return stamps, top


def _read_files(folder: bytes, name: str) -> Iterator[Tuple[str, Stamp]]:
    """Yield the files of a match, and links within it; directories that hold none do not count."""
    status = os.lstat(os.path.join(folder, encode_name(name)))
    if stat.S_ISREG(status.st_mode):
        yield name, stamp_of(status, "")
    pending = [name] if stat.S_ISDIR(status.st_mode) else []
    while pending:
        inner = pending.pop()
        for entry in list_entries(os.path.join(folder, encode_name(inner))):
            path = f"{inner}/{decode_name(entry.name)}"
            with suppress(OSError):  # removed meanwhile
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    pending.append(path)
                elif stat.S_ISREG(status.st_mode) and not entry.name.startswith(OWN_PREFIX.encode("ascii")):
                    yield path, stamp_of(status, "")
                elif stat.S_ISLNK(status.st_mode):
                    link = decode_name(os.readlink(entry.path))
                    if is_inside(name, path, link):
                        yield path, stamp_of(status, link)


def stamp_of(status: os.stat_result, link: str) -> Stamp:
    """Return what is unchanged while a file is not written to."""
    executable = bool(status.st_mode & stat.S_IXUSR)
    return Stamp(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, link, executable)


def is_written(top: bytes) -> bool:
    """Return whether a process of this account has a file open for writing, at a path or below it."""
    for pid in all_pids():
        if pid != os.getpid():
            with suppress(OSError):
                folder = f"/proc/{pid}/fd"
                for number in os.listdir(folder):
                    path = os.fsencode(os.readlink(f"{folder}/{number}"))
                    if (path + b"/").startswith(top + b"/") and _is_open_for_writing(pid, number):
                        return True
    return False


def _is_open_for_writing(pid: int, number: str) -> bool:
    with suppress(OSError, ValueError), open(f"/proc/{pid}/fdinfo/{number}", "rb") as source:
        for line in source:
            if line.startswith(b"flags:"):
                return int(line.split()[1], 8) & ACCESS_MODE != os.O_RDONLY
    return False
