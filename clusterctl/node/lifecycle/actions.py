"""What an agent can do, as values; `executor` performs them."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, List, NamedTuple, Optional

from ...protocol.messages.gang import StopOrder
from ...protocol.ranks import Rank
from ..runtime.processes import Stat

if TYPE_CHECKING:
    from ...protocol.messages.agent import AnyEventFacts, EventName, Stage
    from ...protocol.messages.files import (
        AloneRecord,
        AnyJournalFacts,
        JournalEvent,
        PartRecord,
        Spec,
        StateChange,
    )
    from ...protocol.states import RunState


class Journal(NamedTuple):
    """Append to events.jsonl."""

    event: JournalEvent
    facts: AnyJournalFacts


class SetState(NamedTuple):
    """Write into state.json; with `roster` also what the gang knows of its nodes."""

    values: StateChange
    roster: bool = False


class Report(NamedTuple):
    """Report to who leads the start: of the first attempt the client, then the gang."""

    event: EventName
    facts: AnyEventFacts


class SendClient(NamedTuple):
    """Send an event to the client."""

    event: EventName
    facts: AnyEventFacts


class StartTimer(NamedTuple):
    """Let an event come later; one of the same name is replaced."""

    name: str
    seconds: float
    event: Any


class CancelTimer(NamedTuple):
    """Let it not come."""

    name: str


class OpenPorts(NamedTuple):
    """Hold a master port, and let the gang listen; then PortsOpened, or StepFailed."""

    hold: bool
    gang: bool


class StartGate(NamedTuple):
    """Start the gate, with another master port if the first was taken; then GateStarted, or StepFailed."""

    other_port: bool = False


class SendGo(NamedTuple):
    """Let the gate become torchrun."""

    address: str
    port: int


class AwaitListener(NamedTuple):
    """Wait until torchrun listens; the event Listened follows."""

    port: int


class StartHelper(NamedTuple):
    """Run `setup` or `before`; then SetupMade, BeforeDone, HelperFailed or StepFailed."""

    stage: Stage


class RecordWorkers(NamedTuple):
    """Write ranks, pids and ends down; `ended` is the rank that has just ended."""

    ended: Optional[Rank] = None


class KillBelow(NamedTuple):
    """Kill what runs below the agent, torchrun only if it is not spared."""

    spare_torchrun: bool


class SignalAll(NamedTuple):
    """Send SIGTERM or SIGKILL."""

    processes: List[Stat]
    kill: bool


class CloseAttempt(NamedTuple):
    """Read the GPUs' memory once and let go of ports and pipes; then AllEnded."""

    remaining: List[Stat]


class BuildPart(NamedTuple):
    """Read what the failed ranks wrote; then PartBuilt."""

    state: RunState
    reason: str
    alone: Optional[AloneRecord] = None


class StartAfter(NamedTuple):
    """Run the commands of `after`; then AfterEnded."""

    state: str
    reason: str


class SaveRecord(NamedTuple):
    """Write gang.json for a node that may hear of no other."""

    part: PartRecord


class GangFailure(NamedTuple):
    """Report a failure here to the gang."""

    reason: str


class GangStop(NamedTuple):
    """Pass a stop on to the gang."""

    order: StopOrder


class GangEnd(NamedTuple):
    """Report the end of this node's part to the gang; then GangReported."""

    part: PartRecord


class GangCleared(NamedTuple):
    """Report that nothing is left here of the attempt; `unfit`: why this node can take part in no other."""

    unfit: str
    progress: Optional[bool]


class BeginAttempt(NamedTuple):
    """Drop what belongs to the attempt before."""

    spec: Spec


class Act(Enum):
    """Actions without facts of their own."""

    CLOSE_CLIENT = "close the connection to the client"
    RELEASE_PORT = "let go of the master port"
    START_LOGS = "read from now on how the logs grow"
    CONCLUDE_LOGS = "read them for the last time"
    SCAN_OUTPUT = "read how long each rank's stderr is"
    WATCH_NESTED = "find the ranks that a program has started itself"
    START_PROGRESS = "read which output files are there before the attempt"
    TERMINATE_TORCHRUN = "SIGTERM to torchrun, once"
    FIND_REMAINING = "find what still runs; then Remaining"
    KILL_AFTER_HOOK = "kill what the commands of `after` have left"
    WATCH_RANKS = "look for ranks that have failed and do not exit, and for progress; then RankStuck, Stalled"
    SCAN_OUTSIDE = "read what lies outside the output directory; then OutsideRead"
    AWAIT_CLEARED = "wait for the GPUs' memory and for the answer about progress; then Cleared"
    UNLOCK = "release the locks once the GPUs' memory is free"
    GANG_GO = "report to the gang that GO was given here"
    GANG_LEAVE = "leave the gang"
    LEAVE = "end the agent once everything is written"


Action = Any  # one of the above
