"""Requests and answers of each verb; a request goes in the header with which a verb is started."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict, Union

from ..ranks import Rank, Slot
from .allocation import CheckPart, NodeFacts, QueueFacts, SlurmNumber
from .checks import MeshPath, MeshPorts
from .contents import Blob, CopyReport, Missing, Offer, Reach, Resolved, Source, Stored, TreeSummary
from .evidence import (
    Diagnosis,
    HistoryHeader,
    KeptEvidence,
    LaunchedWith,
    OutputFrame,
    ScalarsFrame,
)
from .facts import Facts, FoundPython, Orphan, Sample
from .files import (
    EndedProcess,
    JournalEntry,
    LeftProcess,
    OutsideSummary,
    SetupQuery,
    Spec,
    StartFailure,
    State,
    TorchrunRecord,
)
from .local import WarmServerFacts
from .network import MeshCallOrder, MeshListen, MeshProblem, Problem
from .stored import Cleanable, CleanReport, Removal, StagedContent, StagedSource

if TYPE_CHECKING:
    from typing_extensions import NotRequired

VerbName = Literal[
    "clean",
    "connect",
    "diagnose",
    "download",
    "exec",
    "files",
    "follow",
    "history",
    "idle",
    "orphans",
    "probe",
    "ps",
    "pulse",
    "pythons",
    "shell",
    "slurm",
    "slurm_pulse",
    "staged",
    "start",
    "stop",
    "sync",
    "take",
    "top",
    "warm",
]


StreamName = Literal["stdout", "stderr"]
ReplacedBy = Literal["link", "directory", "pipe", "socket", "device"]  # what a rank can put in place of a log


class VerbHeader(TypedDict):
    """What node/boot.py reads first; it answers with the sentinel, after which frames begin.

    It is also the frame of a further verb for the same process; its body holds the modules that are not there yet.
    `payload` is where, in the work directory, the byte code of this version may be; `module` is the verb's where it
    has another name.
    """

    sentinel: str
    verb: VerbName
    request: Request
    payload: NotRequired[str]
    module: NotRequired[str]


class Error(TypedDict):
    """Why a verb failed; an empty code is an error of ours."""

    code: str
    message: str
    traceback: str


class Beat(TypedDict):
    """A sign of life, in both directions; `steps` counts work: as long as it grows, the node is not stuck.

    `taken`: bytes that have come from other nodes so far; `waited`: seconds in which those had nothing to send.
    """

    beat: int
    steps: NotRequired[int]
    taken: NotRequired[int]
    waited: NotRequired[int]


class Workdir(TypedDict):
    """Where a verb works."""

    workdir: str


class OfNode(Workdir):
    """A request about one node's part of a work directory that may be shared."""

    node: str


class OfRun(OfNode):
    """A request about one node's part of a run."""

    run: str


class ProbeRequest(OfNode):
    """The verb `probe`: all facts of a node."""

    host: str
    ip: str | None
    nic: list[str]
    network: str | None
    peers: dict[str, str]
    payload: str


class FullProbeRequest(ProbeRequest, total=False):
    """The verb `probe`, which may stay for a test of the network (node/diagnose/mesh.py); `skip` names facts.

    Of the `job` the newest checkpoint is looked at; empty: of none.
    """

    stay: bool
    setup: SetupQuery | None
    skip: list[str]
    job: str


class PythonsRequest(OfNode):
    """The verb `pythons`: the interpreters of a node; `code` is where the code lies, if it is there."""

    code: str


class PythonsAnswer(TypedDict):
    """Interpreters, those with torch first, and environment modules with torch in their name."""

    pythons: list[FoundPython] | Problem
    modules: list[str] | Problem


class ExecRequest(TypedDict):
    """The verb `exec`: a command; `keep` bytes of each stream are sent, null is all."""

    argv: list[str]
    keep: int | None
    node: str


class CommandEnd(TypedDict):
    """How a command ended, which streams were longer than was sent, and what it left running."""

    exit: int | None
    signal: int | None
    cut: list[str]
    left: list[str]


