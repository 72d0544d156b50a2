"""What each node has of a run in its state.json: state, ranks, attempts, roster and activity; what may hang."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from clusterctl.plans.diagnose.evidence import WATCHERS
from clusterctl.plans.facts.facts import render_gpu_memory
from clusterctl.plans.facts.untrusted import MAX_PROCESS_NAME
from clusterctl.plans.runs.checkpoints import Checkpoint, choose_checkpoints, parse_checkpoints
from clusterctl.plans.runs.documents import SmallerEntry
from clusterctl.plans.runs.progress import Progress, choose_progress, parse_progress
from clusterctl.plans.sync.listed_files import OutsideFiles, parse_outside
from clusterctl.protocol.end_record import (
    MAX_ATTEMPTS,
    MAX_EXIT,
    MAX_RANK,
    MAX_SIGNAL,
    MAX_SLOTS,
    EndRecord,
    parse_record,
)
from clusterctl.protocol.messages.facts import MAX_PID
from clusterctl.protocol.messages.files import AloneRecord, RunEndSummary
from clusterctl.protocol.messages.gang import NO_PROGRESS, read_alone
from clusterctl.protocol.ranks import NodeRank, Rank, Slot
from clusterctl.protocol.run_id import RunId, parse_job_name, parse_run_id
from clusterctl.protocol.run_paths import ATTEMPT
from clusterctl.protocol.states import (
    FINAL,
    LIVE,
    LOST,
    PREPARING,
    RUNNING,
    STALLED,
    STATES,
    SUBMITTED,
    SUCCEEDED,
    UNKNOWN,
    WAITING,
    RunState,
)
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.text import render_duration
from clusterctl.specs.values import is_node_name
from clusterctl.translation import to_translate, tr

_FOLDER = re.compile(rf"{ATTEMPT}(\d{{1,9}})/")
MAX_TEXT = 1000  # characters of a text
MAX_STAGED = 5000  # characters about what was staged
MAX_RANKS = 1000  # of a node
NO_RUN_ID = RunId("")  # what stands in a state that names no run
MAX_LIMIT = 1e9  # seconds
MAX_LEFT = 1000  # processes that could not be ended
MAX_GPUS = 64
MAX_JOB_NUMBER = 20  # characters
MAX_LINE = 300  # characters
KEPT_REASONS = ("stall", "time_limit", "stop")
QUIET_LIMIT = 600.0  # seconds without a line after which a rank may hang
BLOCKED_LIMIT = 30.0  # the same for one whose process waits in the kernel, as for a file server that is gone
NO_OFFSETS: Mapping[str, float] = MappingProxyType({})
GIVEN_UP: Mapping[str, str] = {
    NO_PROGRESS: to_translate("given up: three attempts in a row made no progress"),
    "max": to_translate("given up: it was started again as often as `restart.max` allows"),
    "code": to_translate("not started again: that is an error of the script"),
    "reason": to_translate("not started again: the job's `restart.on` does not name this reason"),
    "nodes": to_translate("given up: fewer nodes are left than the job needs"),
    "majority": to_translate(
        "given up: half or more of all nodes and spares are lost; only a majority may continue a run, "
        "or it could run twice"
    ),
}


@dataclass(frozen=True)
class SlotState:
    """One agent of a run: a node of the inventory, and its rank now; None for an idle spare, and for who is gone.

    `reason` is why it is gone, or why it can take part no more.
    """

    number: Slot
    node: str
    node_rank: NodeRank | None
    lost: bool = False
    reason: str = ""

    @property
    def is_idle(self) -> bool:
        """Return whether it is a spare that was not needed so far."""
        return self.node_rank is None and not self.lost and not self.reason


@dataclass(frozen=True)
class Attempt:
    """One that has ended: `reason` is a word of `restart.on` or `code`, `text` is what happened.

    `node_rank` and `ranks` are those of the node that reports it; times are seconds by its clock.
    """

    number: int
    reason: str
    text: str
    node: str
    began: float | None
    ended: float | None
    progress: bool | None
    node_rank: NodeRank | None = None
    ranks: tuple[Rank, ...] = ()


def parse_roster(raw: Untrusted) -> tuple[SlotState, ...]:
    """Read the slots of a run, in their order."""
    return tuple(
        SlotState(
            Slot(entry.count("slot", MAX_SLOTS)),
            entry.text("node", MAX_TEXT),
            parse_node_rank(entry),
            entry.flag("lost"),
            entry.text("reason", MAX_TEXT) or entry.text("unfit", MAX_TEXT),
        )
        for entry in raw.records("roster", MAX_SLOTS)
    )


def parse_node_rank(raw: Untrusted) -> NodeRank | None:
    """Read the rank of a node; None if it has none."""
    number = raw.integer("node_rank", 0, MAX_SLOTS)
    return None if number is None else NodeRank(number)


def parse_attempts(raw: Untrusted) -> tuple[Attempt, ...]:
    """Read the attempts that have ended, the first one first."""
    attempts = map(_parse_attempt, raw.records("attempts", MAX_ATTEMPTS))
    return tuple(sorted(attempts, key=lambda attempt: attempt.number))


def _parse_attempt(raw: Untrusted) -> Attempt:
    return Attempt(
        number=raw.count("attempt", MAX_ATTEMPTS),
        reason=raw.text("cause_reason", MAX_TEXT) or raw.text("reason", MAX_TEXT),
        text=raw.text("text", MAX_TEXT),
        node=raw.text("node", MAX_TEXT),
        began=raw.moment("began"),
        ended=raw.moment("ended"),
        progress=raw.choice("progress"),
        node_rank=parse_node_rank(raw),
        ranks=tuple(map(Rank, raw.indices("ranks", MAX_RANKS))),
    )


def attempt_of(file: str) -> int:
    """Return to which attempt a log file belongs, by its path below the run's directory."""
    match = _FOLDER.match(file)
    return int(match[1]) if match else 1


