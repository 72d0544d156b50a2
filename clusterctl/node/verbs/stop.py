"""End a run, with or without its guardian."""

from __future__ import annotations

import json
import os
import signal
import time
from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, List, Optional, Set, cast

from ...protocol.run_paths import RunPaths, WorkdirPaths
from ...protocol.states import FINAL, LOST, STOPPED, UNKNOWN
from ...protocol.untrusted import Untrusted
from ..logs.lines import LineReader
from ..runtime.heartbeat import Heartbeat
from ..runtime.processes import (
    UNKILLABLE_AFTER,
    Identity,
    ProcessTree,
    Stat,
    boot_id,
    descendants,
    describe_leftovers,
    find_process,
    find_tagged_below,
    is_alive,
    own_processes,
    send_signal,
)
from ..runtime.stream import Stream, VerbError
from ..state.lock_holders import NODE, query_holders, share_name
from ..state.run_files import find_run_or_none, read_spec
from ..state.run_record import (
    Record,
    is_elsewhere,
    is_lingering,
    parse_identity,
    read_state,
    resolve_state,
    run_tag_prefix,
)
from ..state.temp_dirs import own_prefix, remove_all
from ..state.workdir import parse_dict, release_disk_reserve, write_atomically

if TYPE_CHECKING:
    from ...protocol.messages.files import (
        EndedProcess,
        JournalEntry,
        JournalFacts,
        LeftProcess,
        State,
        StopFile,
    )
    from ...protocol.messages.verbs import StopReport, StopRequest
    from ...protocol.states import RunState


POLL_INTERVAL = 0.05
GRACE = 10.0  # seconds between TERM and KILL; the job's own went with the directory
NO_ANSWERS = ("halted", "continued")  # events that an agent writes also while it does not know of the stop
NO_ANSWER_AFTER = 3.0  # seconds in which a guardian has passed a stop on, or an agent has taken it
SPARE_TIME = 5.0  # seconds beyond those in which a healthy agent has finished
RELEASE_LIMIT = 70.0  # seconds in which an agent has given up waiting for GPU memory
EXIT_TIME = 2.0  # seconds in which guardian and agent leave after the final state
RECENT = 5.0  # seconds; a stop that asks all nodes at once takes less
LAST_EVENTS = 64 << 10  # bytes


def run(request: StopRequest, stream: Stream) -> None:
    """End a run on this node and report what was ended."""
    with Heartbeat(stream) as heartbeat:
        report = stop_run(request, heartbeat)
        remove_all(own_prefix(request["run"]))  # its guardian does so, unless it was killed
        heartbeat.send({"stopped": report})


def stop_run(request: StopRequest, heartbeat: Heartbeat) -> StopReport:
    """End what the run has here, and send the events of its end as they come."""
    rundir = find_run_or_none(request["workdir"], request["run"], request["node"])
    spec = read_spec(rundir) if rundir else None
    state_before = resolve_state(rundir) if rundir else None
    if rundir is None or not spec or state_before is None:  # removed, or lost with the node's power
        return stop_unrecorded(os.path.realpath(os.path.expanduser(request["workdir"])), request)
    process_tree = ProcessTree(run_tag_prefix(spec))
    if state_before["state"] == UNKNOWN and is_elsewhere(state_before):
        raise VerbError("CC-RUN-015", f"nothing was stopped: {state_before['reason']}")
    names_before = {stat.pid: stat.name for stat in find_remaining(state_before, process_tree.tag)}
    ended: List[EndedProcess] = []
    if state_before["state"] not in FINAL or is_lingering(state_before):
        for event in StopOrder(rundir, state_before, request).events():
            heartbeat.send({"event": event})
            ended = read_ended(event) or ended
    if not ended and request.get("lived", True):
        ended = find_recently_ended(rundir)
    wait_for_release(rundir)
    leftovers = describe_leftovers(kill_remaining(rundir, process_tree))
    state = record_end(rundir, request, process_tree, leftovers)
    leftovers = leftovers or state["left"]
    signalled = [*ended, *process_tree.signalled()]
    ended_processes = list_ended(
        state, names_before, signalled, leftovers, "torchrun" if spec.get("module") else "launcher"
    )
    return {"ended": ended_processes, "left": leftovers, "state": state}


