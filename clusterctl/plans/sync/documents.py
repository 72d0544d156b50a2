"""Parts of the JSON documents of verbs that functions here make; whole documents are in `console/documents`."""

from __future__ import annotations

from typing_extensions import TypedDict


class OutsideFilesEntry(TypedDict):
    """Files of one node that were not sent with the code, or changed since; `more`: not all were counted."""

    files: int
    bytes: int
    names: list[str]
    more: bool
