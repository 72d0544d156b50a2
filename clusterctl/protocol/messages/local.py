"""What processes on one node send each other.

First the pipes between an agent and its children: GO to the gate, and reports of gate, helpers and forked workers.
Then the local socket of what waits for the node's next run: one request of a verb, one answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict, Union

from ..ranks import NodeRank, Rank
from .files import MpiSpec, RaySpec, StartSpec

if TYPE_CHECKING:
    from typing_extensions import NotRequired


class GateStart(StartSpec):
    """The gate's argument for a job with `start`; `workers`: how many this node has."""

    workers: int
    waits: NotRequired[bool]  # it is started before its attempt, which comes as a line before GO


class RayOrder(RaySpec):
    """How Ray is started on a node: addresses, and what its spec has; the nodes' names are for messages."""

    address: str
    head: str  # address and port of node 0's Ray
    nodes: int
    temp_dir: str
    token: str  # of the run's own Ray


class NodeProgram(TypedDict):
    """What a program of ours around the job's gets: the job's words, and the attempt's directory."""

    argv: list[str]
    attempt: str
    node_rank: NodeRank


class RayNodeOrder(RayOrder, NodeProgram):
    """The same for the process that starts it; `argv` is the job's program."""


class MpiOrder(MpiSpec):
    """How mpirun and its daemons are started."""

    head: str  # address and port of node 0's program
    key: str  # by which the nodes' programs know each other
    node: str
    nic: list[str]
    grace: float  # seconds
    temp_dir: str
    shared_memory: str  # a directory


class MpiNodeOrder(MpiOrder, NodeProgram):
    """The same for the process that starts them; `argv` is what a rank is on this node."""


class OrtedLine(TypedDict):
    """What node 0's program sends to that of another node: the command line of orted there, as mpirun gave it."""

    orted: str


class GateOrder(TypedDict):
    """GO, in one line; `ray` and `mpi` for a program of ours around the job's, which gets them by its stdin."""

    cwd: str
    env: dict[str, str]
    argv: list[str]
    attempt: str
    node_rank: NodeRank
    ray: NotRequired[RayOrder]
    mpi: NotRequired[MpiOrder]


class StartedWorker(TypedDict):
    """A process that torchrun has started: variables of its environment, and its identity."""

    RANK: str
    LOCAL_RANK: str
    WORLD_SIZE: str | None
    TORCHELASTIC_ERROR_FILE: str | None
    pid: int
    starttime: int


class EndedWorker(TypedDict):
    """How a worker ended, as `Popen.returncode`."""

    rank: Rank
    code: int


class GateRun(TypedDict):
    """To a gate that waits: its attempt; `argv` are interpreter and payload, `log` is torchrun's."""

    argv: list[str]
    start: GateStart
    env: dict[str, str]
    cwd: str
    log: str


class GateReport(TypedDict, total=False):
    """A line of the gate: one of these; `text` is the reason why a process was not forked, or a gate not used."""

    failed: str  # the traceback of torch's import
    waits: str  # the same version, before there is an attempt
    warm: str  # fork: it goes on as the attempt's gate; exec: as a new interpreter
    ready: str  # the version of torch
    start: str  # how workers are started
    text: str
    worker: StartedWorker
    ended: EndedWorker


class StepFailure(TypedDict):
    """What failed in `setup`, `before` or `after`; `overdue`: its time was up."""

    reason: str
    text: str
    code: str
    again: str
    overdue: NotRequired[bool]


class HelperReport(TypedDict, total=False):
    """A line of a process that runs `setup`, `before` or `after`; the last is `done` or `failed`."""

    begins: bool  # its time counts from now
    doing: str
    done: bool
    failed: StepFailure


class ForkWorker(TypedDict):
    """To the worker server: fork a worker; with its stdout, its stderr, and a socket for its pid."""

    do: Literal["worker"]
    argv: list[str]  # each byte a character, as in `env` and `cwd`
    env: list[str]
    cwd: str


class RunOrder(TypedDict):
    """The verb `start`: become guardian and agent of a run; with the agent's socket and agent.log.

    `inherited` is what the login has, and is not passed on to the future agent.
    """

    do: Literal["start"]
    argv: list[str]  # of guardian and agent, up to their role
    rundir: str
    env: list[str]  # NAME=value, each byte a character
    cwd: str
    inherited: NotRequired[list[str]]


class Ask(TypedDict):
    """Describe what waits, or end it."""

    do: Literal["describe", "end"]


AnyWarmRequest = Union[RunOrder, Ask, ForkWorker]


class WarmReply(TypedDict, total=False):
    """What a request was answered with: one of these."""

    torch: str  # to the future agent: its gate waits, with this version of torch imported
    pid: int  # it was done; the guardian's, or the worker's
    refused: str  # it was not done, and why


class WarmServerFacts(TypedDict):
    """What waits for the next run; times by the node's clock."""

    pid: int
    starttime: int
    python: str
    torch: str
    preload: list[str]
    since: float
    until: float
    bytes: int  # of memory of all its processes; what they share counts once


AnyWarmAnswer = Union[WarmReply, WarmServerFacts]
