"""The processes that start and watch the ranks of a run on this node: guardian, agent, torchrun; which are halted.

A signal (SIGSTOP, Ctrl-Z) or a debugger halts a process: it is there, and does nothing. Ranks that are halted are
marked here too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List

from ...protocol.states import FINAL
from ..runtime.processes import boot_id, find_process
from .run_record import Record, parse_identity

if TYPE_CHECKING:
    from ...protocol.messages.evidence import WatcherEvidence
    from ...protocol.messages.files import HaltedProcess, RankRecord, State

HALTED = "Tt"  # the kernel's letters: by a signal, by a debugger


def find_watchers(state: State) -> List[WatcherEvidence]:
    """Return those that live; costs one look at each."""
    if state["state"] in FINAL or state["boot_id"] != boot_id():
        return []
    watchers: List[WatcherEvidence] = []
    processes = {"guardian": state["guardian"], "agent": state["agent"], "torchrun": state["torchrun"]}
    for name, record in processes.items():
        identity = parse_identity(record)
        stat = find_process(identity) if identity is not None else None
        if stat is not None and stat.running:
            watchers.append({"process": name, "pid": stat.pid, "halted": stat.state in HALTED})
    return watchers


def find_halted(state: State) -> List[HaltedProcess]:
    """Return those that are halted."""
    halted = [each for each in find_watchers(state) if each["halted"]]
    return [{"process": each["process"], "pid": each["pid"]} for each in halted]


def mark_halted(state: State) -> State:
    """Mark the ranks and the other processes of a run that are halted."""
    if state["state"] in FINAL or state["boot_id"] != boot_id():
        return state
    ranks: Any = {rank: {**entry, **_stopped(entry)} for rank, entry in state["ranks"].items()}
    marked: State = {**state, "ranks": ranks}
    halted = find_halted(state)
    if halted:
        marked["halted"] = halted
    return marked


def _stopped(entry: RankRecord) -> Any:
    identity = parse_identity(entry) if entry.get("exit") is None and entry.get("signal") is None else None
    stat = find_process(identity) if identity is not None else None
    return {"stopped": True} if stat is not None and stat.state in HALTED else {}


class HaltedJournal:
    """Writes into events.jsonl when a process is halted and when it continues, but for the agent, which calls this."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._known: Dict[str, int] = {}  # pids by process

    def scan(self) -> None:
        """Compare the processes with those of the last scan."""
        watchers = {each["process"]: each for each in find_watchers(self._record.state)}
        halted = {name: each["pid"] for name, each in watchers.items() if each["halted"]}
        for name, pid in halted.items():
            if self._known.get(name) != pid:
                self._record.add_event("halted", {"process": name, "pid": pid})
        for name, pid in self._known.items():
            if name in watchers and name not in halted:
                self._record.add_event("continued", {"process": name, "pid": pid})
        self._known = halted
