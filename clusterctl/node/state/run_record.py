"""The state of a run on a node, and what it means when the agent is gone."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Union, cast

from ...protocol.run_paths import RunPaths
from ...protocol.states import FINAL, LOST, PROTOCOL, STATES, SUBMITTED, UNKNOWN
from ...protocol.untrusted import Untrusted
from ..runtime.processes import (
    Identity,
    boot_id,
    describe_leftovers,
    find_process,
    find_tagged_below,
    is_alive,
)
from .run_files import read_run_file, read_spec
from .workdir import read_json, write_atomically

if TYPE_CHECKING:
    from ...protocol.messages.files import (
        AnyJournalFacts,
        AttemptRecord,
        CopiedFromSpec,
        GangRecord,
        JournalEvent,
        Membership,
        Spec,
        State,
        StateChange,
        StopFile,
    )

MAX_ATTEMPTS = 100_000
MAX_PID = 1 << 22
MAX_LISTED = 100_000  # ranks, attempts and processes in one record
SUBMISSION_LIMIT = 60.0  # seconds in which an agent must have taken over
COPIED_KEYS = (
    "run",
    "job",
    "cluster",
    "node",
    "node_rank",
    "nnodes",
    "attempt",
    "launched_by",
    "launched_id",
    "launched_from",
    "staged",
    "submitted",
    "time_limit",
)


def run_tag(spec: Spec) -> str:
    """Render the value of CLUSTERCTL_RUN that marks every process of an attempt."""
    return f"{run_tag_prefix(spec)}{spec['attempt']}"


def run_tag_prefix(spec: Union[Spec, State]) -> str:
    """Render what the tags of all attempts of a run on this node begin with."""
    return f"{spec['run']}/{spec['node']}/"


def time_to_prepare(spec: Spec) -> float:
    """Return the seconds that `setup` and `before` may take."""
    stages = (spec.get("setup"), spec.get("before"))
    return sum(stage["time_limit"] for stage in stages if stage)


def new_state(spec: Spec) -> State:
    """Begin the record of a run on this node."""
    values: Any = {key: spec.get(key) for key in COPIED_KEYS}
    copied: CopiedFromSpec = values
    membership: Membership = {}
    changes: StateChange = {}
    if spec.get("restart"):
        membership = {"slot": spec.get("slot"), "slots": spec.get("slots"), "spare": spec.get("spare")}
        changes = {"roster": spec.get("roster"), "attempts": [], "gave_up": None}
    if spec.get("earlier"):
        changes["attempts"] = list(spec["earlier"])
    return {
        "protocol": PROTOCOL,
        **copied,
        "state": SUBMITTED,
        "since": time.time(),
        "boot_id": boot_id(),
        "machine": os.uname().nodename,
        "world_size": spec.get("world_size"),
        "world_size_seen": None,
        "nproc": spec.get("nproc"),
        "gang": bool(spec.get("gang")),
        "gang_done": False,
        **membership,
        **changes,  # type: ignore[typeddict-item]  # mypy misses the keys that are set later
        "guardian": None,
        "agent": None,
        "torchrun": None,
        "ranks": {},
        "master": None,
        "began": None,
        "reason": "",
        "left": [],
    }


class Record:
    """state.json and events.jsonl of one run; a full disk delays writing and loses nothing."""

    def __init__(self, rundir: str, state: State) -> None:
        self.rundir = rundir
        self.paths = RunPaths(rundir)
        self.state = state
        self._lines: List[bytes] = []
        self._torn = False
        self._changed = False
        self._gang_record: Optional[GangRecord] = None

    def set(self, values: StateChange) -> None:
        """Change the state; `since` follows the value of `state`."""
        has_changed = values.get("state", self.state["state"]) != self.state["state"]
        state: Any = self.state  # of which a StateChange is a part
        state.update(values, **({"since": time.time()} if has_changed else {}))
        self._changed = True
        self.flush()

    def add_event(self, event: JournalEvent, facts: Optional[AnyJournalFacts] = None) -> None:
        """Append an event."""
        entry = {"time": time.time(), "event": event, **(facts or {})}
        self._lines.append(json.dumps(entry).encode("utf-8") + b"\n")
        self.flush()

    def save_gang_record(self, record: GangRecord) -> None:
        """Write the record of the whole run's end in place of an older one."""
        self._gang_record = record
        state = record.get("state")
        if record["whole"] and state:  # lists of runs have this without reading every gang.json
            self.state["end"] = {"state": state, "attempt": record.get("attempt", 1)}
            self._changed = True
        self.flush()

    def flush(self) -> bool:
        """Write what is not on the disk yet; False if the disk refused."""
        try:
            while self._lines:
                self._append(self._lines[0])
                del self._lines[0]
            if self._gang_record is not None:
                content = json.dumps(self._gang_record, indent=1).encode("utf-8")
                write_atomically(self.paths.gang_record, content)
                self._gang_record = None
            if self._changed:
                content = json.dumps(self.state, indent=1).encode("utf-8")
                write_atomically(self.paths.state, content)
                self._changed = False
        except OSError:
            return False
        return True

    def _append(self, line: bytes) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self.paths.events, flags, 0o600)
        try:
            data = b"\n" + line if self._torn else line
            written = os.write(descriptor, data)
            self._torn = written < len(data)
            if self._torn:
                # the disk took a part of the line
                raise OSError
        finally:
            os.close(descriptor)


