"""The labs that run here and their nodes, seen from outside: find, look at, break, heal, take down."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from clusterctl.errors import LabError
from clusterctl.lab.layout import LabPlan, NodePlan, session_environment
from clusterctl.lab.linux import descendants, end_lab
from clusterctl.lab.machine import find_program
from clusterctl.lab.state import (
    Origin,
    Process,
    holder_of,
    lab_directories,
    locked,
    read_origin,
    remove,
    remove_rest,
    rests,
)

DEFAULT_NAME = "lab"
BREAKS = ("power", "nic-down", "sshd")
_ANSWER_SECONDS = 30.0
_ANSWER_BYTES = 1 << 18
_TAG = b"CLUSTERCTL_RUN="


class NodeProcess(NamedTuple):
    """A process in a node: its number there, its command line, and the run it bears as a tag ("": none)."""

    pid: int
    command: str
    tag: str


@dataclass(frozen=True)
class NodeState:
    """A node as it is now: the PID of its init on this machine (0: powered off), of its sshd in the node."""

    name: str
    pid: int
    sshd: int
    nics: dict[str, str]

    @property
    def power(self) -> bool:
        """Whether the node is on."""
        return self.pid != 0


@dataclass(frozen=True)
class Lab:
    """A running lab; a bound one lives as long as its leash is open."""

    directory: Path
    plan: LabPlan
    holder: Process
    leash: socket.socket | None = field(default=None, compare=False, repr=False)

    @property
    def name(self) -> str:
        """The lab's name."""
        return self.plan.name

    @property
    def inventory(self) -> Path:
        """The inventory file for clusterctl."""
        return self.directory / "inventory.yaml"

    @property
    def ssh_config(self) -> Path:
        """The file for `ssh -F`."""
        return self.directory / "ssh_config"

    @property
    def origin(self) -> Origin:
        """Where and when it was started."""
        return read_origin(self.directory)

    @property
    def nodes(self) -> tuple[LabNode, ...]:
        """The nodes, node 0 first."""
        return tuple(LabNode(self, plan) for plan in self.plan.nodes)

    def node(self, name: str) -> LabNode:
        """The node of that name; LabError if there is none."""
        plan = self.plan.node(name)
        if plan is None:
            names = ", ".join(node.name for node in self.plan.nodes)
            text = f"the lab {self.name} has no node {name}"
            raise LabError(text, code="CC-LAB-006", fix=f"its nodes: {names}")
        return LabNode(self, plan)

    def ssh_command(self, node: str, command: Sequence[str] = ()) -> list[str]:
        """The command line of OpenSSH that reaches a node."""
        return [find_program("ssh"), "-F", str(self.ssh_config), self.node(node).name, *command]

    def ask(self, **request: str) -> tuple[NodeState, ...]:
        """Send a request to the holder; returns the states of the nodes it concerns."""
        try:
            answer = self._exchange(request)
        except (OSError, ValueError) as error:
            text = f"the lab {self.name} does not answer: {error}"
            raise LabError(text, code="CC-LAB-008", fix=f"clusterctl lab down --name {self.name}") from error
        if "error" in answer:
            text = f"the lab could not {request['do']}: {answer['error']}"
            raise LabError(text, code="CC-LAB-007", node=request.get("node", ""))
        return tuple(NodeState(name, **state) for name, state in answer["nodes"].items())

    def _exchange(self, request: dict[str, str]) -> dict[str, Any]:
        folder = os.open(self.directory, os.O_PATH | os.O_CLOEXEC)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as caller:
                caller.settimeout(_ANSWER_SECONDS)
                caller.connect(f"/proc/self/fd/{folder}/control")  # a socket's path must be short
                caller.send(json.dumps(request).encode())
                answer: dict[str, Any] = json.loads(caller.recv(_ANSWER_BYTES))
                return answer
        finally:
            os.close(folder)


