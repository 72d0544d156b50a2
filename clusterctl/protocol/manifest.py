"""A source tree as entries: what they may be, and the hash of all of them.

Tree hash, version 1: SHA-256 over `clusterctl-tree 1\\n` and then, for every entry in the order of its UTF-8
path, `kind NUL mode NUL content NUL path NUL`. kind is file, link or dir; mode is 644 or 755 for files, else
empty; content is the file's SHA-256 in hex, the link's target, or empty.
"""

from __future__ import annotations

import hashlib
import re
from collections import namedtuple
from collections.abc import Iterable, Iterator
from typing import Any

SHA = re.compile(r"[0-9a-f]{64}\Z")


class ManifestError(ValueError):
    """A manifest that is refused; the message gives the reason."""


# Not of `typing`, which takes a node long to load.
class TreeEntry(namedtuple("TreeEntry", "path kind mode content size", defaults=(0,))):
    """One file, symbolic link or empty directory, sent as a list of its fields; `path` is relative, with `/`."""

    __slots__ = ()
    path: str
    kind: str  # file, link or dir; node/sync/layout.py reads from the disk also `other`
    mode: int  # 0o644 or 0o755 for a file, 0 otherwise
    content: str  # SHA-256 of a file, target of a link, "" for a directory
    size: int  # bytes of a file


def tree_hash(entries: Iterable[TreeEntry]) -> str:
    """Hash names, kinds, modes and contents; the format stands at the top of this file."""
    digest = hashlib.sha256(b"clusterctl-tree 1\n")
    for entry in sorted(entries, key=lambda entry: encode_name(entry.path)):
        mode = f"{entry.mode:o}" if entry.kind == "file" else ""
        fields = (entry.kind, mode, entry.content, entry.path, "")
        digest.update(b"\0".join(map(encode_name, fields)))
    return digest.hexdigest()


def encode_name(text: str) -> bytes:
    """Return the bytes of a name, whatever the locale."""
    return text.encode("utf-8", "surrogateescape")


def decode_name(name: bytes) -> str:
    """Return a name as text, whatever the locale: a byte that is no UTF-8 becomes U+DC80 and up."""
    return name.decode("utf-8", "surrogateescape")


def parse_manifest(raw: Any) -> list[TreeEntry]:
    """Check a manifest: nothing in it may lead out of the tree or through a link; ManifestError otherwise."""
    try:
        entries = [TreeEntry._make(fields) for fields in raw]
        for entry in entries:
            _check(entry)
    except (TypeError, AttributeError, UnicodeEncodeError) as error:
        raise ManifestError(f"the manifest is malformed: {error}") from None
    paths = {entry.path for entry in entries}
    if len(paths) < len(entries):
        raise ManifestError("the manifest names a path twice")
    for entry in entries:
        for parent in parents(entry.path):
            if parent in paths:
                raise ManifestError(f"the manifest puts {entry.path!r} below a file or link")
    return entries


def _check(entry: TreeEntry) -> None:
    parts = entry.path.encode("utf-8").split(b"/")
    valid = not any(part in (b"", b".", b"..") or b"\0" in part for part in parts)
    if entry.kind == "file":
        valid = valid and entry.mode in (0o644, 0o755) and bool(SHA.match(entry.content))
        valid = valid and isinstance(entry.size, int) and entry.size >= 0
    elif entry.kind == "link":
        valid = valid and bool(entry.content) and b"\0" not in entry.content.encode("utf-8")
        valid = valid and (entry.mode, entry.size) == (0, 0)
    else:
        valid = valid and entry[1:] == ("dir", 0, "", 0)
    if not valid:
        raise ManifestError(f"the manifest holds an entry that is refused: {entry.path!r}")


def parents(path: str) -> Iterator[str]:
    """Yield the directories that a path is in, the outermost first."""
    slash = path.find("/")
    while slash >= 0:
        yield path[:slash]
        slash = path.find("/", slash + 1)
