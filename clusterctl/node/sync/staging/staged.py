"""What was staged on this node, as files of the work directory.

staged/<host>/<digest>.json   StagedRecord; the digest is that of its path and revision
staged/<host>/<digest>.list   which files a hub has, see node/verbs/staging/download.py
staged/<host>/<digest>.rows   the manifest: zlib(JSON rows), with paths from the directory that the path is in
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
from ...state.workdir import read_bytes, read_json, write_atomically
from ..removal import list_entries
from .remembered_hashes import make_staged_folder, staged_folder

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


def digest_of(path: str, revision: str = "") -> str:
    """Name the files about a path."""
    return hashlib.sha256(os.fsencode(path) + b"\0" + revision.encode("utf-8", "replace")).hexdigest()[:32]


def record_path(workdir: str, record: StagedRecord) -> str:
    """Return where a record is, without its suffix."""
    return os.path.join(staged_folder(workdir), digest_of(record["path"], record["revision"]))


def write_record(workdir: str, path: str, staged: StagedSource, rows: List[TreeEntry]) -> None:
    """Record what was staged at a path; `rows` are relative to the directory that it is in.

    Several revisions at a path each have a record, until all names of one are those of another.
    """
    make_staged_folder(workdir)
    files = [row for row in rows if row.kind == "file"]
    record: StagedRecord = {
        "source": staged["source"][:MAX_SOURCE],
        "revision": staged["revision"][:MAX_SOURCE],
        "tree": staged["tree"],
        "by": staged["by"][:MAX_BY],
        "path": path,
        "files": len(files),
        "bytes": sum(row.size for row in files),
        "time": time.time(),
    }
    name, names = record_path(workdir, record), {row.path for row in rows}
    write_manifest(f"{name}.rows", rows)
    write_atomically(f"{name}.json", json.dumps(record).encode("ascii"))
    for other in read_records(workdir):
        is_earlier = other["path"] == path and other["revision"] != record["revision"]
        if is_earlier and names.issuperset(row.path for row in read_rows(workdir, other)):
            remove_record(workdir, other)


def remove_record(workdir: str, record: StagedRecord) -> None:
    """Forget what was staged."""
    for suffix in (".json", ".rows"):
        with suppress(FileNotFoundError):
            os.unlink(record_path(workdir, record) + suffix)


def read_records(workdir: str) -> Iterator[StagedRecord]:
    """Yield what was staged, at most MAX_RECORDS; a record that another version has written is left out."""
    folder = staged_folder(workdir)
    names = [entry.name for entry in list_entries(folder) if entry.name.endswith(".json")]
    for name in names[:MAX_RECORDS]:
        with suppress(OSError):
            record = parse_record(Untrusted(read_json(os.path.join(folder, name))))
            if record is not None and record_path(workdir, record) == os.path.join(
                folder, name[: -len(".json")]
            ):
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


def read_rows(workdir: str, record: StagedRecord) -> List[TreeEntry]:
    """Return the manifest of what was staged; empty if it cannot be read."""
    return read_manifest(f"{record_path(workdir, record)}.rows")


def write_manifest(path: str, rows: List[TreeEntry]) -> None:
    """Write a manifest."""
    write_atomically(path, zlib.compress(json.dumps([list(row) for row in rows]).encode("ascii"), 1))


def read_manifest(path: str) -> List[TreeEntry]:
    """Read a manifest; empty if it cannot be read."""
    decompressor = zlib.decompressobj()
    try:
        text = decompressor.decompress(read_bytes(path) or b"", MAX_ROWS)
        return parse_manifest(parse_json(text, MAX_ROWS, MAX_VALUES)) if decompressor.eof else []
    except (zlib.error, MalformedError, ManifestError):
        return []
