"""The files of a run: spec.json, state.json, stop.json, gang.json, and the lines of events.jsonl."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict, Union

from ..ranks import NodeRank, Rank, Slot
from ..states import RunState

if TYPE_CHECKING:
    from typing_extensions import NotRequired


class Hole(TypedDict):
    """A part of a text that the agent fills in, as `master_port`."""

    fill: str


SentTemplate = Union[str, "list[str | Hole]"]  # a text, or segments with holes


class StepSpec(TypedDict):
    """A command of `setup`, `before` or `after`."""

    programs: list[SentTemplate]  # the first that is there is run
    arguments: list[SentTemplate]
    shown: str


class HookSpec(TypedDict):
    """The commands of `before` or `after`."""

    steps: list[StepSpec]
    time_limit: float


class SetupSpec(TypedDict):
    """What the job's environment is made of."""

    content: str  # hash of all that goes into it
    kind: str | None
    outer: bool  # with the packages of the Python outside
    steps: list[StepSpec]
    rows: list[list[str | int]]  # of a manifest: the files that the steps read
    time_limit: float


class SetupQuery(TypedDict):
    """Which environment a probe looks into."""

    content: str
    brings_torch: bool


class RestartSpec(TypedDict):
    """The job's `restart`; the last two are set by tests."""

    max: int
    on: list[str]
    progress: str | None
    pause: NotRequired[float]
    warm: NotRequired[float]


class CheckpointsSpec(TypedDict):
    """The job's `checkpoints`: a pattern with wildcards in its last component only; of a job with `restart`."""

    path: SentTemplate
    complete: str  # a file in each checkpoint that is written last; empty: one counts when it has settled
    copies: int  # of each node's files, its own among them; 0: on every node
    keep: int  # generations whose mirrors stay
    rate: float | None  # bytes a second that mirroring may take
    needs: Literal["all", "own"]  # which files a node needs to go on: all, or those of its node rank


GenerationState = Literal["collecting", "copying", "safe", "lost", "skipped"]


class CheckpointState(TypedDict):
    """How far one generation is; in state.json of the hub and, once it is safe, of every node, the newest last."""

    name: str
    attempt: int
    state: GenerationState
    nodes: int  # whose parts are known
    of: int
    copies: int  # of the part with the fewest
    files: int
    bytes: int
    time: float  # when it was sealed
    shared: bool  # all nodes see the same files, so nothing is copied
    note: str
    number: int  # of its seal, 0 without one: newer ones have higher numbers, by no clock
    hub: bool  # the hub reports it, which knows who has the copies


class GpuSpec(TypedDict):
    """A GPU that the run takes."""

    index: int | None
    id: str
    used: int | None


class RosterEntry(TypedDict):
    """One agent as the others see it; the spec has no more than the address."""

    slot: Slot
    node: str
    node_rank: NodeRank | None
    address: NotRequired[str | None]
    lost: NotRequired[bool]
    reason: NotRequired[str]
    unfit: NotRequired[str]
    processes: NotRequired[int | None]  # ranks that it starts, of a job with `min_nodes`
    left_out: NotRequired[int]  # the first attempt in which it does not count for a majority any more


class LaunchRecord(TypedDict, total=False):
    """The launch of a run: by whom, when, in which cluster; and the part of a spec that no plan holds."""

    cluster: str
    launched_by: str
    launched_id: str
    launched_from: str
    staged: str  # what was staged: each source with its revision and hash
    submitted: float
    setup: SetupSpec
    about: dict[
        str, str
    ]  # of the node as it was then: versions, why these NICs, the code's hash; for reports
    metrics: dict[str, str]  # the job's patterns of numbers in logs, by name


class StartSpec(TypedDict):
    """How torchrun starts its workers where not always with a new interpreter."""

    preload: list[str]  # modules that are imported first
    keep_warm: NotRequired[float]  # seconds that the process with torch imported waits for another run


class RaySpec(TypedDict):
    """Of a job with `launcher: ray`: GPUs of this node and of all (null: Ray counts), this node's range of ports.

    `own_ports`: how many Ray takes besides one for each CPU.
    """

    gpus: int | None
    all_gpus: int | None
    ports: list[int] | None
    own_ports: int
    names: dict[str, str]  # of the nodes of the attempt, by training address


class MpiSpec(TypedDict):
    """Of a job with `launcher: mpirun`: how many ranks each node has, by node rank."""

    slots: list[int]


class StallSpec(TypedDict):
    """When a run counts as stalled, in seconds without progress of any rank; `then` is empty, `stop` or `restart`."""

    after: float
    then: str


KeptReason = Literal["stall", "time_limit", "stop"]


