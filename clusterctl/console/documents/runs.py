"""Documents of errors and of `explain`; about runs: `launch`, `ps`, `status`, `stop`, `report`, `export`, and lines of
logs; and of `check` and `diagnose`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from typing_extensions import NotRequired, TypedDict

from clusterctl.plans.checks.framework import Finding
from clusterctl.plans.cleanup import WarmServer
from clusterctl.plans.diagnose.evidence import Frame, RankEvidence
from clusterctl.plans.diagnose.slow import Lateness
from clusterctl.plans.runs.checkpoints import Checkpoint
from clusterctl.plans.runs.documents import (
    AloneEntry,
    AttemptEntry,
    CauseEntry,
    FieldsOf,
    HangEntry,
    LaunchPreview,
    OutsideFilesEntry,
    SmallerEntry,
    SpeedEntry,
    VerdictEntry,
)
from clusterctl.plans.runs.state import HaltedProcess
from clusterctl.protocol.messages.checks import GroupResult, SearchReport
from clusterctl.protocol.messages.facts import Facts, GpuUsage
from clusterctl.protocol.messages.verbs import StreamName
from clusterctl.protocol.states import RunState


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


class RunEntry(TypedDict):
    """A run as a whole; `launched_from` is a directory of the machine that launched it, `submitted` Unix seconds.

    `staged` are the sources of the job's `stage`, each with its revision and hash; empty if there are none.
    """

    run: str
    job: str
    cluster: str
    state: RunState
    attempt: int
    attempts: list[AttemptEntry]
    smaller: SmallerEntry | None
    nodes: list[str]
    spares: list[str]
    world_size: int | None
    launched_by: str
    launched_from: str
    staged: str
    submitted: float


class ListedRun(RunEntry):
    """A run in the list: why it ended in a few words, how long it ran in seconds; times in Unix seconds.

    `checkpoint` is the newest that is safe, of a job with `checkpoints`.
    """

    own: bool
    cause: str | None
    ran: float | None
    ended: float | None
    stalled_since: float | None
    checkpoint: str | None


WarmProcess = Annotated[dict[str, Any], FieldsOf(WarmServer, (("node", str),), "WarmProcess")]


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
    """A run with its timing: what the time limit leaves, and between the first and last rank's start, in seconds.

    `checkpoints` are those that the nodes keep for each other, the newest last; `resumed` is the one that the attempt
    went on from.
    """

    time_left: float | None
    start_skew: float | None
    checkpoints: list[Annotated[dict[str, Any], FieldsOf(Checkpoint)]]
    resumed: str | None


class StatusDocument(TypedDict):
    """One run: its nodes and ranks, and why it ended or makes no progress."""

    schema: Literal[1]
    run: RunStatus
    nodes: list[RunNode]
    cause: CauseEntry | None
    alone: AloneEntry | None
    hang: HangEntry | None
    speed: SpeedEntry | None


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


# A keyword of Python, which no class can have as a name.
_Caller = TypedDict("_Caller", {"from": str})


class NetworkPath(_Caller):
    """One connection from a node to another; times in seconds, `rtt_us` in microseconds, `mss` in bytes."""

    to: str
    network: str | None
    port: Literal["master", "ephemeral"]
    open: bool
    error: str | None
    connect: float | None
    seconds: float | None
    rtt_us: int | None
    mss: int | None
    retransmitted: int | None


class NetworkTest(TypedDict):
    """Every connection that was tried; `absent` is why a node did not take part, `seconds` how long it took."""

    nodes: list[str]
    absent: dict[str, str]
    seconds: float
    ways: list[NetworkPath]


DeepGroup = Annotated[
    dict[str, Any],
    FieldsOf(
        GroupResult,
        (("nodes", list[str]),),
        "DeepGroup",
        "How a group of nodes fared: `rows` are bytes and seconds of an all_reduce.",
    ),
]


class DeepRoundEntry(TypedDict):
    """One round of the deep check."""

    kind: str
    seconds: float
    groups: list[DeepGroup]


_NAMED_PARTS = (
    ("nodes", list[str]),
    ("links", list[list[str]]),
    ("slow_nodes", list[str]),
    ("slow_links", list[list[str]]),
)
DeepConclusion = Annotated[
    dict[str, Any],
    FieldsOf(
        SearchReport,
        _NAMED_PARTS,
        "DeepConclusion",
        "Which nodes and links are at fault; `rest`: all others work together without them.",
    ),
]


class DeepCheck(TypedDict):
    """The collective that was run on all nodes; `trouble` is why it did not come to its end."""

    backend: str
    ranks: int
    trouble: str | None
    rounds: list[DeepRoundEntry]
    found: DeepConclusion | None


class CheckedNode(TypedDict):
    """One node: its address and NICs, why these were chosen, and all that it reported; `facts` is null without."""

    name: str
    node_rank: int
    host: str
    answered: bool
    ip: str | None
    nics: list[str]
    chosen_by: str
    nccl_ib_hca: str | None
    verdict: str
    facts: Annotated[dict[str, Any], FieldsOf(Facts)] | None


class NodesAndFindings(TypedDict):
    """The nodes, and what is wrong with them."""

    schema: Literal[1]
    nodes: list[CheckedNode]
    findings: list[Annotated[dict[str, Any], FieldsOf(Finding)]]


class CheckDocument(NodesAndFindings):
    """The nodes, what is wrong with them, and the test of the network; `age` in seconds if an earlier one was used."""

    wire: NetworkTest | None
    age: float | None
    deep: NotRequired[DeepCheck]


class AskedNode(TypedDict):
    """Whether a node answered, and in how many seconds; with an error too, it answered the first of two queries."""

    name: str
    answered: bool
    took: float | None
    error: str | None


EvidenceEntry = Annotated[
    dict[str, Any],
    FieldsOf(
        RankEvidence,
        (("where", Frame | None),),
        "EvidenceEntry",
        "What is known of one rank; `where` is the line of the job at which its main thread is, `frames` innermost "
        "first.\n\n`problem` is why it could not be asked; `silent` is for how many seconds it has written nothing, "
        "`cpu` counts\nprocessors.",
    ),
]


GpusByNode = dict[str, list[Annotated[dict[str, Any], FieldsOf(GpuUsage)]]]


class DiagnoseDocument(TypedDict):
    """Why a run makes no progress, the evidence of every rank, and how busy the GPUs are where it hangs."""

    schema: Literal[1]
    run: str
    code: str
    hangs: bool
    sentence: str
    next: str
    suspects: list[int]
    waiting: list[int]
    seconds: float | None
    nodes: list[AskedNode]
    ranks: list[EvidenceEntry]
    gpus: GpusByNode


class SlownessDocument(TypedDict):
    """Which rank the others wait for (`diagnose --slow`); times in seconds, shares from 0 to 1."""

    schema: Literal[1]
    run: str
    code: str
    sentence: str
    next: str
    suspects: list[int]
    collectives: int
    seconds: float
    ranks: list[Annotated[dict[str, Any], FieldsOf(Lateness)]]