@dataclass(frozen=True)
class LabNode:
    """A node of a running lab."""

    lab: Lab
    plan: NodePlan

    @property
    def name(self) -> str:
        """The node's name, which is its hostname too."""
        return self.plan.name

    def state(self) -> NodeState:
        """How the node is now."""
        return self.lab.ask(do="look", node=self.name)[0]

    def run(
        self,
        argv: Sequence[str],
        *,
        input: str | None = None,  # noqa: A002  (named as in subprocess.run)
        timeout: float = 30.0,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the node, past SSH, as the root of its namespaces if it has some; output is captured."""
        state = self.state()
        if not state.power:
            text = f"{self.name} is powered off"
            raise LabError(text, code="CC-LAB-009", fix=f"clusterctl lab heal {self.name}")
        plan, inproc = self.lab.plan, self.lab.plan.backend == "inproc"
        return subprocess.run(
            [*([] if inproc else _enter(state.pid)), *argv],
            env=session_environment(plan, self.plan) if inproc else {**os.environ, "HOME": plan.account.home},
            cwd=plan.home(self.plan) if inproc else None,
            input=input,
            timeout=timeout,
            check=check,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
        )

    def processes(self) -> list[NodeProcess]:
        """The node's processes, without its init and its listening sshd; none if it is powered off."""
        state = self.state()
        if not state.power:
            return []
        if self.lab.plan.backend == "inproc":
            numbers = [(pid, Path(f"/proc/{pid}")) for pid in descendants(state.pid)]
        else:
            entries = Path(f"/proc/{state.pid}/root/proc").iterdir()
            numbers = sorted((int(entry.name), entry) for entry in entries if entry.name.isdigit())
        found = (_read_process(pid, entry) for pid, entry in numbers if pid not in (1, state.sshd))
        return [process for process in found if process is not None]


def _enter(pid: int) -> list[str]:
    """The words before a command that runs in the namespaces of a process."""
    user = [] if os.geteuid() == 0 else ["-U", "--preserve-credentials"]
    return [find_program("nsenter"), "-t", str(pid), *user, "-n", "-m", "-u", "-i", "-p", "--"]


def _read_process(pid: int, entry: Path) -> NodeProcess | None:
    try:
        command = (entry / "cmdline").read_bytes()
        environment = (entry / "environ").read_bytes()
    except OSError:
        return None  # it has ended meanwhile
    tag = next((word[len(_TAG) :] for word in environment.split(b"\0") if word.startswith(_TAG)), b"")
    text = command.rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")
    return NodeProcess(pid, text, tag.decode(errors="replace"))


def running(state_dir: Path) -> list[Lab]:
    """The labs that live now, by name; starts no process."""
    return [lab for directory in lab_directories(state_dir) if (lab := _open(directory)) is not None]


def load(state_dir: Path, name: str | None = None) -> Lab:
    """The running lab of that name; without a name the only one, so that nobody breaks a lab by accident."""
    labs = running(state_dir)
    chosen = [lab for lab in labs if name in (None, lab.name)]
    if len(chosen) == 1:
        return chosen[0]
    names = ", ".join(lab.name for lab in labs)
    if chosen:
        text = f"{len(labs)} labs are running: {names}"
        raise LabError(text, code="CC-LAB-005", fix=f"choose one, as in: --name {labs[0].name}")
    what = f"no lab called {name} is running" if name else "no lab is running"
    up = "clusterctl lab up" + (f" --name {name}" if name else "")
    raise LabError(what, code="CC-LAB-005", fix=f"running: {names}; or {up}" if labs else up)


def default_lab(labs: Sequence[Lab]) -> Lab | None:
    """The only one of these labs, or the one called `lab`: whose inventory is taken where none is named."""
    chosen = labs if len(labs) == 1 else [lab for lab in labs if lab.name == DEFAULT_NAME]
    return chosen[0] if chosen else None


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
        if not _lives(directory):
            with locked(state_dir):  # one that is being built holds the lock, and lives when we get it
                if not _lives(directory):
                    clear(directory)
    if rests(state_dir):
        with locked(state_dir):
            remove_rest(state_dir)


def break_node(lab: Lab, node: str, how: str) -> NodeState:
    """Cut a node's `power`, take its training NIC down (`nic-down`), or kill its listening `sshd`."""
    if how not in BREAKS:
        text = f"a lab node cannot break by {how}"
        raise LabError(text, code="CC-LAB-003", fix=f"one of: {', '.join(BREAKS)}")
    if how == "nic-down" and lab.plan.backend == "inproc":
        text = (
            f"{lab.node(node).name} has no NIC of its own that could go down: all nodes of this lab share lo"
        )
        raise LabError(
            text, code="CC-LAB-010", fix="a lab of namespaces can: clusterctl lab up --backend netns"
        )
    return lab.ask(do="break", how=how, node=lab.node(node).name)[0]


def heal_node(lab: Lab, node: str) -> NodeState:
    """Undo every break of a node; returns when its sshd answers."""
    return lab.ask(do="heal", node=lab.node(node).name)[0]


def _lives(directory: Path) -> bool:
    holder = holder_of(directory)
    return holder is not None and holder.alive()


def _open(directory: Path) -> Lab | None:
    """The living lab in a directory; one that another version made cannot be read, only ended."""
    holder = holder_of(directory)
    if holder is None or not holder.alive():
        return None
    try:
        plan = LabPlan.from_dict(json.loads((directory / "plan.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Lab(directory, plan, holder)


def _end(directory: Path, holder: Process | None) -> None:
    if holder is not None and not (_ends_by_itself(directory, holder) or holder.end()):
        text = f"the lab {directory.name} does not end"
        raise LabError(text, code="CC-LAB-008", fix=f"look at process {holder.pid}: ps {holder.pid}")
    clear(directory)


def _ends_by_itself(directory: Path, holder: Process) -> bool:
    """Without namespaces no kernel ends the nodes with their holder: it is asked to do that."""
    return _backend(directory) == "inproc" and holder.leave()


def clear(directory: Path) -> None:
    """Remove a dead lab's directory, and the processes that a lab without namespaces may have left."""
    if _backend(directory) == "inproc":
        end_lab(directory)
    remove(directory)


def _backend(directory: Path) -> str:
    try:
        plan = json.loads((directory / "plan.json").read_text(encoding="utf-8"))
        return str(plan.get("backend", "netns"))
    except (OSError, ValueError, AttributeError):
        return "netns"
