"""What can happen to a run on this node, as values; `transitions` says what follows."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional

from ...protocol.messages.gang import StopOrder
from ...protocol.ranks import NodeRank, Rank
from ..runtime.processes import Stat

if TYPE_CHECKING:
    from ...protocol.messages.files import (
        AloneRecord,
        AttemptEnd,
        AttemptRecord,
        EndedProcess,
        LeftProcess,
        OutsideSummary,
        PartRecord,
        RankRecord,
        RestartsEnd,
        Spec,
        StartFailure,
        TorchrunRecord,
    )


class Notice(Enum):
    """Events without facts of their own."""

    PREPARED = "the client has sent its secrets"
    SETUP_ORDERED = "what the environment is made of is in the store"
    BEFORE_ORDERED = "the code is there"
    CLIENT_LEFT = "the client closed the connection"
    TIME_IS_UP = "the job's time limit has passed"
    GUARDIAN_LOST = "the guardian was killed"
    GANG_REPORTED = "the gang has taken the end of this node's part"
    GANG_DONE = "nothing of the gang is left to wait for"
    SETUP_MADE = "the environment is there"
    BEFORE_DONE = "the commands of `before` have ended"
    HELD_OVER = "node 0's program goes on, although one that serves it has failed"
    TICK = "a moment of the kill schedule has come"


# Events: what the client, the guardian and the gang order


class ClientGo(NamedTuple):
    """The client gives GO to the first attempt."""

    port: int


class Cancelled(NamedTuple):
    """The client ends everything at once, or no GO arrived."""

    reason: str


class StopRequested(NamedTuple):
    """A person asked for the end of the run."""

    order: StopOrder


class AgentFailed(NamedTuple):
    """An error of the agent's own."""

    reason: str


class StopOrdered(NamedTuple):
    """The gang ends this node's part."""

    order: StopOrder


class GangGo(NamedTuple):
    """The gang gives GO to a later attempt."""

    address: str
    port: int


class Paused(NamedTuple):
    """There will be another attempt, soon."""

    entry: AttemptEnd  # the attempt that ended
    seconds: float
    text: str
    attempts: List[AttemptRecord]  # those on record
    ranks: Dict[str, RankRecord]


class AttemptCalled(NamedTuple):
    """The gang begins another attempt; this node's part of it is in the spec."""

    spec: Spec
    node_rank: Optional[NodeRank]
    time_left: Optional[float]  # of the job's limit, where it has not been counted here


class Concluded(NamedTuple):
    """The gang has decided that no other attempt follows."""

    end: RestartsEnd


# Events: what executors saw


class PortsOpened(NamedTuple):
    """The master port is held, on node 0, and the gang listens."""

    has_environment: bool
    port: Optional[int]
    locked: bool


class GateStarted(NamedTuple):
    """The gate runs; `port` is the new master port after one that was taken.

    `method`: forked from a warm server, or not although there was one, and why; empty where there was none.
    """

    entry: Optional[TorchrunRecord]
    port: Optional[int] = None
    method: str = ""
    text: str = ""


class StepFailed(NamedTuple):
    """A step of the start raised an error."""

    reason: str
    text: str
    code: str
    in_environment: bool


class Doing(NamedTuple):
    """A command of `setup` or `before` has begun."""

    text: str


class HelperFailed(NamedTuple):
    """The environment could not be made, or a command of `before` failed."""

    reason: str
    facts: StartFailure


class GateReady(NamedTuple):
    """The gate has torchrun imported."""

    torch: str


class Listened(NamedTuple):
    """Torchrun listens on the master port, or does not come to it; then `text` is what it printed."""

    listens: bool
    text: str


class StartMethodChosen(NamedTuple):
    """The first worker was forked, or had to be started with a new interpreter; `text` is why."""

    method: str
    text: str


class WorkersStarted(NamedTuple):
    """All workers have a process."""

    ranks: List[Rank]


class WorldSeen(NamedTuple):
    """The program has started workers of this WORLD_SIZE."""

    size: int


class NestedFound(NamedTuple):
    """The program has started ranks, these by now."""

    ranks: List[Rank]


class NestedExited(NamedTuple):
    """A rank has ended that the program has started, which may start it again."""

    rank: Rank


class RankExited(NamedTuple):
    """A worker has ended."""

    rank: Rank
    pid: int
    exit: Optional[int]
    signal: Optional[int]
    failure: str  # how, if badly


class RankStuck(NamedTuple):
    """A worker has written its traceback and does not exit."""

    rank: Rank
    process: Stat
    exception: str
    seconds: float  # without output


class Stalled(NamedTuple):
    """No rank of the whole run has made progress for so many seconds, and the job wants the attempt to end then."""

    seconds: float


class TorchrunExited(NamedTuple):
    """The gate or torchrun has ended."""

    entry: Optional[TorchrunRecord]
    exit: Optional[int]
    signal: Optional[int]
    ending: str  # exit or signal in words
    text: str  # what it printed last, or why the gate failed
    has_workers: bool
    unseen_failure: str  # of a worker whose end only torchrun saw
    in_environment: bool


class Remaining(NamedTuple):
    """What still runs of the attempt once torchrun has ended, or should have."""

    processes: List[Stat]


class AllEnded(NamedTuple):
    """Nothing of the attempt runs any more but what could not be ended."""

    leftovers: List[LeftProcess]
    signalled: List[EndedProcess]
    worlds: Dict[Rank, Optional[int]]
    alone: Optional[AloneRecord] = None


class PartBuilt(NamedTuple):
    """What this node reports of its end; `has_after` if commands follow."""

    part: PartRecord
    has_after: bool


class AfterEnded(NamedTuple):
    """The commands of `after` have ended; `reason` if badly."""

    reason: str = ""
    text: str = ""


class OutsideRead(NamedTuple):
    """What the job has left outside its output directory."""

    summary: Optional[OutsideSummary]


class Cleared(NamedTuple):
    """The GPUs' memory is free, or will not become so, and it is known whether there was progress."""

    memory_held: bool
    progress: Optional[bool]


Event = Any  # one of the above
