"""Parts of generations as manifests: zlib(JSON rows), whose paths begin with the name of the generation.

A manifest of another node is believed only if it has the hash and the numbers that the seal names.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from typing import TYPE_CHECKING, List

from ....protocol.manifest import ManifestError, TreeEntry, parse_manifest
from ....protocol.messages.checkpoints import MAX_MANIFEST, Part
from ....protocol.untrusted import MalformedError, parse_json
from .scanning import is_inside

if TYPE_CHECKING:
    from ....protocol.ranks import NodeRank

MAX_TEXT, MAX_VALUES = 64 << 20, 4_000_000  # bytes, values of JSON


def pack_part(node_rank: NodeRank, rows: List[TreeEntry]) -> tuple[Part, bytes]:
    """Return what describes the files of a node rank, and their manifest; ManifestError if that is too large."""
    content = zlib.compress(json.dumps([list(row) for row in rows]).encode("ascii"), 1)
    if len(content) > MAX_MANIFEST:
        raise ManifestError("it has too many files")
    part = Part(
        node_rank=node_rank,
        manifest=hashlib.sha256(content).hexdigest(),
        size=len(content),
        files=len(rows),
        bytes=sum(row.size for row in rows),
    )
    return part, content


def unpack_part(name: str, part: Part, content: bytes) -> List[TreeEntry]:
    """Return the rows of a part's manifest; ManifestError if they are not what the part promises."""
    if len(content) != part.size or hashlib.sha256(content).hexdigest() != part.manifest:
        raise ManifestError("the manifest is not the one of the seal")
    rows = _unpack_rows(content)
    if len(rows) != part.files or sum(row.size for row in rows) != part.bytes:
        raise ManifestError("the manifest does not list the files of the seal")
    for row in rows:
        is_link_within = row.kind == "link" and is_inside(name, row.path, row.content)
        if not f"{row.path}/".startswith(f"{name}/") or not (row.kind == "file" or is_link_within):
            raise ManifestError(f"the manifest holds an entry that is refused: {row.path!r}")
    return rows


def _unpack_rows(content: bytes) -> List[TreeEntry]:
    decompressor = zlib.decompressobj()
    try:
        raw = parse_json(decompressor.decompress(content, MAX_TEXT), MAX_TEXT, MAX_VALUES)
    except (zlib.error, MalformedError) as error:
        raise ManifestError(f"the manifest cannot be read: {error}") from None
    if not decompressor.eof:
        raise ManifestError("it has too many files")
    return parse_manifest(raw)
