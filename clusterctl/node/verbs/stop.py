"""End a run, with or without its guardian."""

from __future__ import annotations

import json
import os
import signal
import time
from typing import Any, Dict, Iterator, List, Optional, Set

from ...protocol.untrusted import Untrusted
from ..logs.lines import LineReader
from ..runtime.processes import (
    LEFT_AFTER,
    Identity,
    Stat,
    Sweep,
    alive,
    as_left,
    boot_id,
    descendants,
    identity_of,
    look,
    own_processes,
    send_signal,
    tagged_below,
)
from ..runtime.stream import Stream, VerbError
from ..state.lock_holders import NODE, ask_holders, share_of
from ..state.run_record import (
    FINAL,
    Record,
    State,
    is_elsewhere,
    lingers,
    look_for_run,
    mark_of,
    read_spec,
    read_state,
    resolve,
)
from ..state.workdir import drop_ballast, parse_dict, write_atomically

LOOK = 0.05
BEAT = 2.0
GRACE = 10.0  # seconds between TERM and KILL; the job's own went with the directory

Request = Dict[str, Any]


def end_forgotten(workdir: str, request: Request) -> Iterator[Dict[str, Any]]:
    """Yield beats, and at last what was ended and what is left."""
    sweep = Sweep(f"{request['run']}/{request['node']}/")
    folder = os.path.join(workdir, "runs", request["run"])
    found = find(folder, request["node"], sweep.tag)
    supervisors = {stat.pid for stat in guardians(folder, request["node"])}
    sweep.ask(topmost(found, supervisors))
    grace = GRACE if request.get("grace") is None else float(request["grace"])
    begun = beaten = time.monotonic()
    while found and time.monotonic() - begun < grace + LEFT_AFTER:
        working = [stat for stat in found if stat.pid not in supervisors]
        if not working or time.monotonic() - begun > grace:
            sweep.kill(found)
        time.sleep(LOOK)
        if time.monotonic() - beaten > BEAT:
            beaten = time.monotonic()
            yield {"beat": int(beaten - begun)}
        found = find(folder, request["node"], sweep.tag)
    yield {"stopped": {"ended": sweep.account(), "left": as_left(found), "state": None}}


def find(folder: str, node: str, tag: str) -> List[Stat]:
    """Look at the run's supervisors, all that is below them, and all that bears the tag."""
    found: Dict[Identity, Stat] = {}
    for stat in guardians(folder, node):
        found.update((below.identity, below) for below in (stat, *descendants(stat.pid)))
    found.update((stat.identity, stat) for stat in tagged_below(tag))
    return [stat for stat in found.values() if stat.running]


def guardians(folder: str, node: str) -> Iterator[Stat]:
    """Look for guardian and agent: what was started with this run's directory on this node as its guardian's place."""

    def fits(words: List[bytes]) -> bool:
        place = os.fsdecode(words[-2]) if words[-3:-2] == [b"guardian"] else ""
        parent, name = os.path.split(place)
        return parent == folder and name.partition("-")[2] == node

    return own_processes("cmdline", fits)


def topmost(found: List[Stat], supervisors: Set[int]) -> List[Stat]:
    """Keep torchrun, or what is left without it: processes that no other of the run has started."""
    pids = {stat.pid for stat in found} - supervisors
    return [stat for stat in found if stat.pid in pids and stat.parent not in pids]


DEAF_AFTER = 3.0  # seconds in which a guardian has passed a stop on, or an agent has taken it
SPARE_TIME = 5.0  # seconds beyond those in which a healthy agent has finished
RELEASE_LIMIT = 70.0  # seconds in which an agent has given up waiting for GPU memory
FAREWELL = 2.0  # seconds in which guardian and agent leave after the final state
JUST_NOW = 5.0  # seconds; a stop that asks all nodes at once takes less
LAST_EVENTS = 64 << 10  # bytes
MOST_ENDED = 100_000  # processes


