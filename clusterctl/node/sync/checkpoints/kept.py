"""What a keeper has left on the disk of a node, for those who only read it.

A manifest is zlib(JSON rows), as in protocol/manifest.py; its paths begin with the name of the generation.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, List, NamedTuple, Optional, Tuple

from ....protocol.manifest import ManifestError, TreeEntry, encode_name, parse_manifest
from ....protocol.untrusted import MalformedError, Untrusted, parse_json
from ...state.workdir import read_bytes, read_json
from ..removal import list_entries
from .folders import FOLDER, SEALS, STORE

if TYPE_CHECKING:
    from ..removal import Step
    from ..staging.remembered_hashes import RememberedHashes

MAX_TEXT, MAX_VALUES = 64 << 20, 4_000_000  # bytes, values of JSON
MAX_NAME, MAX_PARTS = 200, 1024


class KeptFile(NamedTuple):
    """A file or link of a part; `source` is a file that has its content now."""

    node_rank: int
    row: TreeEntry
    source: bytes


def find_kept(
    root: str, generation: str, hashes: RememberedHashes, step: Step
) -> Tuple[bytes, List[KeptFile]]:
    """Return the files that are here of ATTEMPT/NAME, of whole parts; a path if all nodes see the same files there."""
    attempt, _, name = generation.partition("/")
    seals = [Untrusted(read_json(entry.path)) for entry in list_entries(os.path.join(root, SEALS))]
    seals = [seal for seal in seals if seal.text("name", MAX_NAME) == name]
    seals = [seal for seal in seals if attempt in ("0", str(seal.count("attempt")))]
    if not seals:
        return b"", []
    seal = max(seals, key=lambda seal: seal.count("number"))
    folder, files = read_bytes(os.path.join(root, FOLDER)) or b"", []
    if seal.flag("shared"):
        return os.path.join(folder, encode_name(name)), []
    for part in seal.records("parts", MAX_PARTS):
        rows = read_part(root, name, part.text("manifest", 64)) or []
        found = [_find(root, folder, row, hashes, step) for row in rows]
        if None not in found:
            files += [KeptFile(part.count("node_rank"), row, path or b"") for row, path in zip(rows, found)]
    return b"", files


def read_part(root: str, name: str, manifest: str) -> Optional[List[TreeEntry]]:
    """Read a manifest that is here; None if there is none, or it is damaged."""
    with suppress(OSError, ManifestError):
        content = read_bytes(os.path.join(root, STORE, manifest[:2], manifest)) or b""
        if hashlib.sha256(content).hexdigest() == manifest:
            return unpack_rows(name, content)
    return None


def _find(root: str, folder: bytes, row: TreeEntry, hashes: RememberedHashes, step: Step) -> Optional[bytes]:
    """Return a file that has a row's content, in its place or mirrored; None if there is none."""
    mirrored = os.path.join(root, STORE, row.content[:2], row.content)
    if row.kind == "link":
        return b""
    for path in (os.path.join(folder, encode_name(row.path)), os.fsencode(mirrored)):
        with suppress(OSError):
            if os.lstat(path).st_size == row.size and hashes.hash(path, step)[0] == row.content:
                return path
    return None


def unpack_rows(name: str, content: bytes) -> List[TreeEntry]:
    """Read a manifest of a generation; ManifestError if it is damaged, too large or names anything else."""
    decompressor = zlib.decompressobj()
    try:
        raw = parse_json(decompressor.decompress(content, MAX_TEXT), MAX_TEXT, MAX_VALUES)
    except (zlib.error, MalformedError) as error:
        raise ManifestError(f"the manifest cannot be read: {error}") from None
    if not decompressor.eof:
        raise ManifestError("it has too many files")
    rows = parse_manifest(raw)
    for row in rows:
        is_link_within = row.kind == "link" and is_inside(name, row.path, row.content)
        if not f"{row.path}/".startswith(f"{name}/") or not (row.kind == "file" or is_link_within):
            raise ManifestError(f"the manifest holds an entry that is refused: {row.path!r}")
    return rows


def is_inside(name: str, path: str, target: str) -> bool:
    """Return whether a link at a path leads to a place within the same generation."""
    leads_to = os.path.normpath(os.path.join(os.path.dirname(path), target))
    return bool(target) and not target.startswith("/") and f"{leads_to}/".startswith(f"{name}/")