class RankMarker(TypedDict, total=False):
    """PID.json beside a rank's stacks, which it writes itself: see `node/diagnose/rank.py`; an older one has less."""

    rank: int  # null in the file of a process that was started without RANK
    pid: int
    starttime: int
    stacks: int  # a descriptor
    thread: int
    main: int
    dumps: int  # 1: it writes its stacks itself
    local_rank: int
    world_size: int
    error_file: str  # torchrun's, beside the logs; empty if unknown


class KeptDiagnosis(TypedDict):
    """That it was kept where the ranks were, why and when; for a stall also the time of the last progress."""

    why: KeptReason
    time: float
    since: float | None


class NodePorts(TypedDict):
    """Where a node answers if it is not gone: its training IP, its sshd's port, and one that nothing may listen on."""

    slot: Slot
    address: str
    ports: list[int]


class SpecPart(TypedDict, total=False):
    """What spec.json holds of a gang, and of a job with `restart`, `start`, a launcher besides torchrun, or hooks."""

    nodes: list[str]  # only node 0's: the nodes that are going to join
    node_ports: list[NodePorts]
    slot: Slot
    slots: int
    spare: bool
    roster: list[RosterEntry]
    restart: RestartSpec
    checkpoints: CheckpointsSpec
    min_nodes: int  # with so many the run goes on where no spare is left
    planned_nodes: int  # set by the agent for a later attempt: `nnodes` of the first one
    resume: str  # set by the agent for a later attempt: the name of the checkpoint that it goes on from
    start: StartSpec
    ray: RaySpec
    mpi: MpiSpec
    before: HookSpec
    after: HookSpec


class OutsideStop(TypedDict):
    """What a SIGTERM means that comes without stop.json."""

    reason: str
    grace: float


class Spec(SpecPart, LaunchRecord):
    """spec.json: what a node's agent carries out."""

    protocol: int
    run: str
    job: str
    node: str
    node_rank: NodeRank
    nnodes: int
    nproc: int | None
    world_size: int | None
    attempt: int
    grace: float
    time_limit: float | None
    log_limit: int | None
    ends_with: str  # "all", or "node 0": the run ends when node 0's program does
    zombie_after: float  # seconds; 0 is never
    stall: StallSpec | None  # null where progress is not watched
    alone: str  # "ok": ranks need not form a process group; "fail", or "suspected": nothing distinguishes the nodes
    debug: bool  # whether a rank waits at `breakpoint()` for `clusterctl debug`
    diagnose: bool  # whether the ranks are prepared to be asked where they are
    sample: bool  # whether the agent samples the machine
    master_addr: str | None
    gang: bool
    hub: str
    address: str | None
    nic: list[str]
    ports: list[int] | None
    python: str
    module: str | None
    processes: int | None
    gpus: list[GpuSpec]
    exclusive: bool
    argv: list[SentTemplate]
    env: dict[str, SentTemplate]
    unset: list[str]
    unset_prefixes: list[str]
    output_dir: str
    environment: NotRequired[str]  # the agent's own: where the environment is
    outside_stop: NotRequired[OutsideStop]  # on a Slurm cluster
    earlier: NotRequired[
        list[AttemptRecord]
    ]  # on a Slurm cluster: the attempts before Slurm started the job again
    agent_limit: NotRequired[float]  # these are set by tests
    gang_limit: NotRequired[float]
    handshake_limit: NotRequired[float]
    join_limit: NotRequired[float]
    hub_limit: NotRequired[float]
    overdue_limit: NotRequired[float]
    checkpoint_look: NotRequired[float]


class ProcessRecord(TypedDict):
    """A process by its pid and the start time that the kernel counts; null where the record was damaged."""

    pid: int | None
    starttime: int | None


class TorchrunRecord(ProcessRecord):
    """torchrun, or what the job starts instead; `exit` and `signal` are null while it lives."""

    exit: int | None
    signal: int | None


class RankRecord(TorchrunRecord):
    """One worker: its files are named relative to the run's directory."""

    local_rank: int
    stdout: str | None
    stderr: str | None
    oom_killed: NotRequired[bool]  # killed while the kernel killed because memory ran out
    stopped: NotRequired[bool]  # in answers only: a signal has stopped it


class EndedProcess(TypedDict):
    """A process that was ended."""

    pid: int
    name: str


class LeftProcess(EndedProcess):
    """A process that could not be ended."""

    state: str


class AttemptEnd(TypedDict):
    """An attempt that another followed, as gang.json and the agents' messages have it."""

    attempt: int
    began: float | None
    ended: float | None
    reason: str
    node: str
    text: str
    progress: bool | None


class AttemptRecord(AttemptEnd):
    """The same as state.json has it: `reason` and `state` are this node's own, `cause_reason` is the gang's."""

    node_rank: NodeRank | None
    state: str | None
    cause_reason: str
    ranks: dict[str, RankRecord]


