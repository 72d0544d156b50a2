"""What was staged as it is on the disk now: compared with its record, and removed."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Iterator, List, Optional, Tuple

from ....protocol.manifest import TreeEntry, encode_name
from ...runtime.stream import VerbError
from ..removal import Step
from .folders import link_target, open_parent
from .remembered_hashes import RememberedHashes
from .staged import read_rows, remove_record

if TYPE_CHECKING:
    from ....protocol.messages.stored import StagedContent, StagedProblem, StagedRecord, StagedState

MAX_PROBLEMS = 20  # files that are named
CLOCK_TOLERANCE = 2.0  # seconds that the clock of a file server may be ahead


def compare_with_disk(
    workdir: str, record: StagedRecord, step: Step, hashes: Optional[RememberedHashes]
) -> StagedContent:
    """Compare what was staged with what is there: by names, sizes and links, with `hashes` also by contents."""
    rows, parent = read_rows(workdir, record["path"]), os.fsencode(os.path.dirname(record["path"]))
    problems: List[StagedProblem] = []
    differing = 0
    if hashes is not None:
        with suppress(OSError):  # of a file that cannot be read, which is reported below
            hashes.read_ahead(iterate_present(parent, rows), step, again=True)
    for row in rows:
        step()
        found = find_row_state(parent, row, step, hashes)
        if found != "whole":
            differing += 1
            if len(problems) < MAX_PROBLEMS:
                problems.append({"path": row.path, "state": found})
    state: StagedState = problems[0]["state"] if problems else "whole" if rows else "missing"
    return {**record, "state": state, "differing": differing, "problems": problems}


def iterate_present(parent: bytes, rows: List[TreeEntry]) -> Iterator[Tuple[bytes, os.stat_result]]:
    """Yield what is here of a manifest."""
    for row in rows:
        path = os.path.join(parent, encode_name(row.path))
        with suppress(OSError):
            yield path, os.lstat(path)


def find_row_state(
    parent: bytes, row: TreeEntry, step: Step, hashes: Optional[RememberedHashes]
) -> StagedState:
    """Return the state of one file, link or directory."""
    path = os.path.join(parent, encode_name(row.path))
    try:
        status = os.lstat(path)
        if row.kind == "link":
            if os.readlink(path) != encode_name(row.content):
                return "changed"
            return "whole" if os.path.exists(path) else "dangling"
        if row.kind == "dir":
            return "whole" if stat.S_ISDIR(status.st_mode) else "changed"
        same = stat.S_ISREG(status.st_mode) and status.st_size == row.size
        same = same and (hashes is None or hashes.hash(path, step, again=True)[0] == row.content)
        return "whole" if same else "changed"
    except (FileNotFoundError, NotADirectoryError):
        return "missing"
    except OSError:
        return "changed"


def remove_content(workdir: str, record: StagedRecord, step: Step) -> Tuple[int, int]:
    """Remove the files of what was staged, and directories that are empty then; returns files and bytes.

    What was changed or added since stays, as does what lies behind a link.
    """
    parent, files, size = os.fsencode(os.path.dirname(record["path"])), 0, 0
    rows = read_rows(workdir, record["path"])
    for row in rows:
        step()
        with suppress(FileNotFoundError, VerbError):
            if row.kind != "dir" and remove_row(parent, row, record["time"] + CLOCK_TOLERANCE):
                files, size = files + (row.kind == "file"), size + row.size
    remove_empty_folders(parent, rows)
    remove_record(workdir, record["path"])
    return files, size


def remove_row(parent: bytes, row: TreeEntry, newest: float) -> bool:
    """Remove a file or link that is as it was staged, and not changed after a time; return whether it was."""
    with open_parent(parent, row.path, make=False) as (folder, name):
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        is_file = stat.S_ISREG(status.st_mode)
        same_file = is_file and status.st_size == row.size and status.st_mtime <= newest
        same = same_file if row.kind == "file" else link_target(name, folder) == encode_name(row.content)
        if same:
            os.unlink(name, dir_fd=folder)
        return same


def remove_empty_folders(parent: bytes, rows: List[TreeEntry]) -> None:
    """Remove the directories of a manifest that hold nothing any more, the innermost first."""
    folders = {row.path for row in rows if row.kind == "dir"}
    for row in rows:
        folder = row.path.rpartition("/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    for folder in sorted(folders, key=len, reverse=True):
        with suppress(OSError, VerbError), open_parent(parent, folder, make=False) as (descriptor, name):
            os.rmdir(name, dir_fd=descriptor)
