"""What a node says about its part of a run: its state file, read with distrust."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clusterctl.plans.attempts import Attempt, Seat, parse_attempts, parse_roster
from clusterctl.plans.gang import Record, parse_record
from clusterctl.plans.memory import render_memory
from clusterctl.plans.pulse import Pulse, parse_pulses

SUBMITTED = "SUBMITTED"
PREPARING = "PREPARING"
WAITING = "WAITING"
RUNNING = "RUNNING"
SUCCEEDED = "SUCCEEDED"
FAILED = "FAILED"
FAILED_SETUP = "FAILED_SETUP"
CANCELLED = "CANCELLED"
TIMEOUT = "TIMEOUT"
LOST = "LOST"
UNKNOWN = "UNKNOWN"

LIVE = frozenset({SUBMITTED, PREPARING, WAITING, RUNNING})
STATES = LIVE | {SUCCEEDED, FAILED, FAILED_SETUP, CANCELLED, TIMEOUT, LOST, UNKNOWN}

# The worst part decides what a run is called; a live part keeps the whole run live.
_WORST_FIRST = (FAILED, FAILED_SETUP, LOST, UNKNOWN, TIMEOUT, CANCELLED)


@dataclass(frozen=True)
class RankState:
    """One worker: `exit` and `signal` are None while it lives.

    `stopped`: by SIGSTOP or a debugger. `starved`: killed while the kernel killed on that node for want of memory.
    """

    rank: int
    local_rank: int
    pid: int | None
    exit: int | None
    signal: int | None
    stdout: str
    stderr: str
    stopped: bool = False
    starved: bool = False

    @property
    def failed(self) -> bool:
        """Tell whether the worker ended in any way but exit code 0."""
        return bool(self.exit) or self.signal is not None


@dataclass(frozen=True)
class NodeState:
    """One node's part of a run; times are seconds since 1970 by that node's clock.

    `gang` tells whether the nodes end the run together without us, `record` is what they know of its whole end.
    `began` is when its workers were let go; `time_limit` counts from there, in seconds. Of a run that may start again
    `roster` says who takes part now, `attempts` are those that have ended, `gave_up` is why there will be no other.
    """

    run: str
    job: str
    cluster: str
    node: str
    node_rank: int
    nnodes: int
    state: str
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
    torchrun_signal: int | None
    master: str
    reason: str
    left: tuple[str, ...]
    gpu_memory: tuple[str, ...] = ()
    attempt: int = 1
    pulses: tuple[Pulse, ...] = ()
    gang: bool = False
    record: Record | None = None
    seats: int = 0
    spare: bool = False
    roster: tuple[Seat, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    gave_up: str = ""
    launched_from: str = ""  # a directory of the machine that launched it
    after: str = ""  # what went wrong with the commands of `after`

    @property
    def agents(self) -> int:
        """Count the nodes that were given the run, spares among them."""
        return self.seats or self.nnodes

    def ranks_of(self, attempt: int | None) -> tuple[int, ...]:
        """Give the ranks that the node had in an attempt; None is the last one."""
        if attempt in (None, self.attempt):
            return tuple(rank.rank for rank in self.ranks)
        return next((one.ranks for one in self.attempts if one.number == attempt), ())

    @property
    def live(self) -> bool:
        """Tell whether this part has not ended yet."""
        return self.state in LIVE


def parse_state(raw: Mapping[str, Any]) -> NodeState:
    """Read a state record; what is missing or of the wrong type becomes empty, never an error."""
    torchrun = _mapping(raw.get("torchrun"))
    state = _text(raw.get("state"))
    return NodeState(
        run=_text(raw.get("run")),
        job=_text(raw.get("job")),
        cluster=_text(raw.get("cluster")),
        node=_text(raw.get("node")),
        node_rank=_number(raw.get("node_rank")) or 0,
        nnodes=_number(raw.get("nnodes")) or 0,
        state=state if state in STATES else UNKNOWN,
        since=_seconds(raw.get("since")),
        submitted=_seconds(raw.get("submitted")),
        began=_seconds(raw.get("began")) or None,
        time_limit=_seconds(raw.get("time_limit")) or None,
        launched_by=_text(raw.get("launched_by")),
        launched_id=_text(raw.get("launched_id")),
        launched_from=_text(raw.get("launched_from")),
        world_size=_number(raw.get("world_size")),
        world_size_seen=_number(raw.get("world_size_seen")),
        ranks=_parse_ranks(_mapping(raw.get("ranks"))),
        torchrun_exit=_number(torchrun.get("exit")),
        torchrun_signal=_number(torchrun.get("signal")),
        master=_text(raw.get("master")),
        reason=_text(raw.get("reason")),
        after=_text(raw.get("after")),
        gang=bool(raw.get("gang")) and (_number(raw.get("seats")) or _number(raw.get("nnodes")) or 0) > 1,
        record=parse_record(raw.get("gang")),
        left=tuple(_render_left(entry) for entry in raw.get("left") or () if isinstance(entry, Mapping)),
        gpu_memory=render_memory(raw.get("gpu_memory")),
        attempt=_number(raw.get("attempt")) or 1,
        pulses=parse_pulses(raw.get("pulses")),
        seats=_number(raw.get("seats")) or 0,
        spare=raw.get("spare") is True,
        roster=parse_roster(raw.get("roster")),
        attempts=parse_attempts(raw.get("attempts")),
        gave_up=_text(raw.get("gave_up")),
    )


def _parse_ranks(raw: Mapping[str, Any]) -> tuple[RankState, ...]:
    ranks = [
        _parse_rank(int(rank), entry)
        for rank, entry in raw.items()
        if rank.isdecimal() and isinstance(entry, Mapping)
    ]
    return tuple(sorted(ranks, key=lambda state: state.rank))


def _parse_rank(rank: int, raw: Mapping[str, Any]) -> RankState:
    return RankState(
        rank=rank,
        local_rank=_number(raw.get("local_rank")) or 0,
        pid=_number(raw.get("pid")),
        exit=_number(raw.get("exit")),
        signal=_number(raw.get("signal")),
        stdout=_text(raw.get("stdout")),
        stderr=_text(raw.get("stderr")),
        stopped=raw.get("stopped") is True,
        starved=raw.get("starved") is True,
    )


def _render_left(entry: Mapping[str, Any]) -> str:
    return f"pid {entry.get('pid')} {entry.get('name', '')} ({entry.get('state', '?')})"


def whole_state(parts: Mapping[str, NodeState | None]) -> str:
    """Name the state of a whole run from its nodes' parts; None is a node that did not answer."""
    counting = taking_part(parts)
    states = {part.state if part else UNKNOWN for part in counting.values()}
    if len(counting) < max((part.nnodes for part in parts.values() if part), default=0):
        states.add(UNKNOWN)  # a node that belongs to the run says nothing of it
    live = states & LIVE
    if live:
        return next(state for state in (RUNNING, WAITING, PREPARING, SUBMITTED) if state in live)
    return next((state for state in _WORST_FIRST if state in states), SUCCEEDED)