class OutsideSummary(TypedDict):
    """What a run has left in its copy of the code."""

    files: int
    bytes: int
    names: list[str]
    more: bool


class GpuUser(TypedDict):
    """A process that holds memory of a GPU, in MiB; user and command are empty where it is in another container."""

    memory: int | None
    pid: int
    user: str
    command: str


class HeldMemory(TypedDict, total=False):
    """Memory of a GPU that is still in use."""

    gpu: int | None
    id: str
    used: int
    by: list[GpuUser]


class Progress(TypedDict):
    """How far a rank is by its logs: the newest step, of how many, and losses at even distances, each a list of one."""

    step: int | None
    total: int | None
    losses: list[list[float | None]]  # null if it is not finite


class RankActivity(TypedDict):
    """A sign of life of a rank."""

    line: str
    written: float | None
    process: str  # the kernel's letter: R, S, D, T
    started: float


class CopiedFromSpec(TypedDict):
    """What a record takes over from the spec, with the first attempt and the rank in it."""

    run: str
    job: str
    cluster: str | None  # null for the test run of `check --deep`
    node: str
    launched_by: str
    launched_id: str
    launched_from: str
    staged: str | None
    submitted: float | None
    time_limit: float | None


class WarmRecord(TypedDict, total=False):
    """The gate that waits for the next attempt; after the run until when, at most, processes wait for the next run."""

    pid: int
    starttime: int
    until: float


class AloneRecord(TypedDict):
    """How many ranks had no process group of more than `largest`, where `planned` were to be in one."""

    ranks: int
    largest: int  # 1: each was alone; 0: that is suspected only, and not known
    planned: int


class StateChange(TypedDict, total=False):
    """What changes in a record: all that is not of a run with `restart`, of a GPU or of `after` is always there."""

    attempt: int
    node_rank: NodeRank
    nnodes: int  # in the attempt
    world_size: int | None
    planned_nodes: int  # of a job with `min_nodes` that was started again: what `nnodes` was at first
    state: RunState
    since: float
    reason: str
    world_size_seen: int | None
    guardian: ProcessRecord | None
    agent: ProcessRecord | None
    torchrun: TorchrunRecord | None
    ranks: dict[str, RankRecord]
    master: str | None
    began: float | None
    left: list[LeftProcess]
    gang_done: bool  # nothing of the gang is left to wait for
    end: RunEndSummary
    roster: list[RosterEntry] | None
    attempts: list[AttemptRecord]
    gave_up: str | None
    gpu_memory: list[HeldMemory]
    releasing: bool
    clocks: dict[str, int]  # of the hub: the other nodes' clocks minus its own, in microseconds
    sampled: float  # when the collectives of its ranks were kept last
    diagnosed: KeptDiagnosis | None  # null once a stall is over
    after: str
    outside: OutsideSummary
    warm: WarmRecord
    alone: AloneRecord
    checkpoints: list[CheckpointState]
    resumed: str  # the checkpoint that the attempt goes on from


class Membership(TypedDict, total=False):
    """What the record of a run holds that may start again."""

    slot: Slot | None
    slots: int | None
    spare: bool | None


class HaltedProcess(TypedDict):
    """The guardian, the agent or torchrun, halted by a signal or a debugger."""

    process: str
    pid: int


class State(CopiedFromSpec, StateChange, Membership):
    """state.json: one node's part of a run."""

    protocol: int
    boot_id: str
    machine: str
    nproc: int | None
    gang: bool | GangRecord  # a flag; in answers the record, if there is one
    halted: NotRequired[list[HaltedProcess]]  # in answers only
    stopping: NotRequired[str | None]  # in answers only
    activity: NotRequired[dict[str, RankActivity]]  # in answers only
    progress: NotRequired[Progress]  # in answers only
    slurm_job: NotRequired[str]  # in answers of a login node only
    queue: NotRequired[Any]  # the same: QueueFacts, of a run that waits
    stop_kind: NotRequired[str]  # the same: of a part that Slurm has ended, see StopOrder


class StopFile(TypedDict):
    """stop.json: what `stop` asks the agent for; `dump`: to keep first where the ranks are."""

    grace: float | None
    reason: str | None
    dump: NotRequired[bool]


class Block(TypedDict):
    """A traceback, shortened, and when it was there."""

    at: float
    lines: list[str]


class FailureRecord(TypedDict, total=False):
    """How a rank ended, or torchrun where `rank` is null; of one that failed, what it wrote last."""

    rank: int | None
    exit: int | None
    signal: int | None
    time: float
    last_at: float
    suspended: bool  # a signal had stopped it
    oom_killed: bool
    tracebacks: list[Block]
    tail: list[str]
    reason: str


