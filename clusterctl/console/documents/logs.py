"""Lines of NDJSON: the output of ranks, and of a command on many nodes."""

from __future__ import annotations

from typing import Literal

from typing_extensions import NotRequired, TypedDict

from clusterctl.protocol.messages.verbs import StreamName


class LogLine(TypedDict):
    """One line of a log; `time` in Unix seconds if known, `offset` is its place in the file in bytes.

    `rank` is null for torchrun's own log, whose `stream` may be empty. `continues` marks the rest of a line that is too
    long for one piece; `dropped` are the bytes that are missing from `offset` on.
    """

    schema: Literal[1]
    run: str
    node: str
    node_rank: int | None
    attempt: int
    rank: int | None
    stream: StreamName | Literal[""]
    offset: int
    time: float | None
    line: str
    continues: NotRequired[Literal[True]]
    dropped: NotRequired[int]


class CommandLine(TypedDict):
    """One line that a command has written on a node."""

    schema: Literal[1]
    node: str
    stream: StreamName
    line: str


class CommandEndLine(TypedDict):
    """How a command ended on a node; `left` are its processes that still run."""

    schema: Literal[1]
    node: str
    exit: int | None
    signal: int | None
    left: list[str]
