"""Parts of the JSON documents of verbs that functions here make; whole documents are in `console/documents`."""

from __future__ import annotations

from typing_extensions import TypedDict

from clusterctl.plans.diagnose.documents import HangEntry
from clusterctl.plans.sync.documents import OutsideFilesEntry
from clusterctl.protocol.states import RunState


class AloneEntry(TypedDict):
    """How many ranks had no process group of more than `largest`, where `planned` were to be in one."""

    ranks: int
    largest: int
    planned: int
    code: str


class AttemptEntry(TypedDict):
    """One attempt that has ended; times are Unix seconds by the clock of the node that reported it."""

    attempt: int
    reason: str
    text: str
    node: str | None
    began: float | None
    ended: float | None
    progress: bool | None


class FailureEntry(TypedDict):
    """How a rank, or without one a node or its torchrun, ended; `time` in Unix seconds."""

    node: str
    rank: int | None
    ending: str
    time: float


class CauseEntry(FailureEntry):
    """What failed first, what it wrote, what is known of it, and what followed from it."""

    exception: str
    code: str | None
    meaning: str
    advice: str
    command: str
    stderr: list[str]
    consequences: list[FailureEntry]


class VerdictEntry(TypedDict):
    """How a run ended, by node where that differs; `recorded`: its nodes have the complete record of the end."""

    state: RunState
    exit_code: int
    seconds: float | None
    nodes: dict[str, RunState]
    reasons: dict[str, str]
    left: dict[str, list[str]]
    gpu_memory: dict[str, list[str]]
    attempt: int
    attempts: list[AttemptEntry]
    gave_up: str | None
    spares: list[str]
    after: dict[str, str]
    outside: dict[str, OutsideFilesEntry]
    world_sizes: dict[str, int]
    cause: CauseEntry | None
    alone: AloneEntry | None
    hang: HangEntry | None
    recorded: bool
    slow: str | None
