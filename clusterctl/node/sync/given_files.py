"""Files anywhere on a node by the hash of their content, as a store that gives them to others."""

from __future__ import annotations

import os
from typing import Dict

from .hashing import Sha
from .received import Received
from .store import Store


class GivenFiles(Store):
    """Files that others get."""

    def __init__(self) -> None:
        self.received = Received()
        self._paths: Dict[Sha, bytes] = {}

    def add_file(self, sha: Sha, path: bytes) -> None:
        """Remember where a content is."""
        self._paths.setdefault(sha, path)

    def path(self, sha: Sha) -> str:
        """Return where a content lies; a name that no file has for one that is not there."""
        return os.fsdecode(self._paths.get(sha, b""))
