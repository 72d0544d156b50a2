"""One run on a node: its state, a frozen value; the effects that its rules call; both together.

An event is a rule with its facts: `partial(on_rank_exited, rank=...)`. A rule sets the state, and calls effects in
their order. What an effect finds out comes back as an event, which its docstring names. `Effects` is implemented by
`node/supervise/agent.py`, `Processes` by `node/supervise/attempt.py`; in tests a recording double is both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, Any, List, NamedTuple, Optional, Tuple

from ...protocol.ranks import Rank

if TYPE_CHECKING:
    from functools import partial

    from ...protocol.messages.checkpoints import Restore
    from ...protocol.messages.files import (
        AloneRecord,
        AnyJournalFacts,
        EndedProcess,
        FailureRecord,
        JournalEvent,
        LeftProcess,
        PartRecord,
        Spec,
        StateChange,
    )
    from ...protocol.messages.verbs import AnyEventFacts, EventName, Stage
    from ...protocol.states import RunState as StateName
    from ..gang.membership import Gang
    from ..runtime.processes import Stat

    Event = partial[None]


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


class KillTimes(NamedTuple):
    """The moments from which workers and then torchrun are killed; they only ever come closer."""

    workers_at: float = FOREVER
    all_at: float = FOREVER
    outlived: bool = False  # whether processes were found that outlive torchrun

    def shorten(self, workers_at: float, all_at: float) -> KillTimes:
        """Lower both limits, or leave them."""
        return self._replace(workers_at=min(self.workers_at, workers_at), all_at=min(self.all_at, all_at))


class AttemptState(NamedTuple):
    """One attempt on this node, from the gate to the end of the last process."""

    spec: Spec  # the run's, as this attempt has it
    phase: Phase
    is_first: bool
    idle: bool = False
    # what was seen of it
    started: bool = False
    cancelled: Optional[str] = (
        None  # why it was to end, `stop_kind` of which kind the order was (see StopOrder)
    )
    stop_kind: str = ""
    gate_failed: Optional[str] = None
    lost: Optional[str] = None
    first_failure: Optional[str] = None
    exit: Optional[int] = None  # torchrun's, or the gate's
    signal: Optional[int] = None
    # up to GO
    announced: bool = False  # whether the start was reported
    has_environment: bool = False  # whether nothing has to be made
    helper: str = ""  # `setup` or `before`, while it runs
    before_pending: bool = False
    before_started: bool = False
    restoring: bool = False  # whether the files of the checkpoint are not in their place yet
    unwatched: bool = (
        False  # whether checkpoints of the attempt could still be missed, of a job that keeps them
    )
    finishing: bool = False  # whether the end waits for the last checkpoint
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
        return not (self.first_failure is None and self.cancelled is None and self.lost is None)


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


def new_attempt(spec: Spec, *, idle: bool, is_first: bool = True) -> AttemptState:
    """Begin an attempt; a spare of a later one waits for no client."""
    phase = Phase.PREPARING if not idle else Phase.IDLE if is_first else Phase.SPARE
    pending, address = bool(spec.get("before")), str(spec["master_addr"])
    started = phase is Phase.SPARE
    attempt = AttemptState(spec, phase, is_first, idle, started, before_pending=pending, address=address)
    return attempt._replace(unwatched="checkpoints" in spec)


class Processes(ABC):
    """The processes, ports and files of one attempt on this node."""

    # the start

    @abstractmethod
    def start_gate(self, *, other_port: bool = False) -> None:
        """Start the gate, with another master port if the first was taken: on_gate_started, on_step_failed."""

    @abstractmethod
    def start_spare_gate(self) -> None:
        """Start the gate of the attempt for which this spare may be called in."""

    @abstractmethod
    def start_helper(self, stage: Stage) -> None:
        """Run `setup` or `before`: on_setup_made, on_before_done, on_helper_failed, on_step_failed."""

    @abstractmethod
    def send_go(self, address: str, port: int) -> None:
        """Make the gate become torchrun."""

    @abstractmethod
    def await_listener(self, port: int) -> None:
        """Wait until torchrun listens on the port: on_listened."""

    @abstractmethod
    def release_port(self) -> None:
        """Close the master port that is held."""

    # the job

    @abstractmethod
    def record_workers(self, ended: Optional[Rank] = None) -> None:
        """Write ranks, pids and ends into the record; `ended` is the rank that has just ended."""

    @abstractmethod
    def watch_ranks(self, began: Optional[float]) -> None:
        """Watch for ranks that have failed and do not exit, and for progress: on_rank_stuck, on_stalled."""

    @abstractmethod
    def watch_nested(self) -> None:
        """Watch for ranks that a program starts itself: on_world_seen, on_nested_found, on_nested_exited."""

    @property
    @abstractmethod
    def quiet(self) -> float:
        """Return for how many seconds no rank here has made progress; 0 if that is not known."""

    @abstractmethod
    def on_quiet(self, seconds: float) -> None:
        """Take for how many seconds no rank of the whole run has made progress."""

    @abstractmethod
    def scan_output(self) -> None:
        """Record the current length of the ranks' stderr."""

    # the end

    @abstractmethod
    def terminate_torchrun(self) -> None:
        """Send SIGTERM to torchrun, once."""

    @abstractmethod
    def kill_below(self, *, spare_torchrun: bool) -> None:
        """Kill what runs below the agent."""

    @abstractmethod
    def signal_all(self, processes: List[Stat], *, kill: bool) -> None:
        """Send SIGKILL, or SIGTERM once to each."""

    @abstractmethod
    def find_remaining(self) -> None:
        """Find what still runs: on_remaining."""

    @abstractmethod
    def close(self, remaining: List[Stat], *, started: bool) -> None:
        """Read the GPUs' memory once, close ports and pipes: on_all_ended."""

    @abstractmethod
    def build_part(
        self, state: StateName, reason: str, attempt: AttemptState, alone: Optional[AloneRecord] = None
    ) -> None:
        """Read what the failed ranks wrote, and put this node's part of the record together: on_part_built."""

    @abstractmethod
    def start_after(self, state: StateName, reason: str) -> None:
        """Run the commands of `after`: on_after_ended."""

    @abstractmethod
    def kill_after_hook(self) -> None:
        """Kill what the commands of `after` have left running."""

    @abstractmethod
    def scan_outside(self) -> None:
        """Read what the job has left outside its output directory: on_outside_read."""