def resolve_state(rundir: str) -> Optional[State]:
    """Read the state; LOST or UNKNOWN where its agent is gone, None if nothing was started."""
    state = _read_recorded(rundir)
    if state is None or state["state"] in FINAL:
        return state
    if state["boot_id"] != boot_id():
        return {**state, "state": UNKNOWN, "reason": explain_absence(state)}
    if any(is_alive(parse_identity(state[name])) for name in ("agent", "guardian")):
        return state
    state = _read_recorded(rundir) or state  # they may have ended properly since it was read
    is_starting = state["agent"] is None and time.time() - state["since"] < SUBMISSION_LIMIT
    if state["state"] in FINAL or is_starting:
        return state
    return {**state, "state": LOST, "reason": state["reason"] or "agent and guardian are not running"}


def with_leftovers(state: State) -> State:
    """Put the processes that still run into the state of a LOST run; scans /proc once."""
    if state["state"] != LOST or state["boot_id"] != boot_id():
        return state
    recorded = map(parse_identity, (state["torchrun"], *state["ranks"].values()))
    found = [stat for stat in map(find_process, filter(None, recorded)) if stat is not None and stat.running]
    found += find_tagged_below(run_tag_prefix(state))
    left: Any = describe_leftovers({stat.pid: stat for stat in found}.values())
    return {**state, "left": left}


def is_lingering(state: State) -> bool:
    """Return whether this part has ended, and its agent waits for the others."""
    is_waiting = state["state"] in FINAL and state.get("gang") and not state.get("gang_done")
    return bool(is_waiting and state["boot_id"] == boot_id() and is_alive(parse_identity(state["agent"])))


def with_stop(rundir: str, state: State) -> State:
    """Put what `stop` asked for into the state of a run that has not ended yet."""
    order = read_json(RunPaths(rundir).stop_request) if state["state"] not in FINAL else None
    return {**state, "stopping": cast("StopFile", order).get("reason")} if order else state


def with_record(rundir: str, state: State) -> State:
    """Put the record of the whole run's end into a state, as `gang`."""
    record = read_run_file(RunPaths(rundir).gang_record)
    return {**state, "gang": record} if record is not None else state


def record_size(rundir: str) -> int:
    """Return the bytes of the record of the whole run's end."""
    try:
        return os.stat(RunPaths(rundir).gang_record).st_size
    except OSError:
        return 0


def is_elsewhere(state: State) -> bool:
    """Return whether another machine that shares the home recorded this."""
    return state["boot_id"] != boot_id() and state.get("machine") not in (None, os.uname().nodename)


