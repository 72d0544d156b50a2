"""Contents of files on their way: who gives them, what a node lacks, pieces from here and between nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from typing_extensions import NotRequired


class Offer(TypedDict):
    """Where a node gives contents on to others."""

    address: str
    ports: tuple[int, int] | None
    token: str


class Source(TypedDict):
    """A node that has contents, or receives them; `index` counts the chain from 1, `turn` the providers of a node."""

    address: str
    port: int
    token: str
    index: int
    turn: int


class Missing(TypedDict):
    """Contents that are not here; `source_problem` is why the provider of a `turn` could not give them.

    At `port` the node sends on what it has, and what it receives. Of those `held` it has so many bytes with this hash.
    """

    missing: list[str]
    held: NotRequired[list[list[str | int]]]
    source_problem: NotRequired[str]
    turn: NotRequired[int]
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


class Reach(TypedDict):
    """What a node has of a source: all of it at this revision, or so many bytes; `problem`: it reaches no server."""

    whole: bool
    held: int
    problem: str


class Resolved(TypedDict):
    """What is downloaded: the commit, the directory that the rows are below, and what has not come yet."""

    revision: str
    root: str
    missing: int
    port: int | None  # where others take it from; null if that is impossible


class RememberedList(TypedDict):
    """The files of a source at a commit, as [path, size, sha256, SHA-1 of git], in a file of the work directory."""

    commit: str
    files: list[list[Any]]


class HubCommit(TypedDict):
    """What the Hugging Face Hub reports of a revision."""

    sha: str


class HubFile(TypedDict):
    """A file in a list of the Hugging Face Hub; `oid` is git's hash, in `lfs` a SHA-256."""

    type: str
    path: str
    oid: str
    size: int
    lfs: NotRequired[Any]