def run(request: Request, stream: Stream) -> None:
    """End a run on this node and say what was ended."""
    rundir = look_for_run(request["workdir"], request["run"], request["node"])
    spec = read_spec(rundir) if rundir else None
    before = resolve(rundir) if rundir else None
    if rundir is None or not spec or before is None:  # removed, or lost with the node's power
        for frame in end_forgotten(os.path.realpath(os.path.expanduser(request["workdir"])), request):
            stopped = frame.get("stopped")
            if stopped is not None and not (stopped["ended"] or stopped["left"]):
                other = account_elsewhere(request["run"], request["node"])
                stopped.update({"elsewhere": other} if other else {})
            stream.send(frame)
        return
    sweep = Sweep(mark_of(spec))
    if before["state"] == "UNKNOWN" and is_elsewhere(before):
        raise VerbError("CC-RUN-015", f"nothing was stopped: {before['reason']}")
    lived = {stat.pid: stat.name for stat in remains(before, sweep.tag)}
    ended: List[Dict[str, Any]] = []
    if before["state"] not in FINAL or lingers(before):
        for event in Asking(rundir, before, request).events():
            stream.send(event)
            ended = ended_in(event.get("event")) or ended
    if not ended and request.get("lived", True):
        ended = just_ended(rundir)
    for beat in await_release(rundir):
        stream.send(beat)
    left = as_left(clear(rundir, sweep))
    state = settle(rundir, request, sweep, left)
    left = left or state["left"]
    signalled = [*ended, *sweep.account()]
    account = account_of(state, lived, signalled, left, "torchrun" if spec.get("module") else "launcher")
    stream.send({"stopped": {"ended": account, "left": left, "state": state}})


def just_ended(rundir: str) -> List[Dict[str, Any]]:
    """List what the run's end has cost if that was a moment ago: the stop of another node was quicker than ours."""
    path = os.path.join(rundir, "events.jsonl")
    size = os.path.getsize(path) if os.path.exists(path) else 0
    for line in reversed(LineReader(path, max(0, size - LAST_EVENTS)).read()[1].splitlines()):
        event = parse_dict(line) or {}
        stopped = event.get("event") == "ended" and event.get("state") == "CANCELLED"
        if stopped and time.time() - (Untrusted(event).moment("time") or 0.0) < JUST_NOW:
            return ended_in(event)
    return []


def account_elsewhere(run: str, node: str) -> Optional[str]:
    """Name the other account of this machine under which a run lives that we know nothing of; the kernel says whose."""
    share = share_of(run, node)  # a name of this run alone, so that its holder need not answer
    for holder in ask_holders([share, NODE]):
        of_run = holder["name"] == share or holder.get("run") == run
        if of_run and holder["uid"] not in (None, os.geteuid()):
            return str(holder["user"])
    return None


def ended_in(event: Any) -> List[Dict[str, Any]]:
    """List the processes that an event says were ended."""
    told = Untrusted(event).records("ended", MOST_ENDED)
    found = [{"pid": one.integer("pid", 1), "name": one.text("name")} for one in told]
    return [one for one in found if one["pid"] is not None]


def account_of(
    state: State,
    lived: Dict[int, str],
    signalled: List[Dict[str, Any]],
    left: List[Dict[str, Any]],
    first: str = "torchrun",
) -> List[Dict[str, Any]]:
    """List what lived when the stop came, and what it met later, by the part each had; `left` is not in it.

    `first` is what the process is called that started the ranks. Guardian and agent end by themselves: they are listed
    only if they had to be killed.
    """
    parts: Dict[Any, str] = {entry["pid"]: f"rank {rank}" for rank, entry in state["ranks"].items()}
    own: Dict[Any, str] = {state[name]["pid"]: name for name in ("guardian", "agent") if state[name]}
    if state["torchrun"]:
        parts[state["torchrun"]["pid"]] = first
    found = {pid: name for pid, name in lived.items() if pid not in own}
    found.update((entry["pid"], entry["name"]) for entry in signalled)
    for entry in left:
        found.pop(entry["pid"], None)
    return [{"pid": pid, "name": parts.get(pid) or own.get(pid) or name} for pid, name in found.items()]