@dataclass(frozen=True)
class RankActivity:
    """A living rank: its last line and when its logs were last written to, by that node's clock.

    `process_state` is the kernel's letter for its process: R, S, D, T. `started_at` is when the process began.
    """

    rank: Rank
    last_line: str = ""
    written_at: float | None = None
    process_state: str = ""
    started_at: float | None = None


def parse_activity(raw: Untrusted, max_ranks: int) -> tuple[RankActivity, ...]:
    """Read what a node reports of at most so many ranks."""
    activities = [
        RankActivity(
            Rank(rank),
            entry.text("line", MAX_LINE),
            entry.moment("written"),
            entry.text("process", 1),
            entry.moment("started"),
        )
        for rank, entry in raw.numbered_records("activity", max_ranks)
    ]
    return tuple(sorted(activities, key=lambda activity: activity.rank))


@dataclass(frozen=True)
class RankState:
    """One worker: `exit` and `signal` are None while it lives.

    `stopped`: by SIGSTOP or a debugger. `oom_killed`: killed while the kernel killed on that node for want of memory.
    """

    rank: Rank
    local_rank: int
    pid: int | None
    exit: int | None
    signal: int | None
    stdout: str
    stderr: str
    stopped: bool = False
    oom_killed: bool = False

    @property
    def failed(self) -> bool:
        """Return whether the worker ended in any way but exit code 0."""
        return bool(self.exit) or self.signal is not None


@dataclass(frozen=True)
class HaltedProcess:
    """The guardian, the agent or torchrun of a node, halted by a signal or a debugger."""

    process: str
    pid: int

    @property
    def name(self) -> str:
        """Return the name of the process as texts have it."""
        names = {"guardian": tr("the guardian"), "agent": tr("the agent")}
        return names.get(self.process, self.process)