class SyncRequest(OfNode):
    """The verb `sync`: take code; without a run only the store is filled."""

    run: str | None
    node_rank: Slot
    shared_home: bool
    provide: Offer | None


class ListRequest(OfRun):
    """The verb `files`: list `sources`, each a kind and a path, at most so many files, and send what is fetched.

    `run` is empty, or the run below whose working directory relative paths are, as in TakeRequest. With `hashed` each
    file is listed with its hash.

    The kind `checkpoint` is what the node has of a generation of the run, in place or for others: its path is
    ATTEMPT/NAME, with 0 for the newest of this name, and that of a row is NODE_RANK/PATH, where PATH begins with NAME.
    Only parts that are whole are listed; a node without any, or that knows no seal of it, lists nothing.
    """

    sources: list[list[str]]
    most: int
    hashed: bool
    shared_home_probe: str  # empty where it does not matter which nodes share a home
    mark: str


class TakeRequest(OfRun):
    """The verb `take`: into `path`, where files have, or are below, a `name`; empty: what is in a directory is taken.

    What is staged replaces files that have other content, and is recorded.
    """

    path: str
    name: str
    folder: bool  # what is taken goes into a directory of that path, which is made; else it may be a new name
    overwrite: bool
    private: bool  # what is taken is for the account alone
    provide: Offer | None
    staged: StagedSource | None


class StagedRequest(OfNode):
    """The verb `staged`: list what was staged to these paths from these sources, or remove it; empty: all.

    `verify` compares hashes.
    """

    do: Literal["list", "remove"]
    paths: list[str]
    sources: list[str]
    verify: bool


class DownloadRequest(OfRun):
    """The verb `download`: the files of a source come to this node, below `to`, and are given to others meanwhile.

    `inspect` only reports what is here already, `list` what would come. Kind, path and revision are those of the key
    `stage`; a single file gets the `name`, and must have the SHA-256 if there is one. `variables` are those of the job
    that name hubs and proxies.
    """

    do: Literal["inspect", "list", "get"]
    kind: Literal["hf", "ms", "url"]
    path: str
    revision: str
    to: str
    name: str
    layout: Literal["cache", "directory"]
    sha256: str
    variables: dict[str, str]
    token: str  # a secret
    most: int  # files
    provide: Offer | None
    staged: StagedSource | None  # its revision and the hash of the tree are found here


class PayloadId(TypedDict):
    """The version of the node's part of clusterctl."""

    sha256: str
    size: int


class StartRequest(Workdir):
    """The verb `start`: a run, up to GO; see agent.py for what follows."""

    spec: Spec
    secrets: dict[str, str]
    token: str
    payload: PayloadId


class Secrets(TypedDict):
    """The first frame, which the verb `start` passes on: secrets by name, and the gang's token."""

    secrets: dict[str, str]
    token: str | None
    cold: NotRequired[str]  # why the node's warm server was not used


LockOrder = Literal["lock", "unlock", "list_holders"]
Stage = Literal["setup", "before"]


class Order(TypedDict):
    """An order of the client; which facts there are depends on `do`."""

    do: LockOrder | Stage | Literal["join", "listeners", "go", "cancel"]  # join: connect to node 0's agent
    listeners: NotRequired[
        list[tuple[Slot, str, int]]
    ]  # join, listeners: [slot, address, port] of every agent
    port: NotRequired[int]  # join
    master_port: NotRequired[int]  # go
    reason: NotRequired[str]  # cancel; it is put in the record


EventName = Literal[
    "workdir",
    "locks",
    "started",
    "hub",
    "listener",
    "port",
    "setup",
    "doing",
    "environment",
    "joined",
    "ready",
    "go_received",
    "listening",
    "setup_failed",
    "gate_failed",
    "join_failed",
    "failed",
    "ended",
]


class HolderAnswer(TypedDict, total=False):
    """What the holder of a lock sends to every process that connects to it; agents of all versions send these keys."""

    run: str | None
    job: str
    node: str
    by: str
    since: float
    submitted: float | None
    protocol: int
    going: bool  # its workers run
    agent: int