class PartDetails(TypedDict, total=False):
    """What only some parts have."""

    last_seen: float | None  # of a node that is lost: its last sign of life
    alone: AloneRecord  # of one that succeeded, and whose ranks certainly ran alone


class PartRecord(PartDetails):
    """One node's account of its end, or what the others write of a node that is lost."""

    node: str
    node_rank: NodeRank | None
    address: str | None
    state: RunState
    reason: str
    time: float
    stopped_at: float | None
    failures: list[FailureRecord]
    stop_kind: NotRequired[
        str
    ]  # of the order that ended it, see StopOrder; empty if none did; older records lack it


class StopRecord(TypedDict):
    """The same; older records lack `kind`, which is as in StopOrder."""

    node: str
    reason: str
    time: float
    kind: NotRequired[str]


EndState = Union[RunState, Literal[""]]


class RunEndSummary(TypedDict):
    """How a run has ended, by its complete record."""

    state: RunState
    attempt: int


class RestartsEnd(TypedDict, total=False):
    """Why a run was not started again; `state` is empty unless it ended between two attempts."""

    gave_up: str | None
    state: EndState
    reason: str


class GangRecord(TypedDict):
    """gang.json; of a whole one `state` is the run's. Older records lack both that and `attempt`.

    The further keys are of a run with `restart`.
    """

    run: str
    hub: str | None
    whole: bool
    stop: StopRecord | None
    parts: list[PartRecord]
    attempt: NotRequired[int]
    state: NotRequired[EndState]
    gave_up: NotRequired[str | None]
    reason: NotRequired[str]
    attempts: NotRequired[list[AttemptEnd]]
    roster: NotRequired[list[RosterEntry]]


JournalEvent = Literal[
    "preparing",
    "busy",
    "locked",
    "setup",
    "setup_done",
    "setup_failed",
    "before",
    "ready",
    "gate_failed",
    "go_received",
    "port_taken",
    "listening",
    "workers",
    "start_method",
    "warm",
    "world_size",
    "rank_exited",
    "rank_stuck",
    "failure_held",
    "stalled",
    "stall_over",
    "halted",
    "continued",
    "torchrun_exited",
    "stopping",
    "after",
    "after_failed",
    "logs_cut",
    "logs_unbounded",
    "gpu_memory",
    "attempt_ended",
    "pausing",
    "attempt",
    "checkpoint",
    "resume",
    "smaller",
    "guardian_lost",
    "agent_failed",
    "agent_lost",
    "ended",
]


class StartFailure(TypedDict, total=False):
    """Why there will be no run; `text` is the end of the output of what failed."""

    text: str
    code: str
    why: str
    log: str
    again: str  # a command that does the failed step once more
    environment: bool  # the job's own environment is in use


class JournalFacts(StartFailure, total=False):
    """What a line holds of its event; which facts there are depends on the event."""

    state: str | None
    reason: str
    holders: list[str]
    torch: str
    method: str
    keep_warm: bool
    master: str
    port: int | None
    ranks: list[Rank]
    rank: int
    process: str  # guardian or torchrun
    program: str  # that starts the ranks
    pid: int
    exit: int | None
    signal: int | None
    seen: int
    planned: int | None
    grace: float
    limit: int
    held: list[HeldMemory]
    seconds: float
    attempt: int
    node_rank: NodeRank | None
    name: str  # of a checkpoint; the following are about it
    nodes: int  # also of an attempt with fewer nodes than the job has
    of: int
    copies: int
    files: int
    bytes: int
    note: str
    ended: list[EndedProcess]
    left: list[LeftProcess]


AnyJournalFacts = Union[JournalFacts, StartFailure]


class JournalEntry(JournalFacts):
    """A line of events.jsonl."""

    time: float
    event: JournalEvent


class EnvironmentMark(TypedDict):
    """The file that marks an environment as complete, and what made it."""

    token: str  # name of its directory
    kind: str | None
    content: str
    run: str
    node: str
    time: float
    steps: list[str]


class EnvironmentLock(ProcessRecord):
    """The file that a run holds while it makes an environment; agents of all versions read it."""

    token: str
    who: str  # run and node
    boot_id: str
    beats: int


class RecorderEntry(TypedDict):
    """A collective, or a send or receive, in torch's flight recorder, as torch writes it."""

    collective_seq_id: int
    p2p_seq_id: int
    is_p2p: bool
    process_group: list[str]  # name and description
    profiling_name: str
    input_sizes: list[list[int]]
    input_dtypes: list[str]
    retired: bool
    state: str
    time_created_ns: int


class RecorderGroup(TypedDict):
    """A process group there: its members as a text."""

    ranks: str


class FlightRecorder(TypedDict):
    """What is read of torch's flight recorder."""

    entries: list[RecorderEntry]
    pg_config: dict[str, RecorderGroup]