def explain_absence(state: State) -> str:
    """Return why its processes are not here."""
    if is_elsewhere(state):
        return f"it ran on machine {state['machine']}, this is {os.uname().nodename}"
    return "the node was restarted during the run"


def read_state(rundir: str) -> Optional[State]:
    """Read what is recorded, as the verbs can work with it; None if there is nothing."""
    state = read_run_file(RunPaths(rundir).state)
    return None if state is None else sanitize(state)


def sanitize(recorded: Mapping[str, Any]) -> State:
    """Put right what is of a wrong type in a state: another node may have written it."""
    state = cast("State", recorded)
    untrusted = Untrusted(state)
    facts: Dict[str, Any] = {name: untrusted.text(name) for name in ("run", "node", "boot_id", "reason")}
    facts.update((name, _sanitize_process(state.get(name))) for name in ("guardian", "agent", "torchrun"))
    sane: Any = {
        **state,
        **facts,
        "protocol": PROTOCOL,
        "state": untrusted.one_of("state", STATES) or UNKNOWN,
        "since": untrusted.moment("since") or 0.0,
        "submitted": untrusted.moment("submitted"),
        "attempt": untrusted.integer("attempt", 1, MAX_ATTEMPTS) or 1,
        "node_rank": untrusted.count("node_rank"),
        "ranks": _sanitize_ranks(state.get("ranks")),
        "left": [entry for entry in _dicts(state.get("left")) if Untrusted(entry).integer("pid") is not None],
        **({"slot": untrusted.integer("slot", 0)} if "slot" in state else {}),
        **({"attempts": _sanitize_attempts(state)} if "attempts" in state else {}),
    }
    return sane  # type: ignore[no-any-return]  # every value has just been put right


def _sanitize_attempts(state: State) -> List[Any]:
    entries = cast("List[AttemptRecord]", _dicts(state.get("attempts")))
    return [{**entry, "ranks": _sanitize_ranks(entry.get("ranks"))} for entry in entries]


def _sanitize_ranks(raw: Any) -> Dict[str, Any]:
    ranks = raw if isinstance(raw, dict) else {}
    entries = {
        rank: _sanitize_rank(entry) for rank, entry in ranks.items() if rank.isdecimal() and len(rank) < 10
    }
    return {rank: entry for rank, entry in entries.items() if entry is not None}


def _sanitize_rank(raw: Any) -> Optional[Dict[str, Any]]:
    entry, untrusted = _sanitize_process(raw), Untrusted(raw)
    files = {name: untrusted.text(name) or None for name in ("stdout", "stderr")}
    return None if entry is None else {**entry, **files}


def parse_identity(entry: object) -> Optional[Identity]:
    """Read what `Identity.as_dict` wrote; None for anything else."""
    fields = Untrusted(entry)
    pid, starttime = fields.integer("pid", 1, MAX_PID), fields.integer("starttime")
    return None if pid is None or starttime is None else Identity(pid, starttime)


def _sanitize_process(raw: Any) -> Optional[Dict[str, Any]]:
    """Return an entry with a pid and a start time, or without both."""
    if not isinstance(raw, dict):
        return None
    identity = parse_identity(raw)
    return {**raw, **(identity.as_dict() if identity is not None else {"pid": None, "starttime": None})}


def _dicts(raw: Any) -> List[Dict[str, Any]]:
    return [entry for entry in raw[:MAX_LISTED] if isinstance(entry, dict)] if isinstance(raw, list) else []


def _read_recorded(rundir: str) -> Optional[State]:
    state = read_state(rundir)
    if state is not None:
        return state
    spec = read_spec(rundir)
    if spec is None:
        return None
    try:
        since = os.stat(RunPaths(rundir).spec).st_mtime
    except FileNotFoundError:
        return None  # another node that shares the home has just removed it
    return sanitize({**new_state(spec), "since": since})
