"""What `explain` writes, and a verb with `--json` where an error ends it."""

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


class ExampleEntry(TypedDict):
    """What a code looks like, and its fix."""

    seen: str
    fix: str


class ExplanationDocument(TypedDict):
    """A code in full; parts that do not apply are empty."""

    schema: Literal[1]
    code: str
    kind: str
    title: str
    effect: str
    why: str
    text: str
    do: str
    happens: list[str]
    example: ExampleEntry | None
    command: str
    see: str


class CodesDocument(TypedDict):
    """Codes, and what each means in a few words."""

    schema: Literal[1]
    codes: dict[str, str]


class ExplainedKey(TypedDict):
    """A key of a job file or an inventory, and the names of the keys below it."""

    path: str
    text: str
    value: str | None
    default: str | None
    required: bool
    keys: list[str]


class KeysDocument(TypedDict):
    """Keys of a job file or an inventory."""

    schema: Literal[1]
    keys: list[ExplainedKey]
