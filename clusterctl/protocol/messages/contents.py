"""Contents of files on their way: who gives them, what a node lacks, pieces from here and between nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from typing_extensions import NotRequired


class Offer(TypedDict):
    """Where a node gives contents on to others."""

    address: str
    ports: tuple[int, int] | None
    token: str


class Source(TypedDict):
    """Another node that has the contents, or receives them; `index` counts the chain from 1."""

    address: str
    port: int
    token: str
    index: int


class Missing(TypedDict):
    """Contents that are not here; `source_problem` is why another node could not give them.

    At `port` the node sends on what it has, and what it receives.
    """

    missing: list[str]
    source_problem: NotRequired[str]
    port: NotRequired[int]


class Blob(TypedDict):
    """A piece of a larger content."""

    blob: str
    at: int  # byte of the content where the piece begins
    last: bool


class Stored(TypedDict):
    """All contents are here."""

    stored: Literal[True]


class TreeSummary(TypedDict):
    """What is really on the disk."""

    tree: str
    files: int
    bytes: int
    differs: list[str]


class CopyReport(TypedDict):
    """What was written; `kept` are the first files that are there already with other content, of `kept_count`.

    `replaced` files had other content.
    """

    files: int
    bytes: int
    unchanged: int
    replaced: int
    kept: list[str]
    kept_count: int


class HashesFrame(TypedDict):
    """The contents that a node lacks, and how many bytes it has of some; Blobs, ContentPart and Done follow."""

    hashes: list[str]
    held: list[list[str | int]]


class ContentPart(TypedDict):
    """A piece of a larger content."""

    blob: str
    last: bool
