"""What client and node send each other during the verb `files`, and to have contents given from node to node."""

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


class _FilesRequest(TypedDict):
    """The verb `files`; `run` is empty, or the run below whose working directory relative paths are."""

    workdir: str
    node: str
    run: str


class ListRequest(_FilesRequest):
    """List `sources`, each a kind and a path, at most so many files, and send what is fetched of them.

    With `hashed` each file is listed with its hash.
    """

    do: Literal["send"]
    sources: list[list[str]]
    most: int
    hashed: bool
    shared_home_probe: str  # empty where it does not matter which nodes share a home
    mark: str


class TakeRequest(_FilesRequest):
    """Take files into `path`, where they have, or are below, a `name`; empty: what is in a directory is taken."""

    do: Literal["take"]
    path: str
    name: str
    folder: bool  # what is taken goes into a directory of that path, which is made; else it may be a new name
    overwrite: bool
    private: bool  # what is taken is for the account alone
    provide: Offer | None


class CopyReport(TypedDict):
    """What was written; `kept` are the first files that are there already with other content, of `kept_count`."""

    files: int
    bytes: int
    unchanged: int
    kept: list[str]
    kept_count: int
