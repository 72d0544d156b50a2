"""Parts of the JSON documents of verbs that functions here make; whole documents are in `console/documents`."""

from __future__ import annotations

from typing_extensions import TypedDict

from clusterctl.protocol.messages.files import KeptReason


class HangEntry(TypedDict):
    """Where the ranks were before the end, or are since they made no progress for `seconds`."""

    why: KeptReason
    seconds: float | None
    summary: str
    code: str
    sentence: str
    next: str
    suspects: list[int]
