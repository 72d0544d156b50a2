"""What was staged on this node, as files of the work directory.

staged/<digest>.json   StagedRecord; the digest is that of its path
staged/<digest>.list   which files a hub has, see node/verbs/staging/download.py
staged/<digest>.rows   the manifest: zlib(JSON rows), with paths from the directory that the path is in
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Iterator, List, Optional, Tuple

from ....protocol.manifest import ManifestError, TreeEntry, decode_name, encode_name, parse_manifest
from ....protocol.untrusted import MalformedError, Untrusted, parse_json
from ...runtime.stream import VerbError
from ...state.workdir import make_private, read_bytes, read_json, write_atomically
from ..removal import Step, list_entries
from .folders import link_target, open_parent
from .remembered_hashes import RememberedHashes, staged_folder

if TYPE_CHECKING:
    from ....protocol.messages.stored import (
        StagedContent,
        StagedProblem,
        StagedRecord,
        StagedSource,
        StagedState,
    )

MAX_RECORDS = 1000
MAX_ROWS, MAX_VALUES = 64 << 20, 4_000_000  # bytes, values of JSON
MAX_SOURCE = 500  # characters
MAX_PATH = 4096
MAX_BY = 300
MAX_PROBLEMS = 20  # files that are named
CLOCK_TOLERANCE = 2.0  # seconds that the clock of a file server may be ahead


def name_target(root: bytes, rows: List[TreeEntry], *, named: bool) -> Tuple[str, List[TreeEntry]]:
    """Return the absolute path of what is taken, and the names of all files from the directory that it is in.

    With `named` all have the same first name, else they are what is in the directory `root`.
    """
    root = os.path.realpath(root)
    if named and rows:
        return os.fsdecode(os.path.join(root, os.fsencode(rows[0].path.split("/")[0]))), rows
    base = decode_name(os.path.basename(root))
    return os.fsdecode(root), [row._replace(path=f"{base}/{row.path}") for row in rows]


def record_name(path: str) -> str:
    """Name the files about a path."""
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:32]


def write_record(workdir: str, path: str, staged: StagedSource, rows: List[TreeEntry]) -> None:
    """Record what was staged at a path; `rows` are relative to the directory that it is in."""
    folder = make_private(staged_folder(workdir))
    files = [row for row in rows if row.kind == "file"]
    record: StagedRecord = {
        "source": staged["source"][:MAX_SOURCE],
        "revision": staged["revision"],
        "tree": staged["tree"],
        "by": staged["by"][:MAX_BY],
        "path": path,
        "files": len(files),
        "bytes": sum(row.size for row in files),
        "time": time.time(),
    }
    name = os.path.join(folder, record_name(path))
    write_atomically(
        f"{name}.rows", zlib.compress(json.dumps([list(row) for row in rows]).encode("ascii"), 1)
    )
    write_atomically(f"{name}.json", json.dumps(record).encode("ascii"))


def remove_record(workdir: str, path: str) -> None:
    """Forget what was staged at a path."""
    for suffix in (".json", ".rows"):
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(staged_folder(workdir), record_name(path) + suffix))


def read_records(workdir: str) -> Iterator[StagedRecord]:
    """Yield what was staged, at most MAX_RECORDS; a record that another version has written is left out."""
    folder = staged_folder(workdir)
    names = [entry.name for entry in list_entries(folder) if entry.name.endswith(".json")]
    for name in names[:MAX_RECORDS]:
        with suppress(OSError):
            record = parse_record(Untrusted(read_json(os.path.join(folder, name))))
            if record is not None and record_name(record["path"]) == name[: -len(".json")]:
                yield record


def parse_record(raw: Untrusted) -> Optional[StagedRecord]:
    """Read a record; None if it has no path, or is none."""
    path, moment = raw.text("path", MAX_PATH), raw.moment("time")
    if not path.startswith("/") or moment is None:
        return None
    return {
        "source": raw.text("source", MAX_SOURCE),
        "revision": raw.text("revision", MAX_SOURCE),
        "tree": raw.text("tree", 64),
        "by": raw.text("by", MAX_BY),
        "path": path,
        "files": raw.count("files"),
        "bytes": raw.count("bytes"),
        "time": moment,
    }


def read_rows(workdir: str, path: str) -> List[TreeEntry]:
    """Return the manifest of what was staged at a path; empty if it cannot be read."""
    content = read_bytes(os.path.join(staged_folder(workdir), f"{record_name(path)}.rows")) or b""
    decompressor = zlib.decompressobj()
    try:
        text = decompressor.decompress(content, MAX_ROWS)
        return parse_manifest(parse_json(text, MAX_ROWS, MAX_VALUES)) if decompressor.eof else []
    except (zlib.error, MalformedError, ManifestError):
        return []


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
