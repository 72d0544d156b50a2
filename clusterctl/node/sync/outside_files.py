"""What a run's processes have left in its copy of the code, outside the output directory.

`manifest` in the run's directory holds the rows of the tree that was sent, as they came: zlib(JSON). Written last of
all, it is younger than every file that was laid out. A run of an older version has none: then nothing is known.
"""

from __future__ import annotations

import os
import re
import stat
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from ...protocol.run_paths import RunPaths
from ...protocol.untrusted import parse_rows
from ..state.workdir import read_bytes
from .hashing import hash_file
from .removal import Step, ignore_step, list_entries

if TYPE_CHECKING:
    from ...protocol.messages.files import OutsideSummary

MAX_NEW = 20000  # entries that were not sent
# bytes of sent files that are read, to distinguish a changed file from one that was only touched
MAX_HASHED = 64 << 20  # bytes
MAX_NAMED = 5
# On a home that nodes share another node may have written the manifest: it is read within bounds.
MAX_MANIFEST, MAX_VALUES = 64 << 20, 4_000_000  # bytes, values of JSON: half a million files
MAX_PATH = 4096  # bytes
MAX_NAME = 200  # characters
# What interpreters, tools and NFS make by themselves.
IGNORED = re.compile(
    rb"(__pycache__|\.(pytest|mypy|ruff)_cache|\.ipynb_checkpoints|\.nfs[0-9a-f]{8,}|.*\.py[co])\Z"
)


class SentTree(NamedTuple):
    """The tree that was sent: of each path its content and size; and when it was there."""

    rows: Dict[bytes, Tuple[str, int]]
    time_ns: int


class OutsideFile(NamedTuple):
    """A file, link or other entry that was not sent, or is not what was sent; its path is relative to the code."""

    path: bytes
    entry: Any
    stat: os.stat_result


def read_sent(rundir: str) -> Optional[SentTree]:
    """Read what was sent to a run; None if that is not on record."""
    path = RunPaths(rundir).manifest
    try:
        text = zlib.decompressobj().decompress(read_bytes(path) or b"", MAX_MANIFEST)
        sent = {}
        for row in parse_rows(text, MAX_MANIFEST, MAX_VALUES):
            name = row.name(0, MAX_PATH)
            if name is not None:
                sent[name.encode("utf-8", "surrogateescape")] = (row.text(3, 64), row.integer(4, 0) or 0)
        return SentTree(sent, os.lstat(path).st_mtime_ns)
    except (OSError, ValueError, zlib.error):
        return None


def find_outside(rundir: str, sent: Optional[SentTree], step: Step) -> Iterator[OutsideFile]:
    """Walk a run's code for what was not sent or was changed, and follow no link; without `sent` that is all."""
    root = os.fsencode(RunPaths(rundir).code)
    hash_budget = MAX_HASHED
    folders = [b""]
    while folders:
        folder = folders.pop()
        for entry in list_entries(os.path.join(root, folder)):
            step()
            path = os.path.join(folder, entry.name)
            if IGNORED.match(entry.name) and (sent is None or path not in sent.rows):
                continue
            with suppress(OSError):  # it has just been removed
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    folders.append(path)
                elif sent is None or path not in sent.rows:
                    yield OutsideFile(path, entry, status)
                elif stat.S_ISREG(status.st_mode):
                    content, size = sent.rows[path]
                    touched = status.st_mtime_ns > sent.time_ns and status.st_size == size
                    hash_budget -= size if touched else 0
                    if status.st_size != size or (
                        touched and (hash_budget < 0 or hash_file(entry.path) != content)
                    ):
                        yield OutsideFile(path, entry, status)


class _TooManyError(Exception):
    """The walk has seen more than it may."""


def summarise(rundir: str, step: Step = ignore_step) -> Optional[OutsideSummary]:
    """Count the files and name some, those at the top first, for what lies deeper may be a data set's; None if unknown.

    `more`: there are too many to count.
    """
    sent = read_sent(rundir)
    if sent is None:
        return None
    files: List[Tuple[int, int, bytes]] = []
    budget = [2 * len(sent.rows) + MAX_NEW]  # what was sent, the directories that hold it, and what is new

    def count() -> None:
        step()
        budget[0] -= 1
        if budget[0] < 0:
            raise _TooManyError

    with suppress(_TooManyError):
        for outside_file in find_outside(rundir, sent, count):
            if stat.S_ISREG(outside_file.stat.st_mode):
                files.append((outside_file.path.count(b"/"), -outside_file.stat.st_size, outside_file.path))
    names = [path.decode("utf-8", "replace")[:MAX_NAME] for _, _, path in sorted(files)[:MAX_NAMED]]
    total = -sum(size for _, size, _ in files)
    return {"files": len(files), "bytes": total, "names": names, "more": budget[0] < 0}
