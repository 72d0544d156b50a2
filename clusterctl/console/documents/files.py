"""Documents about files: `pull`, `cp`, `sync`."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from clusterctl.plans.sync.documents import OutsideFilesEntry


class RefusedFile(TypedDict):
    """A file that was not downloaded, and why."""

    path: str
    why: str


class ReceivedFiles(TypedDict):
    """What was downloaded from a node: files with other content here were not replaced, or not read in one piece."""

    node: str
    files: int
    bytes: int
    unchanged: int
    changed_here: list[str]
    written_to: list[str]
    refused: list[RefusedFile]
    error: str | None


class PulledNode(ReceivedFiles):
    """What was downloaded from a node, and what lies there outside the output directory."""

    outside: OutsideFilesEntry | None


class PullDocument(TypedDict):
    """What was downloaded, by node, and into which directory; `run` is null where the job shares its outputs."""

    schema: Literal[1]
    run: str | None
    job: str
    directory: str
    nodes: list[PulledNode]


class CopiedHere(ReceivedFiles):
    """What was copied from a node to this machine."""

    path: str


class CopiedThere(TypedDict):
    """What was copied to a node; `kept` files have other content there, `taken` bytes came from another node."""

    node: str
    path: str
    files: int
    bytes: int
    unchanged: int
    kept: int
    sent: int
    taken: int


class FailedNode(TypedDict):
    """A node that an error has kept from taking part."""

    node: str
    error: str


class CopyDocument(TypedDict):
    """What was copied; `conflicts` are files whose content differs between the nodes that have them."""

    schema: Literal[1]
    received: list[CopiedHere]
    sent: list[CopiedThere]
    conflicts: list[str]
    errors: list[FailedNode]


class SyncedNode(TypedDict):
    """What a node holds: `tree` is the hash of the code, null where it does not hold it; sizes in bytes."""

    node: str
    tree: str | None
    sent: int | None
    taken: int | None
    taken_from: str | None
    error: str | None


class SyncDocument(TypedDict):
    """The code that was sent, and what every node holds."""

    schema: Literal[1]
    tree: str
    files: int
    bytes: int
    nodes: list[SyncedNode]
