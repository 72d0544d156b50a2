"""What was staged on this node, as files of the work directory.

staged/<digest>.json   StagedRecord; the digest is that of its path
staged/<digest>.list   which files a hub has, see node/verbs/staging/download.py
staged/<digest>.rows   the manifest: zlib(JSON rows), with paths from the directory that the path is in
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Iterator, List, Optional, Tuple

from ....protocol.manifest import ManifestError, TreeEntry, decode_name, parse_manifest
from ....protocol.untrusted import MalformedError, Untrusted, parse_json
from ...state.workdir import make_private, read_bytes, read_json, write_atomically
from ..removal import list_entries
from .remembered_hashes import staged_folder

if TYPE_CHECKING:
    from ....protocol.messages.stored import StagedRecord, StagedSource

MAX_RECORDS = 1000
MAX_ROWS, MAX_VALUES = 64 << 20, 4_000_000  # bytes, values of JSON
MAX_SOURCE = 500  # characters
MAX_PATH = 4096
MAX_BY = 300


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
