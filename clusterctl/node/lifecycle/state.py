"""The agent's state as one value: how far the run has come on this node, and what was observed of it."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Mapping, NamedTuple, Optional, Tuple

from ...protocol.ranks import Rank

if TYPE_CHECKING:
    from ...protocol.messages.files import EndedProcess, FailureRecord, LeftProcess, PartRecord, Spec

FOREVER = float("inf")


class Phase(Enum):
    """How far an attempt has come on this node."""

    IDLE = "a spare before the client's GO: nothing runs"
    SPARE = "a spare that the gang may call in"
    PREPARING = "environment, gate, `before`"
    READY = "nothing more has to be waited for but GO"
    RUNNING = "GO was given"
    ENDING = "stopped, failed, lost or without a start: its processes are ended"
    AFTER = "no process is left: GPU memory, `after`, files outside"
    ENDED = "its end was handed over; with restarts the gang decides what follows"


class Observed(NamedTuple):
    """What the agent saw until everything had ended."""

    started: bool
    cancelled: Optional[str] = None
    gate_failed: Optional[str] = None
    lost: Optional[str] = None
    first_failure: Optional[str] = None
    exit: Optional[int] = None
    signal: Optional[int] = None
    processes: Optional[int] = 1
    stop_kind: str = ""  # of the order to end that `cancelled` gives the reason of, see StopOrder
    world_size: Optional[int] = 1  # None: what a program's own workers see is its own affair
    worlds: Mapping[Rank, Optional[int]] = {}


class KillTimes(NamedTuple):
    """The moments from which workers and then torchrun are killed; they only ever come closer."""

    workers_at: float = FOREVER
    all_at: float = FOREVER
    outlived: bool = False  # whether processes were found that outlive torchrun

    def shorten(self, workers_at: float, all_at: float) -> KillTimes:
        """Bring both closer, or leave them."""
        return self._replace(workers_at=min(self.workers_at, workers_at), all_at=min(self.all_at, all_at))


class AttemptState(NamedTuple):
    """One attempt on this node, from the gate to the end of the last process."""

    spec: Spec  # the run's, as this attempt has it
    phase: Phase
    is_first: bool
    observed: Observed
    idle: bool = False
    # up to GO
    announced: bool = False  # whether the start was reported
    has_environment: bool = False  # whether nothing has to be made
    helper: str = ""  # `setup` or `before`, while it runs
    before_pending: bool = False
    before_started: bool = False
    gate: Optional[str] = None  # the version of torch that the gate reported when it was ready
    held_port: Optional[int] = None  # the master port that is kept free until torchrun has it
    address: str = ""
    port: Optional[int] = None  # GO's
    awaits_listener: bool = False
    ports_tried: int = 0
    # from GO on
    began: Optional[float] = None
    torchrun_runs: bool = False  # or the gate
    kill: KillTimes = KillTimes()
    stopped_at: Optional[float] = None
    lost_at: float = 0.0  # when its agent or guardian was
    torchrun_killed: Optional[FailureRecord] = None
    held_failure: str = ""  # of a program that serves node 0's, until it is known how that ends
    # the end
    signalled: Tuple[EndedProcess, ...] = ()
    after_runs: bool = False

    @property
    def number(self) -> int:
        """Which attempt of the run it is."""
        return int(self.spec["attempt"])

    @property
    def has_cause(self) -> bool:
        """Whether it is known why the attempt ends."""
        observed = self.observed
        return not (observed.first_failure is None and observed.cancelled is None and observed.lost is None)


class RunState(NamedTuple):
    """One run on this node."""

    attempt: AttemptState
    restartable: bool
    now: float = 0.0  # of the monotonic clock, when the event came
    time: float = 0.0  # the same since 1970
    began: Optional[float] = None  # the job's time limit counts from then
    stops: int = 0  # how often a person asked for the end
    failing: bool = False  # after an error of the agent's own
    agent_lost_reason: str = ""  # why this node can take part in no other attempt
    part: Optional[PartRecord] = None  # this node's part of the last attempt in which it had one
    leftovers: Tuple[LeftProcess, ...] = ()  # processes that could not be ended
    final: bool = False  # whether the run's end is recorded

    @property
    def phase(self) -> Phase:
        """The attempt's."""
        return self.attempt.phase

    def change(self, **values: Any) -> RunState:
        """Replace fields of the attempt."""
        return self._replace(attempt=self.attempt._replace(**values))

    def observe(self, **values: Any) -> RunState:
        """Replace what was observed of the attempt."""
        return self.change(observed=self.attempt.observed._replace(**values))


def new_attempt(spec: Spec, *, idle: bool, is_first: bool = True) -> AttemptState:
    """Begin an attempt; a spare of a later one waits for no client."""
    phase = Phase.PREPARING if not idle else Phase.IDLE if is_first else Phase.SPARE
    world_size = spec["world_size"] if spec["module"] else None
    observed = Observed(phase is Phase.SPARE, processes=spec["processes"], world_size=world_size)
    pending, address = bool(spec.get("before")), str(spec["master_addr"])
    return AttemptState(spec, phase, is_first, observed, idle, before_pending=pending, address=address)