@dataclass(frozen=True)
class NodeState:
    """One node's part of a run; times are seconds since 1970 by that node's clock.

    `gang` is whether the nodes end the run together without us, `record` is what they know of its whole end.
    `began` is when its workers were let go; `time_limit` counts from there, in seconds. Of a run that may start again
    `roster` has the nodes that take part now, `attempts` are those that have ended, `gave_up_reason` is why
    there will be no other.
    """

    run_id: RunId
    job: str
    cluster: str
    node: str
    node_rank: NodeRank
    nnodes: int
    state: RunState
    since: float
    submitted: float
    began: float | None
    time_limit: float | None
    launched_by: str
    launched_id: str
    world_size: int | None
    world_size_seen: int | None
    ranks: tuple[RankState, ...]
    torchrun_exit: int | None
    master: str
    reason: str
    left_processes: tuple[str, ...]
    gpu_memory: tuple[str, ...] = ()
    attempt: int = 1
    rank_activity: tuple[RankActivity, ...] = ()
    record: EndRecord | None = None
    slots: int = 0
    spare: bool = False
    roster: tuple[SlotState, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    gave_up_reason: str = ""
    launched_from: str = ""  # a directory of the machine that launched it
    staged: str = ""  # what the launch staged: each source with its revision and hash
    after_error: str = ""  # what went wrong with the commands of `after`
    outside_files: OutsideFiles | None = None
    stopping: str = ""  # why it is being stopped, while it lives
    slurm_job: str = ""  # the number of its Slurm job
    is_queued: bool = False  # no node has begun: it waits in Slurm's queue
    sampled: bool = False  # whether it was kept when its ranks entered their collectives
    diagnosed: str = ""  # why it was kept where the ranks were: stall, time_limit, stop
    quiet_since: float | None = None  # of a stall that is not over: when a rank of the run made progress last
    stop_kind: str = ""  # of the order that ended it, where there is no record of that
    end: RunEndSummary | None = None  # of the whole run, by its complete record
    warm_until: float | None = None  # how long a process of its node waits for the next launch at most
    halted: tuple[HaltedProcess, ...] = ()  # while it lives
    alone: AloneRecord | None = None  # of one that succeeded
    progress: Progress | None = None  # by its logs, where that was asked for
    checkpoints: tuple[Checkpoint, ...] = ()  # that the nodes keep for each other, the newest last
    resumed: str = ""  # the checkpoint that its attempt goes on from
    planned_nodes: int = 0  # of a run that may go on with fewer, from its second attempt on

    @property
    def agent_count(self) -> int:
        """Count the nodes that were given the run, spares among them."""
        return self.slots or self.nnodes

    @property
    def unplanned_world_size(self) -> tuple[int, int] | None:
        """Return the WORLD_SIZE that workers saw and the planned one, if they are known and differ."""
        observed, planned = self.world_size_seen, self.world_size
        return None if observed is None or planned is None or observed == planned else (observed, planned)

    def ranks_of(self, attempt: int | None) -> tuple[Rank, ...]:
        """Return the ranks that the node had in an attempt; None is the last one."""
        if attempt in (None, self.attempt):
            return tuple(rank.rank for rank in self.ranks)
        return next((ended.ranks for ended in self.attempts if ended.number == attempt), ())

    @property
    def live(self) -> bool:
        """Return whether this part has not ended yet."""
        return self.state in LIVE

    @property
    def is_stalled(self) -> bool:
        """Whether it lives, and has found that no rank of the run makes progress."""
        return self.live and self.quiet_since is not None


def parse_state(raw: Untrusted) -> NodeState:
    """Read a state record; what is missing or of the wrong type becomes empty, never an error."""
    torchrun = raw.record("torchrun")
    state: RunState = raw.one_of("state", STATES) or UNKNOWN
    return NodeState(
        run_id=parse_run_id(raw.text("run")) or NO_RUN_ID,
        job=parse_job_name(raw.text("job")),
        cluster=raw.text("cluster"),
        node=raw.text("node"),
        node_rank=NodeRank(raw.count("node_rank", MAX_SLOTS)),
        nnodes=raw.count("nnodes", MAX_SLOTS),
        state=state,
        since=raw.moment("since") or 0.0,
        submitted=raw.moment("submitted") or 0.0,
        began=raw.moment("began") or None,
        time_limit=raw.number("time_limit", 0.0, MAX_LIMIT) or None,
        launched_by=raw.text("launched_by"),
        launched_id=raw.text("launched_id"),
        launched_from=raw.text("launched_from"),
        staged=raw.text("staged", MAX_STAGED),
        world_size=raw.integer("world_size", 0, MAX_RANK),
        world_size_seen=raw.integer("world_size_seen", 0, MAX_RANK),
        ranks=_parse_ranks(raw),
        torchrun_exit=torchrun.integer("exit", -MAX_EXIT, MAX_EXIT),
        master=raw.text("master"),
        reason=raw.text("reason"),
        after_error=raw.text("after"),
        record=parse_record(raw.record("gang")),
        left_processes=tuple(map(_render_left_process, raw.records("left", MAX_LEFT))),
        gpu_memory=render_gpu_memory(raw.records("gpu_memory", MAX_GPUS)),
        attempt=raw.count("attempt", MAX_ATTEMPTS) or 1,
        rank_activity=parse_activity(raw, MAX_RANKS),
        slots=raw.count("slots", MAX_SLOTS),
        spare=raw.flag("spare"),
        roster=parse_roster(raw),
        attempts=parse_attempts(raw),
        gave_up_reason=raw.text("gave_up"),
        outside_files=parse_outside(raw.record("outside")),
        stopping=raw.text("stopping"),
        slurm_job=raw.text("slurm_job", MAX_JOB_NUMBER),
        is_queued=raw.has_record("queue"),
        sampled=raw.moment("sampled") is not None,
        diagnosed=raw.record("diagnosed").one_of("why", KEPT_REASONS),
        quiet_since=raw.record("diagnosed").moment("since"),
        stop_kind=raw.text("stop_kind", 10),
        end=_parse_end(raw.record("end")),
        warm_until=raw.record("warm").moment("until"),
        halted=tuple(_parse_halted(raw)),
        alone=read_alone(raw.record("alone")) if state == SUCCEEDED else None,
        progress=parse_progress(raw.record("progress")),
        checkpoints=parse_checkpoints(raw),
        resumed=raw.text("resumed", MAX_TEXT),
        planned_nodes=raw.count("planned_nodes", MAX_SLOTS),
    )


def _parse_end(raw: Untrusted) -> RunEndSummary | None:
    state: RunState | None = next((each for each in FINAL if each == raw.text("state")), None)
    return {"state": state, "attempt": raw.count("attempt", MAX_ATTEMPTS) or 1} if state else None


def can_be_on_slurm(state: NodeState) -> bool:
    """Return whether a part's node and job can be Slurm's; a login node's list must not put text into commands."""
    return is_node_name(state.node) and re.fullmatch("[0-9]+", state.slurm_job) is not None


def _parse_halted(raw: Untrusted) -> Iterator[HaltedProcess]:
    for entry in raw.records("halted", len(WATCHERS)):
        process, pid = entry.one_of("process", WATCHERS), entry.integer("pid", 1, MAX_PID)
        if process and pid is not None:
            yield HaltedProcess(process, pid)


def _parse_ranks(raw: Untrusted) -> tuple[RankState, ...]:
    ranks = [_parse_rank(Rank(rank), entry) for rank, entry in raw.numbered_records("ranks", MAX_RANKS)]
    return tuple(sorted(ranks, key=lambda state: state.rank))


def _parse_rank(rank: Rank, raw: Untrusted) -> RankState:
    return RankState(
        rank=rank,
        local_rank=raw.count("local_rank", MAX_RANK),
        pid=raw.integer("pid", 1, MAX_PID),
        exit=raw.integer("exit", -MAX_EXIT, MAX_EXIT),
        signal=raw.integer("signal", 1, MAX_SIGNAL),
        stdout=raw.text("stdout"),
        stderr=raw.text("stderr"),
        stopped=raw.flag("stopped"),
        oom_killed=raw.flag("oom_killed"),
    )


def _render_left_process(entry: Untrusted) -> str:
    pid = entry.integer("pid", 1, MAX_PID)
    shown = "?" if pid is None else pid
    return f"pid {shown} {entry.text('name', MAX_PROCESS_NAME)} ({entry.text('state', 20) or '?'})"


Parts = Mapping[str, NodeState | None]


def latest_part(parts: Parts) -> NodeState:
    """Return the state of a node that is at the latest attempt: of that, what all have in common is used."""
    return max((part for part in parts.values() if part is not None), key=lambda part: part.attempt)


def find_smaller(parts: Parts) -> SmallerEntry | None:
    """Return with how many nodes of how many a run goes on; None if it has its full size."""
    part = latest_part(parts) if any(parts.values()) else None
    if part is None or part.nnodes >= part.planned_nodes:
        return None
    return {"nodes": part.nnodes, "of": part.planned_nodes}


def live_state(parts: Parts) -> RunState:
    """Name the state of a run of which a part lives: that which got furthest; STALLED if it makes no progress there."""
    known = [part for part in taking_part(parts).values() if part]
    states = {part.state for part in known}
    furthest = next((state for state in (RUNNING, WAITING, PREPARING, SUBMITTED) if state in states), UNKNOWN)
    return STALLED if furthest == RUNNING and any(part.is_stalled for part in known) else furthest


def stalled_since(parts: Parts) -> float | None:
    """Return when a rank made progress last (Unix s), if that is too long ago or was when the run ended."""
    quiet = [part.quiet_since for part in parts.values() if part]
    return min((since for since in quiet if since is not None), default=None)


def find_progress(parts: Parts) -> Progress | None:
    """Return how far a run is by the logs of its lowest rank that has printed something, of the latest attempt."""
    known = [part for part in parts.values() if part and part.progress]
    latest = max((part.attempt for part in known), default=1)
    return choose_progress(
        (min((rank.rank for rank in part.ranks), default=MAX_RANK), part.progress)
        for part in known
        if part.progress and part.attempt == latest
    )


def find_checkpoints(parts: Parts, offsets: Mapping[str, float] = NO_OFFSETS) -> tuple[Checkpoint, ...]:
    """Return the checkpoints of a run, the newest last; times by our clock."""
    return choose_checkpoints(
        (part.checkpoints, offsets.get(name, 0.0)) for name, part in parts.items() if part
    )


def find_resumed(parts: Parts) -> str:
    """Return the checkpoint that the latest attempt goes on from; empty if it began from scratch."""
    latest = max((part.attempt for part in parts.values() if part), default=1)
    named = (part.resumed for part in parts.values() if part and part.attempt == latest)
    return next(filter(None, named), "")


def roster_of(parts: Parts) -> tuple[SlotState, ...]:
    """Return which slot has which rank now; empty if the run does not start again.

    It is that of the latest attempt. Of the nodes in the same attempt, one that has lost half of the others is cut off
    itself; of the rest the one that has lost most has the newest.
    """
    known = [part for part in parts.values() if part]
    return max(known, key=_freshness).roster if known else ()


def _freshness(part: NodeState) -> tuple[int, bool, int]:
    lost = sum(slot.lost for slot in part.roster)
    is_cut_off = bool(lost) and 2 * lost >= len(part.roster)
    return part.attempt, not is_cut_off and bool(part.roster), -lost if is_cut_off else lost


def taking_part(parts: Parts) -> dict[str, NodeState | None]:
    """Leave out idle spares, and nodes whose place another has taken."""
    absent = {slot.node for slot in roster_of(parts) if slot.node_rank is None}
    return {name: part for name, part in parts.items() if name not in absent}


def node_ranks(parts: Parts) -> dict[str, NodeRank | None]:
    """Return each node's rank, None for who has none; `parts` come in the order of the inventory, as ranks do.

    A silent node has a rank that is missing, which is known if as many are missing as are silent.
    """
    by_roster = {slot.node: slot.node_rank for slot in roster_of(parts)}
    known = {name: part.node_rank for name, part in parts.items() if part}
    if by_roster:
        return {name: by_roster.get(name, known.get(name)) for name in parts}
    nnodes = max((part.nnodes for part in parts.values() if part), default=0)
    missing = sorted(set(map(NodeRank, range(nnodes))) - set(known.values()))
    silent = [name for name, part in parts.items() if part is None]
    guessed = dict(zip(silent, missing, strict=True)) if len(silent) == len(missing) else {}
    return {name: known.get(name, guessed.get(name)) for name in parts}


def attempts_of(parts: Parts) -> tuple[Attempt, ...]:
    """Return the attempts that have ended, as the node reports that has most."""
    return max((part.attempts for part in parts.values() if part), key=len, default=())


def find_stall(activity: RankActivity, now: float) -> str:
    """Return why a rank may hang, or nothing; `now` is by the node's clock."""
    quiet = 0.0 if activity.written_at is None else now - activity.written_at
    if activity.process_state == "D" and quiet >= BLOCKED_LIMIT:
        return tr("waits in the kernel (state D), no output for {span}", span=render_duration(quiet))
    return tr("no output for {span}", span=render_duration(quiet)) if quiet >= QUIET_LIMIT else ""


def find_stalls(parts: Parts, offsets: Mapping[str, float], now: float) -> dict[str, dict[Rank, str]]:
    """Return the ranks that may hang, by node; `offsets` are the nodes' clocks minus ours."""
    stalls_by_node = {
        name: {
            activity.rank: why
            for activity in part.rank_activity
            if (why := find_stall(activity, now + offsets.get(name, 0.0)))
        }
        for name, part in parts.items()
        if part
    }
    return {name: stalls for name, stalls in stalls_by_node.items() if stalls}


def measure_start_skew(parts: Parts, offsets: Mapping[str, float]) -> float | None:
    """Return the seconds between the first and the last living rank's start; None where that is not known of two."""
    start_times = [
        activity.started_at - offsets.get(name, 0.0)
        for name, part in parts.items()
        for activity in (part.rank_activity if part else ())
        if activity.started_at is not None
    ]
    return max(start_times) - min(start_times) if len(start_times) > 1 else None


def measure_remaining(parts: Parts, offsets: Mapping[str, float], now: float) -> float | None:
    """Return the seconds that the time limit leaves a living run; None without a limit."""
    remaining = [
        part.began - offsets.get(name, 0.0) + part.time_limit - now
        for name, part in parts.items()
        if part and part.live and part.began is not None and part.time_limit is not None
    ]
    return max(0.0, min(remaining)) if remaining else None


def run_ended(parts: Parts, offsets: Mapping[str, float] = NO_OFFSETS) -> float | None:
    """Return when the last part of a run ended (Unix s, by our clock); None while one lives, or where none recorded it.

    A part that is LOST or UNKNOWN has not recorded its end: its `since` is when it began to run.
    """
    known = {name: part for name, part in parts.items() if part}
    if any(part.live for part in known.values()):
        return None
    ended = {name: part for name, part in known.items() if part.state not in (LOST, UNKNOWN)}
    return max((part.since - offsets.get(name, 0.0) for name, part in ended.items()), default=None)


def run_seconds(parts: Parts, now: float, offsets: Mapping[str, float] = NO_OFFSETS) -> float | None:
    """Return how long the workers of a run have run, or ran; None if they never started, or no end is recorded.

    The one duration of a run, for every verb. Of a run that is over it is that of its longest node, by its own clock:
    `offsets` (the clocks of the nodes minus ours) are measured again by each verb, and differ by milliseconds.
    """
    began = [
        (part, part.began, offsets.get(name, 0.0))
        for name, part in parts.items()
        if part and part.began is not None
    ]
    if any(part.live for part in parts.values() if part):
        return max(0.0, now - min(start - offset for _, start, offset in began)) if began else None
    spans = (max(0.0, part.since - start) for part, start, _ in began if part.state not in (LOST, UNKNOWN))
    return max(spans, default=None)
