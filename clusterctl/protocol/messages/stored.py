"""What a node stores: runs, and what was staged, models and data sets; and what `clean` removes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict

from .files import OutsideSummary

if TYPE_CHECKING:
    from typing_extensions import NotRequired


class StagedSource(TypedDict):
    """What is staged: `source` as the user wrote it, the hash of its manifest, and who does it, as user@host."""

    source: str
    revision: str  # empty if there is none
    tree: str
    by: str


class StagedRecord(StagedSource):
    """What was staged at an absolute `path` of a node, and when."""

    path: str
    files: int
    bytes: int
    time: float


StagedState = Literal["whole", "missing", "changed", "dangling"]
STAGED_STATES: tuple[StagedState, ...] = ("whole", "missing", "changed", "dangling")


class StagedProblem(TypedDict):
    """A file, link or directory that is not as it was staged."""

    path: str
    state: StagedState


class StagedContent(StagedRecord):
    """What was staged, and what is left of it; `state` is that of the first problem, `differing` counts all of them."""

    state: StagedState
    differing: int
    problems: list[StagedProblem]  # the first of them


class Unused(TypedDict):
    """What is not in use."""

    contents: int
    bytes: int


class StoredRun(TypedDict):
    """One node's part of a run; `node_dir` is its directory, `blocked` forbids to remove it."""

    run: str
    node_dir: str
    state: Any  # some keys of State; null if there is none
    age: float
    bytes: int
    blocked: str
    outside: OutsideSummary | None


class Cleanable(TypedDict):
    """What a work directory holds that could go."""

    workdir_id: str
    runs: list[StoredRun]
    store: Unused
    payloads: Unused
    environments: Unused


class Removal(TypedDict):
    """Parts of runs as [run, node_dir], and whether the rest goes too."""

    runs: list[list[str]]
    rest: bool


class CleanReport(TypedDict):
    """What went, and what could not."""

    runs: int
    bytes: int
    contents: int
    failed: list[list[str]]  # [what, why]
    environments: NotRequired[int]