class Asking:
    """A stop handed to the guardian, and to the agent if the guardian is deaf."""

    def __init__(self, rundir: str, state: State, request: Request) -> None:
        self._rundir = rundir
        self._wish = {"grace": request.get("grace"), "reason": request.get("reason")}
        spec = Untrusted(read_spec(rundir))
        wished = self._wish["grace"]
        self._grace = float((spec.number("grace", 0.0) or 0.0) if wished is None else wished)
        self._after = (
            spec.record("after").number("time_limit", 0.0) or 0.0
        )  # what follows the last rank's end
        named = map(identity_of, (state["guardian"], state["agent"]))
        self._supervisors = [identity for identity in named if identity is not None]
        path = os.path.join(rundir, "events.jsonl")
        self._reader = LineReader(path, os.path.getsize(path) if os.path.exists(path) else 0)
        self._answered = False

    def events(self) -> Iterator[Dict[str, Any]]:
        """Yield frames, events and beats, until the run has ended or nobody does anything about it."""
        content = json.dumps(self._wish).encode("utf-8")
        drop_ballast(self._rundir)
        write_atomically(os.path.join(self._rundir, "stop.json"), content)
        begun = beaten = time.monotonic()
        self._signal_next()
        while not has_ended(self._rundir):
            time.sleep(LOOK)
            now = time.monotonic()
            for event in self._read():
                self._answered = True
                yield {"event": event}
            if now - begun > self._limit():
                return
            if not self._answered and now - begun > DEAF_AFTER:
                self._signal_next()
            if now - beaten > BEAT:
                beaten = now
                yield {"beat": int(now - begun)}
        for event in self._read():
            yield {"event": event}

    def _limit(self) -> float:
        return self._grace + self._after + LEFT_AFTER + SPARE_TIME if self._answered else 2 * DEAF_AFTER

    def _signal_next(self) -> None:
        while self._supervisors and not send_signal(self._supervisors.pop(0), signal.SIGTERM):
            pass

    def _read(self) -> Iterator[Dict[str, Any]]:
        for line in self._reader.read()[1].splitlines():
            event = parse_dict(line)
            if event is not None:  # a full disk may have cut a line short
                yield event


def has_ended(rundir: str) -> bool:
    """Whether a final state is recorded and nothing waits for other nodes, or nobody is there to record one."""
    state = resolve(rundir)
    return state is None or (state["state"] in FINAL and not lingers(state))


def await_release(rundir: str) -> Iterator[Dict[str, Any]]:
    """Yield beats while the agent waits until the memory of its GPUs is free, which it does with the run's locks."""
    begun = beaten = time.monotonic()
    while time.monotonic() - begun < RELEASE_LIMIT:
        state = read_state(rundir) or {}
        if not state.get("releasing") or not alive(identity_of(state.get("agent"))):
            return
        time.sleep(LOOK)
        if time.monotonic() - beaten > BEAT:
            beaten = time.monotonic()
            yield {"beat": int(beaten - begun)}


def clear(rundir: str, sweep: Sweep) -> List[Stat]:
    """Kill what is left: supervisors that do not leave, all they started, all that bears the tag."""
    begun = time.monotonic()
    leaving = has_ended(rundir)
    while True:
        rest = remains(read_state(rundir) or {}, sweep.tag)
        elapsed = time.monotonic() - begun
        if not rest or elapsed > LEFT_AFTER:
            return rest
        if not leaving or elapsed > FAREWELL:
            sweep.kill(rest)
        time.sleep(LOOK)


def remains(state: State, tag: str) -> List[Stat]:
    """Look at every process of the run that still lives."""
    found: Dict[Identity, Stat] = {}
    if state.get("boot_id") == boot_id():
        roots = [state["guardian"], state["agent"], state["torchrun"], *state["ranks"].values()]
        for identity in map(identity_of, roots):
            stat = look(identity) if identity is not None else None
            if stat is not None:
                found.update((below.identity, below) for below in (stat, *descendants(stat.pid)))
    found.update((stat.identity, stat) for stat in tagged_below(tag))
    return [stat for stat in found.values() if stat.running]


def settle(rundir: str, request: Request, sweep: Sweep, left: List[Dict[str, Any]]) -> State:
    """Record the end where nobody else did; a lost or unknown end stays one."""
    state = resolve(rundir) or {}
    recorded = read_state(rundir)
    if state["state"] == "UNKNOWN" or (recorded is not None and recorded["state"] in FINAL):
        return state
    lost = state["state"] == "LOST"
    reason = state["reason"] if lost else str(request.get("reason") or "stopped")
    record = Record(rundir, state)
    word = "LOST" if lost else "CANCELLED"
    record.note("ended", state=word, reason=reason, ended=sweep.account(), left=left)
    record.set(state=word, reason=reason, left=left)
    return record.state
