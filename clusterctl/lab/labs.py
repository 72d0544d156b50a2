"""The labs that run here: find them, look at them, break and heal their nodes, take them down."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from clusterctl.errors import LabError
from clusterctl.lab.lab import Lab, NodeState
from clusterctl.lab.layout import LabPlan
from clusterctl.lab.state import Process, holder_of, lab_directories, locked, remove

DEFAULT_NAME = "lab"
BREAKS = ("power", "nic-down", "sshd")


def running(state_dir: Path) -> list[Lab]:
    """The labs that live now, by name; starts no process."""
    return [lab for directory in lab_directories(state_dir) if (lab := _open(directory)) is not None]


def load(state_dir: Path, name: str | None = None) -> Lab:
    """The running lab of that name; without a name the only one, or the one called `lab`."""
    labs = running(state_dir)
    named = [lab for lab in labs if lab.name == (name or DEFAULT_NAME)]
    if named:
        return named[0]
    if name is None and len(labs) == 1:
        return labs[0]
    if name is None and labs:
        names = ", ".join(lab.name for lab in labs)
        raise LabError("several labs are running", code="CC-LAB-005", fix=f"choose one with --name: {names}")
    what = f"no lab called {name} is running" if name else "no lab is running"
    raise LabError(what, code="CC-LAB-005", fix="clusterctl lab up" + (f" --name {name}" if name else ""))


def default_inventory(state_dir: Path) -> Path | None:
    """The inventory of the only running lab, or of the one called `lab`; starts no process."""
    try:
        return load(state_dir).inventory
    except LabError:
        return None


def status(state_dir: Path) -> list[tuple[Lab, tuple[NodeState, ...]]]:
    """Every running lab with its nodes as they are now; what dead labs have left is removed."""
    sweep(state_dir)
    return [(lab, lab.ask(do="look")) for lab in running(state_dir)]


def down(state_dir: Path, names: Sequence[str] | None = None) -> list[str]:
    """End the labs of these names (None: all) with all they hold; returns the names of those that lived."""
    ended = []
    for directory in lab_directories(state_dir):
        if names is None or directory.name in names:
            with locked(state_dir):
                holder = holder_of(directory)
                if holder is not None and holder.alive():
                    ended.append(directory.name)
                _end(directory, holder)
    sweep(state_dir)
    return ended


def sweep(state_dir: Path) -> None:
    """Remove what dead labs have left here."""
    for directory in lab_directories(state_dir):
        if _open(directory) is None:
            with locked(state_dir):  # one that is being built holds the lock, and lives when we get it
                if _open(directory) is None:
                    remove(directory)


def break_node(lab: Lab, node: str, how: str) -> NodeState:
    """Cut a node's `power`, take its training NIC down (`nic-down`), or kill its listening `sshd`."""
    if how not in BREAKS:
        text = f"a lab node cannot break by {how}"
        raise LabError(text, code="CC-LAB-003", fix=f"one of: {', '.join(BREAKS)}")
    return lab.ask(do="break", how=how, node=lab.node(node).name)[0]


def heal_node(lab: Lab, node: str) -> NodeState:
    """Undo every break of a node; returns when its sshd answers."""
    return lab.ask(do="heal", node=lab.node(node).name)[0]


def _open(directory: Path) -> Lab | None:
    holder = holder_of(directory)
    if holder is None or not holder.alive():
        return None
    try:
        values = json.loads((directory / "plan.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return Lab(directory, LabPlan.from_dict(values), holder)


def _end(directory: Path, holder: Process | None) -> None:
    if holder is not None and not holder.end():
        text = f"the lab {directory.name} does not end"
        raise LabError(text, code="CC-LAB-008", fix=f"look at process {holder.pid}: ps {holder.pid}")
    remove(directory)