class Holder(HolderAnswer, total=False):
    """A lock that is held: what the kernel reports of its holder, and what the holder sends itself."""

    name: str
    gpu: int | None
    pid: int | None
    uid: int | None
    user: str | None
    age: float | None


class EventFacts(StartFailure, total=False):
    """What an event holds; which facts there are depends on the event. `text` of `doing` is a step."""

    id: str  # workdir: its random id
    held: bool  # locks
    holders: list[Holder]  # locks
    pid: int | None  # started: of the gate
    starttime: int | None
    port: int | None  # hub, listener, port, listening; join_failed: which it tried
    made: bool  # setup: the environment is there
    torch: str  # ready
    error: str  # join_failed
    reason: str
    port_taken: bool  # failed: another process has the master port; `text` has it too
    state: str  # ended
    exit: int | None
    signal: int | None


AnyEventFacts = Union[EventFacts, StartFailure, TorchrunRecord]


class Event(EventFacts):
    """An event of the agent, or of the verb `start` itself."""

    event: EventName


class SlurmTemplate(TypedDict):
    """What the tasks of a Slurm job make each node's spec of; holes are filled in there, see node/slurm/spec.py."""

    spec: Spec
    workers: int | Literal["gpu", "cpu"]  # of each node
    nic: list[str]
    network: str | None
    requeue: bool
    check: CheckPart


class SubmittedTemplate(SlurmTemplate):
    """template.json: what the tasks get, with the seconds between Slurm's SIGTERM and SIGKILL.

    `judge` is the zip of the program that judges the nodes.
    """

    kill_wait: float | None
    judge: str


class SubmittedSecrets(TypedDict):
    """What the tasks get apart from the template, in a file that only the account can read."""

    secrets: dict[str, str]
    token: str


class SlurmRequest(Workdir):
    """The verb `slurm`, on the login node. `ps`, `follow`, `stop` and `clean` are as the verbs of that name."""

    do: Literal["submit", "check", "ps", "queue", "follow", "stop", "cancel", "clean"]


class SubmitRequest(SlurmRequest):
    """Submit a job; `options` are those of sbatch. With `do: check` it is cancelled when the client is gone."""

    template: SlurmTemplate
    options: list[str]
    script: str
    secrets: dict[str, str]
    token: str
    payload: PayloadId
    judge: PayloadId | None


class QueueRequest(SlurmRequest):
    """Report how a job waits until so many nodes have begun."""

    run: str
    count: int


class CancelRequest(SlurmRequest):
    """Take a job out of Slurm if it has not ended by itself after some seconds."""

    run: str
    timeout: float


class LogChoice(TypedDict, total=False):
    """Which lines of which logs are wanted."""

    ranks: list[Rank] | None
    streams: list[str]
    tail: int | None
    since: int  # the first attempt
    attempt: int | None  # the only attempt
    grep: str | None
    times: bool
    ordered: bool
    moment: float | None
    torchrun: bool
    offsets: dict[str, int]


class FollowChoice(TypedDict, total=False):
    """What of a run is wanted; `events` is where in the journal to read on."""

    follow: bool
    events: int | None
    logs: LogChoice | None
    activity: float | None
    clock: bool


class FollowRequest(OfRun, FollowChoice, total=False):
    """The verb `follow`: state, events and log lines of a run, as they come or as they were."""


class ClockBegin(TypedDict):
    """The node's clock is so far ahead; go on."""

    begin: Literal[True]
    ahead: float


class LogFrame(TypedDict):
    """Lines of one log, in the body."""

    log: str
    rank: Rank | None
    stream: str
    offset: int
    gone: NotRequired[list[int]]  # what was dropped before them, from and to
    replaced_by: NotRequired[ReplacedBy]  # what is there in place of the file, and is not read
    written: NotRequired[float]
    before: NotRequired[int]  # how long it was when a tail was asked for
    time_marks: NotRequired[list[Any]]  # [offset, time] between which lines are timed
    guessed: NotRequired[bool]
    places: NotRequired[list[int]]  # of lines that a pattern chose
    next: NotRequired[int]


