"""Documents about runs: `ps`, `status`, `stop`, `report`, `export`, `launch --dry-run`; lines of `launch`, `logs`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from typing_extensions import NotRequired, TypedDict

from clusterctl.console.documents.codes import ErrorEntry
from clusterctl.console.documents.fields_of import FieldsOf
from clusterctl.plans.runs.documents import (
    AloneEntry,
    AttemptEntry,
    CauseEntry,
    HangEntry,
    LaunchPreview,
    OutsideFilesEntry,
    VerdictEntry,
)
from clusterctl.plans.runs.state import HaltedProcess
from clusterctl.protocol.messages.verbs import StreamName
from clusterctl.protocol.states import RunState


class RunEntry(TypedDict):
    """A run as a whole; `launched_from` is a directory of the machine that launched it, `submitted` Unix seconds."""

    run: str
    job: str
    cluster: str
    state: RunState
    attempt: int
    attempts: list[AttemptEntry]
    nodes: list[str]
    spares: list[str]
    world_size: int | None
    launched_by: str
    launched_from: str
    submitted: float


class ListedRun(RunEntry):
    """A run in the list: why it ended in a few words, how long it ran in seconds; times in Unix seconds."""

    own: bool
    cause: str | None
    ran: float | None
    ended: float | None
    stalled_since: float | None


class WarmProcess(TypedDict):
    """A process with torch imported that waits for the next launch; times in seconds, its memory in bytes."""

    node: str
    pid: int
    python: str
    torch: str
    preload: list[str]
    age: float
    ends_in: float
    bytes: int


class PsDocument(TypedDict):
    """The runs on the nodes, your own first, and the processes that wait for the next launch."""

    schema: Literal[1]
    runs: list[ListedRun]
    warm: list[WarmProcess]


class RankActivityEntry(TypedDict):
    """The signs of life of a rank: the kernel's letter for its process, its last line, when it wrote (Unix seconds)."""

    process: str | None
    last_line: str | None
    written: float | None
    stalled: str | None


class RankEntry(RankActivityEntry):
    """One rank; `exit` and `signal` are null while it runs, `stopped`: by a signal or a debugger."""

    rank: int
    local_rank: int
    exit: int | None
    signal: int | None
    stopped: bool


class RunNode(TypedDict):
    """One node's part of a run; a node that did not answer has only the first keys, and no ranks."""

    node: str
    node_rank: int | None
    state: RunState
    ranks: list[RankEntry]
    attempt: NotRequired[int]
    since: NotRequired[float]
    world_size_seen: NotRequired[int | None]
    torchrun_exit: NotRequired[int | None]
    reason: NotRequired[str]
    stopping: NotRequired[str | None]
    halted: NotRequired[list[Annotated[dict[str, Any], FieldsOf(HaltedProcess)]]]
    left: NotRequired[list[str]]
    outside: NotRequired[OutsideFilesEntry | None]


class RunStatus(RunEntry):
    """A run with its timing: what the time limit leaves, and between the first and last rank's start, in seconds."""

    time_left: float | None
    start_skew: float | None


class StatusDocument(TypedDict):
    """One run: its nodes and ranks, and why it ended or makes no progress."""

    schema: Literal[1]
    run: RunStatus
    nodes: list[RunNode]
    cause: CauseEntry | None
    alone: AloneEntry | None
    hang: HangEntry | None


class StoppedNode(TypedDict):
    """What a stop has ended on a node, and what it could not end; `state` is that of the run's part there."""

    ended: list[str]
    left: list[str]
    state: RunState | None


class StopDocument(TypedDict):
    """What was stopped, by node; `missed` are the nodes on which nothing was."""

    schema: Literal[1]
    run: str
    nodes: dict[str, StoppedNode]
    missed: list[str]


class ReportDocument(TypedDict):
    """The file that was written, and the runs that it is about."""

    schema: Literal[1]
    file: str
    bytes: int
    runs: list[str]


class ExportDocument(TypedDict):
    """The script, the file that it was written to, and notes about what it leaves out."""

    schema: Literal[1]
    target: Literal["slurm", "bash"]
    file: str | None
    script: str
    notes: list[str]


class DryRunDocument(TypedDict):
    """What `launch --dry-run` would start on which node."""

    schema: Literal[1]
    plan: LaunchPreview


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


class DetachedLine(TypedDict):
    """The run was started, and is not followed."""

    schema: Literal[1]
    run: str
    detached: Literal[True]


class SubmittedLine(TypedDict):
    """The run was submitted to Slurm as this job."""

    schema: Literal[1]
    run: str
    slurm_job: str


class VerdictLine(TypedDict):
    """The end of the run, the last line."""

    schema: Literal[1]
    run: str
    verdict: VerdictEntry


class EarlyEnd(TypedDict):
    """Why the run was not followed to its end: its state as far as it is known, and the exit code of the verb."""

    state: RunState
    exit_code: int
    error: str | None


class EarlyEndLine(TypedDict):
    """The last line where a run did not start, or was not followed to its end; with `run` it continues."""

    schema: Literal[1]
    verdict: EarlyEnd
    run: NotRequired[str]
    error: NotRequired[ErrorEntry]


FollowLine = LogLine | DetachedLine | SubmittedLine | VerdictLine | EarlyEndLine