class Effects(ABC):
    """What a run on this node has beside the processes of its attempt: record, client, timers, logs, locks, gang."""

    processes: Processes  # of the current attempt

    @property
    @abstractmethod
    def gang(self) -> Gang:
        """Return this node's place among the others."""

    @abstractmethod
    def journal(self, event: JournalEvent, facts: AnyJournalFacts) -> None:
        """Append to events.jsonl."""

    @abstractmethod
    def set_state(self, values: StateChange, *, roster: bool = False) -> None:
        """Write into state.json; with `roster` also what the gang knows of its nodes."""

    @abstractmethod
    def send_client(self, event: EventName, facts: AnyEventFacts) -> None:
        """Send an event to the client, while it is connected."""

    @abstractmethod
    def close_client(self) -> None:
        """Close the connection to the client."""

    @abstractmethod
    def start_timer(self, name: str, seconds: float, event: Event) -> None:
        """Post an event later; a timer of the same name is replaced."""

    @abstractmethod
    def cancel_timer(self, name: str) -> None:
        """Cancel a timer."""

    @abstractmethod
    def open_ports(self, *, hold: bool, gang: bool) -> None:
        """Hold a master port, and open the gang's listener: on_ports_opened, on_step_failed."""

    @abstractmethod
    def start_progress(self) -> None:
        """Record which output files are there before the attempt."""

    @abstractmethod
    def restore(self, resume: Restore) -> None:
        """Put the files of a checkpoint in their place: on_restored."""

    @abstractmethod
    def watch_checkpoints(self) -> None:
        """Watch for checkpoints of the attempt, of which what is there now is none: on_watched."""

    @abstractmethod
    def pause_checkpoints(self) -> None:
        """Take no file as complete any more: ranks may end while they write; give a restore up."""

    @abstractmethod
    def finish_checkpoints(self) -> None:
        """Have what the ranks wrote last found and sealed: on_checkpoints_finished."""

    @abstractmethod
    def start_logs(self) -> None:
        """Read from now on how the logs grow."""

    @abstractmethod
    def conclude_logs(self) -> None:
        """Read the logs for the last time."""

    @abstractmethod
    def save_record(self, part: PartRecord) -> None:
        """Write gang.json with this node's part, for a node that no other may send a record."""

    @abstractmethod
    def report_end(self, part: PartRecord) -> None:
        """Report the end of this node's part to the gang: on_gang_reported."""

    @abstractmethod
    def await_cleared(self) -> None:
        """Wait for the GPUs' memory and for the answer about progress: on_cleared."""

    @abstractmethod
    def begin_attempt(self, spec: Spec) -> None:
        """Replace `processes` by those of another attempt; nothing of the earlier ones becomes an event any more."""

    @abstractmethod
    def unlock(self) -> None:
        """Release the locks once the GPUs' memory is free."""

    @abstractmethod
    def leave(self) -> None:
        """End the agent once everything is written."""


class Run:
    """One run on this node: its state, a frozen value, and its effects."""

    def __init__(self, state: RunState, effects: Effects) -> None:
        self.state = state
        self.effects = effects

    @property
    def attempt(self) -> AttemptState:
        """The state of the current attempt."""
        return self.state.attempt

    @property
    def phase(self) -> Phase:
        """How far the current attempt has come."""
        return self.state.attempt.phase

    @property
    def processes(self) -> Processes:
        """The processes of the current attempt."""
        return self.effects.processes

    def replace(self, **values: Any) -> None:
        """Replace fields of the run's state."""
        self.state = self.state._replace(**values)

    def change(self, **values: Any) -> None:
        """Replace fields of the attempt's state."""
        self.state = self.state.change(**values)