class StopRequest(OfRun):
    """The verb `stop`; `lived`: it was not known to have ended; `dump`: to keep first where the ranks are."""

    grace: float | None
    reason: str
    lived: bool
    dump: bool


class StopReport(TypedDict):
    """What was ended, and what is left; `elsewhere` is another account under which the run lives."""

    ended: list[EndedProcess]
    left: list[LeftProcess]
    state: State | None
    elsewhere: NotRequired[str]


class PsRequest(OfNode):
    """The verbs `ps`, `pulse` and `slurm_pulse`: the runs that a node remembers; `run` is the beginning of an id."""

    run: str | None
    limit: int
    activity: bool


class PsAnswer(TypedDict):
    """The newest first, and the node's time."""

    runs: list[State]
    time: float


class DiagnoseRequest(OfRun):
    """The verb `diagnose`: where these ranks are, null is all; or what the agent has kept of that.

    `kept` is empty, or `diagnosis` (before the end, or of a stall).
    `entries` is how many collectives of each process group are sent.
    """

    ranks: list[int] | None
    kept: str
    entries: int


class HistoryRequest(OfRun):
    """The verb `history`: samples of the last so many seconds (null: all) at so many moments; `details`: all else.

    `speed`: of that only what shows how fast the run is.
    """

    since: float | None
    points: int
    details: bool
    speed: bool
    lines: int  # of each rank's output
    code: bool  # with details: whether node 0 names the files that it was sent


class TopRequest(TypedDict):
    """The verb `top`: samples every so many seconds."""

    node: str
    interval: float


class Listed(TypedDict):
    """All rows were sent."""

    listed: int
    more: bool
    mark: str
    workdir_id: str
    outside: OutsideSummary | None


class FilePiece(TypedDict):
    """A piece of a file, in the body."""

    file: int
    at: int
    packed: bool


class FileWhole(TypedDict):
    """A file is complete."""

    whole: int
    sha256: str
    size: int
    same: bool


class FileFailed(TypedDict):
    """A file could not be read."""

    failed: int
    why: str


class CleanRequest(OfNode):
    """The verb `clean`: what was not used for so many seconds; `payload` is the client's own."""

    unused: float
    payload: str


class OrphansRequest(OfNode):
    """The verb `orphans`: list them, or end some, as [pid, starttime]."""

    end: list[list[int]] | None


class Orphans(TypedDict):
    """Those of this account, and how many others have."""

    orphans: list[Orphan]
    others: dict[str, int]


class OrphansEnded(TypedDict):
    """What was ended, and what is left."""

    ended: list[EndedProcess]
    left: list[LeftProcess]


class ConnectRequest(OfRun):
    """The verb `connect`: bytes to and from a port of a node, or a rank at a breakpoint, which `number` names."""

    to: Literal["port", "rank"]
    number: int


class ShellRequest(OfRun):
    """The verb `shell`: how to start a program in a run's directory, with its variables."""

    payload: PayloadId


class WarmRequest(OfNode):
    """The verb `warm`: describe the node's warm server, or end it."""

    end: bool


class WarmAnswer(TypedDict):
    """At most one server; `time` is the node's clock, `ended` its pid if it was ended."""

    servers: list[WarmServerFacts]
    time: float
    ended: NotRequired[list[int]]


class PlainClientFrame(TypedDict, total=False):
    """A frame of the client with one of these keys, which names it."""

    data: bool  # bytes of a connection, in the body
    close: bool  # the client sends no more over a connection
    manifest: Literal[True]  # a tree, in the body: zlib(JSON rows)
    check_store: Literal[True]  # it is this node's turn to look into a store that others may fill
    blobs: list[list[str | int]]  # contents and their sizes, in the body one after the other
    done: Literal[True]  # all contents were sent
    wait: Literal[True]  # a node that sends contents on has not received any more
    again: str  # a content comes from its beginning again
    source: Source  # take the contents from this node
    payload: Literal[True]  # the payload, in the body
    ask: Literal[True]  # the node sends its time
    fetch: list[list[Any]]  # files that are wanted: [index, bytes held, their sha256, whether data is wanted]
    provide: Offer  # send what was listed to other nodes, from there
    remove: Removal