def roster_of(parts: Mapping[str, NodeState | None]) -> tuple[Seat, ...]:
    """Give who has which seat now, as those say who got furthest; empty if the run does not start again."""
    told = [part for part in parts.values() if part and part.roster]
    return max(told, key=lambda part: part.attempt).roster if told else ()


def taking_part(parts: Mapping[str, NodeState | None]) -> dict[str, NodeState | None]:
    """Leave out idle spares, and nodes whose place another has taken."""
    out = {seat.node for seat in roster_of(parts) if seat.node_rank is None}
    return {name: part for name, part in parts.items() if name not in out}


def node_ranks(parts: Mapping[str, NodeState | None]) -> dict[str, int | None]:
    """Give each node's rank, None for who has none; `parts` come in the order of the inventory, as ranks do.

    A silent node has a rank that is missing, which is known if as many are missing as are silent.
    """
    told = {seat.node: seat.node_rank for seat in roster_of(parts)}
    known = {name: part.node_rank for name, part in parts.items() if part}
    if told:
        return {name: told.get(name, known.get(name)) for name in parts}
    nnodes = max((part.nnodes for part in parts.values() if part), default=0)
    missing = sorted(set(range(nnodes)) - set(known.values()))
    silent = [name for name, part in parts.items() if part is None]
    guessed = dict(zip(silent, missing, strict=True)) if len(silent) == len(missing) else {}
    return {name: known.get(name, guessed.get(name)) for name in parts}


def attempts_of(parts: Mapping[str, NodeState | None]) -> tuple[Attempt, ...]:
    """Give the attempts that have ended, as the node tells that knows of most."""
    return max((part.attempts for part in parts.values() if part), key=len, default=())


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: Any) -> str:
    return value[:4096].encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _seconds(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else 0.0
