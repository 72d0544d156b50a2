"""The processes that the end of a run has ended, as its journal and its state name them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List

from ...protocol.untrusted import Untrusted

if TYPE_CHECKING:
    from ...protocol.messages.files import EndedProcess, LeftProcess, State

MOST_ENDED = 100_000  # processes


def read_ended(event: object) -> List[EndedProcess]:
    """List the processes that an event reports as ended."""
    records = Untrusted(event).records("ended", MOST_ENDED)
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