class PlainNodeFrame(TypedDict, total=False):
    """A frame of a node with one of these keys, which names it."""

    end: Literal[True]  # the last frame of every verb
    error: Error  # the verb failed
    need: Literal[
        "payload", "judge"
    ]  # the node lacks it; `judge` is the program that judges a Slurm job's nodes
    facts: Facts  # with a Problem in the place of what could not be answered
    stream: StreamName  # of a command: what it wrote, in the body
    ended: CommandEnd
    sample: Sample
    # the verb `probe`, in the test of the network
    listening: MeshPorts
    paths: list[MeshPath]  # what came of all calls of a node
    # the verbs `sync`, `files` and `take`
    workdir_id: str  # the work directory's, while it waits for its turn
    rows: int  # so many rows, in the body: zlib(JSON)
    fetched: Literal[True]  # all that was wanted was sent
    provided: int | None  # the port where it is given; null if that is impossible
    held_by: str  # who stages to the same place; the node waits for its end
    copied: CopyReport  # all that was to be taken is there
    # the verb `download`
    reach: Reach
    waiting: str  # why nothing comes for a while
    downloaded: int  # bytes
    resolved: Resolved
    # the verbs `connect` and `shell`
    data: bool  # bytes of the connection, in the body
    connected: str  # the address of the node at which the port accepted
    waits: int | None  # the rank waits at a breakpoint; null: it does not yet
    closed: str  # why there is no connection, or why it has ended
    argv: list[str]  # the beginning of a command, to which the words of the program are added
    # the verbs `follow` and `stop`
    clock: float  # this time
    state: State  # it has changed
    events: int  # lines of the journal, in the body: where to read on
    positions: dict[str, int]  # where each log begins for a tail
    event: JournalEntry  # a line of the journal, while the run ends
    stopped: StopReport
    # the verbs `diagnose` and `history`
    diagnosis: Diagnosis
    kept: KeptEvidence | None  # null if the agent has kept nothing of the last attempt
    history: HistoryHeader  # the samples of a run on this node, in the body
    journal: int  # the end of events.jsonl, in the body: so many bytes
    launched: LaunchedWith
    code: int  # the manifest of the code, in the body: so many bytes
    collectives: int  # those that the agent has kept, in the body: zlib of KeptCollectives, of so many bytes
    # the verb `staged`
    staged: list[StagedContent]
    # the verbs `clean` and `staged`
    found: Cleanable | None  # null if there is no work directory
    removed: CleanReport
    # the verb `slurm`
    submitted: SlurmNumber
    queue: QueueFacts  # sent when something has changed
    cancelled: SlurmNumber  # if it had to be


Request = Union[
    Workdir,
    ConnectRequest,
    ShellRequest,
    ProbeRequest,
    FullProbeRequest,
    ExecRequest,
    SyncRequest,
    StartRequest,
    FollowRequest,
    StopRequest,
    PsRequest,
    DiagnoseRequest,
    HistoryRequest,
    TopRequest,
    PythonsRequest,
    ListRequest,
    TakeRequest,
    StagedRequest,
    DownloadRequest,
    CleanRequest,
    OrphansRequest,
    SubmitRequest,
    QueueRequest,
    CancelRequest,
    SlurmRequest,
    WarmRequest,
]
ClientFrame = Union[
    PlainClientFrame,
    VerbHeader,
    Beat,
    Blob,
    ClockBegin,
    MeshListen,
    MeshCallOrder,
    Order,
]
NodeFrame = Union[
    PlainNodeFrame,
    Beat,
    PythonsAnswer,
    MeshProblem,
    Missing,
    Stored,
    TreeSummary,
    Event,
    LogFrame,
    PsAnswer,
    WarmAnswer,
    OutputFrame,
    ScalarsFrame,
    Listed,
    FilePiece,
    FileWhole,
    FileFailed,
    Orphans,
    OrphansEnded,
    NodeFacts,
]