def stop_unrecorded(workdir: str, request: StopRequest) -> StopReport:
    """End a run of which nothing is on record, by its supervisors' arguments and its tag."""
    process_tree = ProcessTree(f"{request['run']}/{request['node']}/")
    folder = WorkdirPaths(workdir).run(request["run"])
    processes = find_below(find_supervisors(folder, request["node"]), process_tree.tag)
    supervisors = {stat.pid for stat in find_supervisors(folder, request["node"])}
    process_tree.terminate(topmost(processes, supervisors))
    grace = GRACE if request["grace"] is None else request["grace"]
    started = time.monotonic()
    while processes and time.monotonic() - started < grace + UNKILLABLE_AFTER:
        working = [stat for stat in processes if stat.pid not in supervisors]
        if not working or time.monotonic() - started > grace:
            process_tree.kill(processes)
        time.sleep(POLL_INTERVAL)
        processes = find_below(find_supervisors(folder, request["node"]), process_tree.tag)
    signalled, leftovers = process_tree.signalled(), describe_leftovers(processes)
    report: StopReport = {"ended": signalled, "left": leftovers, "state": None}
    other = None if signalled or leftovers else find_other_account(request["run"], request["node"])
    return {**report, "elsewhere": other} if other else report


def find_supervisors(folder: str, node: str) -> Iterator[Stat]:
    """Look for guardian and agent: what was started with this run's directory on this node as its guardian's place."""

    def is_supervisor(arguments: List[bytes]) -> bool:
        rundir = os.fsdecode(arguments[-2]) if arguments[-3:-2] == [b"guardian"] else ""
        return os.path.dirname(rundir) == folder and RunPaths(rundir).node == node

    return own_processes("cmdline", is_supervisor)


def topmost(processes: List[Stat], supervisors: Set[int]) -> List[Stat]:
    """Keep torchrun, or what is left without it: processes that no other of the run has started."""
    pids = {stat.pid for stat in processes} - supervisors
    return [stat for stat in processes if stat.pid in pids and stat.parent not in pids]


def find_recently_ended(rundir: str) -> List[EndedProcess]:
    """List what the run's end has cost if that was a moment ago: the stop of another node was quicker than ours."""
    reader = LineReader(RunPaths(rundir).events)
    reader.position = max(0, reader.size() - LAST_EVENTS)
    for line in reversed(reader.read()[1].splitlines()):
        event = cast("JournalEntry", parse_dict(line) or {})
        stopped = event.get("event") == "ended" and event.get("state") == STOPPED
        if stopped and time.time() - (Untrusted(event).moment("time") or 0.0) < RECENT:
            return read_ended(event)
    return []


def find_other_account(run_id: str, node: str) -> Optional[str]:
    """Name the other account of this machine under which a run lives without a record here; the kernel shows it."""
    share = share_name(run_id, node)  # a name of this run alone, so that its holder need not answer
    for holder in query_holders([share, NODE]):
        of_run = holder["name"] == share or holder.get("run") == run_id
        if of_run and holder["uid"] not in (None, os.geteuid()):
            return str(holder["user"])
    return None


class StopOrder:
    """A stop handed to the guardian, and to the agent if the guardian is deaf."""

    def __init__(self, rundir: str, state: State, request: StopRequest) -> None:
        self._rundir = rundir
        self._request: StopFile = {"grace": request.get("grace"), "reason": request.get("reason")}
        self._request["dump"] = bool(request.get("dump"))
        spec = Untrusted(read_spec(rundir))
        grace = self._request["grace"]
        self._grace = float((spec.number("grace", 0.0) or 0.0) if grace is None else grace)
        # what follows the last rank's end
        self._after = spec.record("after").number("time_limit", 0.0) or 0.0
        identities = map(parse_identity, (state["guardian"], state["agent"]))
        self._supervisors = [identity for identity in identities if identity is not None]
        self._reader = LineReader(RunPaths(rundir).events)
        self._reader.position = self._reader.size()
        self._answered = False

    def events(self) -> Iterator[JournalEntry]:
        """Yield events until the run has ended or nothing ends it."""
        content = json.dumps(self._request).encode("utf-8")
        release_disk_reserve(self._rundir)
        write_atomically(RunPaths(self._rundir).stop_request, content)
        started = time.monotonic()
        self._signal_next()
        while not has_ended(self._rundir):
            time.sleep(POLL_INTERVAL)
            elapsed = time.monotonic() - started
            for event in self._read():
                self._answered = self._answered or event.get("event") not in NO_ANSWERS
                yield event
            if elapsed > self._limit():
                return
            if not self._answered and elapsed > NO_ANSWER_AFTER:
                self._signal_next()
        yield from self._read()

    def _limit(self) -> float:
        return (
            self._grace + self._after + UNKILLABLE_AFTER + SPARE_TIME
            if self._answered
            else 2 * NO_ANSWER_AFTER
        )

    def _signal_next(self) -> None:
        while self._supervisors and not send_signal(self._supervisors.pop(0), signal.SIGTERM):
            pass

    def _read(self) -> Iterator[JournalEntry]:
        for line in self._reader.read()[1].splitlines():
            event = parse_dict(line)
            if event is not None:  # a full disk may have cut a line short
                yield cast("JournalEntry", event)


