"""Where the files of a source go: the layout of a library's cache, or plain files in a directory.

| source, layout | below `to`                                                                       |
|----------------|----------------------------------------------------------------------------------|
| hf, cache      | hub/models--ORG--NAME/{blobs/ETAG, snapshots/COMMIT/PATH -> blob, refs/REVISION} |
| ms, cache      | models/ORG--NAME/snapshots/REVISION/PATH                                         |
| directory, url | PATH                                                                             |

The first directory (`hub`, `models`) is the root of the rows: all of a source then have the same first name, if it has
one. ETAG is the SHA-256 of a large file, and for others the SHA-1 that git has for it.
"""

from __future__ import annotations

import hashlib
import posixpath
from typing import Dict, List, Optional

from ....protocol.manifest import TreeEntry
from ..layout import parse_rows
from .hubs import COMMIT, HuggingFace, ModelScope, RemoteFile, Source

UNKNOWN = "0" * 64  # in the place of a SHA-256 that is not known yet


class Content:
    """A content to download, and the paths below the root that get it; the SHA-256 may be found only then."""

    def __init__(self, file: RemoteFile, url: str, data: Optional[bytes] = None) -> None:
        self.size, self.sha256, self.git, self.url = file.size, file.sha256, file.git, url
        self.name, self.data = file.path, data
        self.paths: List[str] = []
        self.whole = False

    @property
    def key(self) -> str:
        """Name the content by a hash, for a part of it that is kept; empty if it has none."""
        return self.sha256 or self.git


class Placement:
    """The contents of a source, and the links and names that they get below `root`, a directory below `to`.

    All names are `name`, or below it; empty if they have no common one.
    """

    def __init__(self, source: Source, commit: str, layout: str, files: List[RemoteFile]) -> None:
        self._source, self._commit = source, commit
        self.root, self.name, self.contents = "", "", []  # type: str, str, List[Content]
        self._links: List[TreeEntry] = []
        self._by_key: Dict[str, Content] = {}
        if layout == "cache" and isinstance(source, HuggingFace):
            self.root, self.name = "hub", "--".join([source.repo_type, *source.repo.split("/")])
            self._add_to_cache(source, commit, files)
        elif layout == "cache" and isinstance(source, ModelScope):
            self.root, self.name = source.repo_type, source.repo.replace("/", "--")
            for file in files:
                self._add(file, f"{self.name}/snapshots/{commit}/{file.path}")
        else:
            self.name = files[0].path if source.kind == "url" else ""
            for file in files:
                self._add(file, file.path)
        parse_rows(self.rows())  # nothing that a server names may lead out of the root

    def rows(self) -> List[TreeEntry]:
        """Return the manifest; hashes that are not known yet are all zeros."""
        return [row for content in self.contents for row in self.rows_of(content)] + self._links

    @staticmethod
    def rows_of(content: Content) -> List[TreeEntry]:
        """Return the files that have a content."""
        sha256, size = content.sha256 or UNKNOWN, max(content.size, 0)
        return [TreeEntry(path, "file", 0o644, sha256, size) for path in content.paths]

    def content_of(self, file: RemoteFile) -> Content:
        """Return the content of a file."""
        return self._by_key[find_key(file)]

    @property
    def links(self) -> List[TreeEntry]:
        """Return the links."""
        return self._links

    def _add_to_cache(self, source: HuggingFace, commit: str, files: List[RemoteFile]) -> None:
        top = self.name
        for file in files:
            blob, link = f"{top}/blobs/{file.git or file.sha256}", f"{top}/snapshots/{commit}/{file.path}"
            self._add(file, blob)
            self._links.append(TreeEntry(link, "link", 0, posixpath.relpath(blob, posixpath.dirname(link))))
        revision = source.revision or "main"
        if not COMMIT.match(revision):
            data = commit.encode("ascii")
            ref = RemoteFile(f"refs/{revision}", len(data), hashlib.sha256(data).hexdigest(), "")
            self._add(ref, f"{top}/refs/{revision}", data)

    def _add(self, file: RemoteFile, path: str, data: Optional[bytes] = None) -> None:
        key = find_key(file)
        content = self._by_key.get(key)
        if content is None:
            url = "" if data is not None else self._source.find_url(file, self._commit)
            content = self._by_key[key] = Content(file, url, data)
            self.contents.append(content)
        if path not in content.paths:
            content.paths.append(path)


def find_key(file: RemoteFile) -> str:
    """Name the content of a file by what is known of it."""
    return file.sha256 or file.git or file.path
