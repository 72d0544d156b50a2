"""What was staged as it is on the disk now: compared with its record, and removed."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Iterator, List, Optional, Tuple

from ....protocol.manifest import TreeEntry, encode_name
from ..removal import Step
from .remembered_hashes import RememberedHashes
from .staged import read_rows, remove_record
from .target_lock import overlap
from .written import remove_written

if TYPE_CHECKING:
    from ....protocol.messages.stored import StagedContent, StagedProblem, StagedRecord, StagedState

MAX_PROBLEMS = 20  # files that are named


def compare_with_disk(
    workdir: str, record: StagedRecord, step: Step, hashes: Optional[RememberedHashes]
) -> StagedContent:
    """Compare what was staged with what is there: by names, sizes and links, with `hashes` also by contents."""
    rows, parent = read_rows(workdir, record), os.fsencode(os.path.dirname(record["path"]))
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


def remove_contents(
    workdir: str, records: List[StagedRecord], others: List[StagedRecord], step: Step
) -> Tuple[int, int]:
    """Remove what `stage` wrote at the path of these records and what `others` do not have; returns files and bytes."""
    path = records[0]["path"]
    kept = {
        os.path.join(os.path.dirname(other["path"]), row.path)
        for other in others
        if overlap(other["path"], path)
        for row in read_rows(workdir, other)
    }
    counts = remove_written(workdir, path, kept, step)
    for record in records:
        remove_record(workdir, record)
    return counts
