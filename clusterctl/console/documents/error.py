"""What a verb with `--json` writes where an error ends it."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict


class ErrorEntry(TypedDict):
    """One error; `place` is a node, or file and line; `fix` is what to do."""

    code: str
    text: str
    place: str | None
    evidence: str | None
    fix: str | None


class ErrorDocument(TypedDict):
    """The errors that ended a verb; `error` is the first of them."""

    schema: Literal[1]
    error: ErrorEntry
    errors: list[ErrorEntry]