def has_ended(rundir: str) -> bool:
    """Whether a final state is recorded and nothing waits for other nodes, or nothing is left to record one."""
    state = resolve_state(rundir)
    return state is None or (state["state"] in FINAL and not is_lingering(state))


def wait_for_release(rundir: str) -> None:
    """Wait while the agent waits until the memory of its GPUs is free, which it does with the run's locks."""
    deadline = time.monotonic() + RELEASE_LIMIT
    while time.monotonic() < deadline:
        state = read_state(rundir)
        if state is None or not state.get("releasing") or not is_alive(parse_identity(state.get("agent"))):
            return
        time.sleep(POLL_INTERVAL)


def kill_remaining(rundir: str, process_tree: ProcessTree) -> List[Stat]:
    """Kill what is left: supervisors that do not leave, all they started, all with the tag."""
    started = time.monotonic()
    leaving = has_ended(rundir)
    while True:
        remaining = find_remaining(read_state(rundir), process_tree.tag)
        elapsed = time.monotonic() - started
        if not remaining or elapsed > UNKILLABLE_AFTER:
            return remaining
        if not leaving or elapsed > EXIT_TIME:
            process_tree.kill(remaining)
        time.sleep(POLL_INTERVAL)


def find_remaining(state: Optional[State], tag: str) -> List[Stat]:
    """Look at every process of the run that still lives."""
    if state is None or state.get("boot_id") != boot_id():
        return find_below((), tag)
    identities = map(
        parse_identity, [state["guardian"], state["agent"], state["torchrun"], *state["ranks"].values()]
    )
    return find_below(filter(None, map(find_process, filter(None, identities))), tag)


def find_below(roots: Iterable[Stat], tag: str) -> List[Stat]:
    """Look at some processes, all that is below them, and all with the tag."""
    processes: Dict[Identity, Stat] = {}
    for root in roots:
        processes.update((stat.identity, stat) for stat in (root, *descendants(root.pid)))
    processes.update((stat.identity, stat) for stat in find_tagged_below(tag))
    return [stat for stat in processes.values() if stat.running]


def record_end(
    rundir: str, request: StopRequest, process_tree: ProcessTree, leftovers: List[LeftProcess]
) -> State:
    """Record the end where it is not recorded; a lost or unknown end stays one."""
    state = resolve_state(rundir)
    assert state is not None  # read_spec has found what a state is made from
    recorded = read_state(rundir)
    if state["state"] == UNKNOWN or (recorded is not None and recorded["state"] in FINAL):
        return state
    is_lost = state["state"] == LOST
    reason = state["reason"] if is_lost else str(request.get("reason") or "stopped")
    record = Record(rundir, state)
    final_state: RunState = LOST if is_lost else STOPPED
    end: JournalFacts = {"state": final_state, "reason": reason, "ended": process_tree.signalled()}
    record.add_event("ended", {**end, "left": leftovers})
    record.set({"state": final_state, "reason": reason, "left": leftovers})
    return record.state


MAX_ENDED = 100_000  # processes


def read_ended(event: object) -> List[EndedProcess]:
    """List the processes that an event reports as ended."""
    records = Untrusted(event).records("ended", MAX_ENDED)
    pids = ((entry.integer("pid", 1), entry.text("name")) for entry in records)
    return [{"pid": pid, "name": name} for pid, name in pids if pid is not None]


def list_ended(
    state: State,
    names_before: Dict[int, str],
    signalled: List[EndedProcess],
    leftovers: List[LeftProcess],
    launcher_name: str = "torchrun",
) -> List[EndedProcess]:
    """List what lived when the stop came, and what it met later, by the part each had; `leftovers` is not in it.

    `launcher_name` is what the process is called that started the ranks. Guardian and agent end by themselves: they
    are listed only if they had to be killed.
    """
    role_names: Dict[Any, str] = {entry["pid"]: f"rank {rank}" for rank, entry in state["ranks"].items()}
    known = (("guardian", state["guardian"]), ("agent", state["agent"]))
    supervisors: Dict[Any, str] = {entry["pid"]: name for name, entry in known if entry}
    if state["torchrun"]:
        role_names[state["torchrun"]["pid"]] = launcher_name
    warm = Untrusted(state.get("warm")).integer("pid")  # it ends by itself, or stays as its job asks
    names = {pid: name for pid, name in names_before.items() if pid not in supervisors and pid != warm}
    names.update((entry["pid"], entry["name"]) for entry in signalled)
    for entry in leftovers:
        names.pop(entry["pid"], None)
    return [
        {"pid": pid, "name": role_names.get(pid) or supervisors.get(pid) or name}
        for pid, name in names.items()
    ]
