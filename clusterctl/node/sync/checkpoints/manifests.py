"""Parts of generations and their manifests; one of another node must have the hash and the numbers of the seal."""

from __future__ import annotations

import hashlib
import json
import zlib
from typing import TYPE_CHECKING, List, Tuple

from ....protocol.manifest import ManifestError, TreeEntry
from ....protocol.messages.checkpoints import MAX_MANIFEST, Part
from .kept import unpack_rows

if TYPE_CHECKING:
    from ....protocol.ranks import NodeRank


def pack_part(node_rank: NodeRank, rows: List[TreeEntry]) -> Tuple[Part, bytes]:
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
    rows = unpack_rows(name, content)
    if len(rows) != part.files or sum(row.size for row in rows) != part.bytes:
        raise ManifestError("the manifest does not list the files of the seal")
    return rows
