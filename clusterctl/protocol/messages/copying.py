"""What client and node send each other during the verb `copy`, besides what the verbs `pull` and `sync` send."""

from __future__ import annotations

from typing import Literal, TypedDict


class Offer(TypedDict):
    """Where a node gives contents on to others."""

    address: str
    ports: tuple[int, int] | None
    token: str


class Source(TypedDict):
    """Another node that has the contents."""

    address: str
    port: int
    token: str


class CopyRequest(TypedDict):
    """The verb `copy`; `run` is empty, or the run below whose working directory relative paths are.

    `send` and `give` list `sources`, each a path and the name under which it is listed (empty: what is in it); `give`
    with hashes. `take` writes into the first source's path. `most` is how many files are listed.
    """

    workdir: str
    node: str
    run: str
    do: Literal["send", "give", "take"]
    sources: list[list[str]]
    most: int
    folder: bool  # what is taken goes into a directory of that path, which is made; else it may be a new name
    overwrite: bool
    private: bool  # what is taken is for the account alone
    provide: Offer | None


class Provide(TypedDict):
    """Give what was listed to other nodes, there; null if that cannot be."""

    provide: Offer


class Provided(TypedDict):
    """The port where it is given, or null."""

    provided: int | None


class CopyReport(TypedDict):
    """What was written; `kept` are the first files that are there already with other content, of `kept_count`."""

    files: int
    bytes: int
    unchanged: int
    kept: list[str]
    kept_count: int


class Copied(TypedDict):
    """All that was to be taken is there."""

    copied: CopyReport
