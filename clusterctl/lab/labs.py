"""The labs that run here and their nodes, seen from outside: find, look at, break, heal, take down."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from clusterctl.errors import LabError
from clusterctl.interrupts import INTERRUPTS
from clusterctl.lab.layout import LabNodePlan, LabPlan, session_environment
from clusterctl.lab.linux import find_program, kill_lab_processes, list_descendants
from clusterctl.lab.state import (
    REMOVED_PREFIX,
    Origin,
    Process,
    hold_lock,
    list_lab_directories,
    list_leftovers,
    read_holder,
    read_origin,
    remove_directory,
    remove_leftovers,
)
from clusterctl.node_texts import translate_node_text

if TYPE_CHECKING:
    from clusterctl.lab.messages import LabReply, LabRequest, PlanRecord

DEFAULT_NAME = "lab"
BREAKS = ("power", "nic-down", "sshd")
_REPLY_SECONDS = 30.0
_REPLY_BYTES = 1 << 18
_RUN_ID_TAG = b"CLUSTERCTL_RUN="


class NodeProcess(NamedTuple):
    """A process in a node: its number there, its command line, and the run in its tag ("": none)."""

    pid: int
    command: str
    run_id: str


@dataclass(frozen=True)
class LabNodeState:
    """A node as it is now: the PID of its init on this machine (0: powered off), of its sshd in the node."""

    name: str
    pid: int
    sshd: int
    nics: dict[str, str]

    @property
    def is_on(self) -> bool:
        """Return whether the node is on."""
        return self.pid != 0


@dataclass(frozen=True)
class Lab:
    """A running lab; a bound one runs as long as its `owner_socket` is open."""

    directory: Path
    plan: LabPlan
    holder: Process
    owner_socket: socket.socket | None = field(default=None, compare=False, repr=False)

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

    def find_node(self, name: str) -> LabNode:
        """The node of that name; LabError if there is none."""
        plan = self.plan.find_node(name)
        if plan is None:
            names = ", ".join(node.name for node in self.plan.nodes)
            raise LabError("CC-LAB-006", name=self.name, machine=name, names=names)
        return LabNode(self, plan)

    def ssh_command(self, node: str, command: Sequence[str] = ()) -> list[str]:
        """The command line of OpenSSH that reaches a node."""
        return [find_program("ssh"), "-F", str(self.ssh_config), self.find_node(node).name, *command]

    def send_request(self, request: LabRequest) -> tuple[LabNodeState, ...]:
        """Send a request to the holder; returns the states of the nodes it concerns."""
        try:
            reply = INTERRUPTS.call(lambda: self._exchange(request))
        except (OSError, ValueError) as error:
            raise LabError("CC-LAB-008", name=self.name, reason=translate_node_text(str(error))) from error
        if "error" in reply:
            raise LabError(
                "CC-LAB-007",
                node=request.get("node", ""),
                action=request["do"],
                reason=translate_node_text(reply["error"]),
            )
        return tuple(LabNodeState(name, **state) for name, state in reply["nodes"].items())

    def _exchange(self, request: LabRequest) -> LabReply:
        directory = os.open(self.directory, os.O_PATH | os.O_CLOEXEC)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
                connection.settimeout(_REPLY_SECONDS)
                connection.connect(f"/proc/self/fd/{directory}/control")  # a socket's path must be short
                connection.send(json.dumps(request).encode())
                reply: LabReply = json.loads(connection.recv(_REPLY_BYTES))
                return reply
        finally:
            os.close(directory)


@dataclass(frozen=True)
class LabNode:
    """A node of a running lab."""

    lab: Lab
    plan: LabNodePlan

    @property
    def name(self) -> str:
        """The node's name, which is its hostname too."""
        return self.plan.name

    def read_state(self) -> LabNodeState:
        """How the node is now."""
        return self.lab.send_request({"do": "look", "node": self.name})[0]

    def run(
        self,
        argv: Sequence[str],
        *,
        input: str | None = None,  # noqa: A002  (named as in subprocess.run)
        timeout: float = 30.0,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the node, past SSH, as the root of its namespaces if it has some; output is captured."""
        state = self.read_state()
        if not state.is_on:
            raise LabError("CC-LAB-009", name=self.name)
        plan, inproc = self.lab.plan, self.lab.plan.backend == "inproc"
        return subprocess.run(
            [*([] if inproc else _nsenter_command(state.pid)), *argv],
            env=session_environment(plan, self.plan) if inproc else {**os.environ, "HOME": plan.account.home},
            cwd=plan.home_directory(self.plan) if inproc else None,
            input=input,
            timeout=timeout,
            check=check,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
        )

    def list_processes(self) -> list[NodeProcess]:
        """The node's processes, without its init and its listening sshd; none if it is powered off."""
        state = self.read_state()
        if not state.is_on:
            return []
        if self.lab.plan.backend == "inproc":
            below = [stat.pid for stat in list_descendants(state.pid)]
            entries_by_pid = [(pid, Path(f"/proc/{pid}")) for pid in below]
        else:
            entries = Path(f"/proc/{state.pid}/root/proc").iterdir()
            entries_by_pid = sorted((int(entry.name), entry) for entry in entries if entry.name.isdigit())
        processes = (_read_process(pid, entry) for pid, entry in entries_by_pid if pid not in (1, state.sshd))
        return [process for process in processes if process is not None]


def _nsenter_command(pid: int) -> list[str]:
    """The arguments before a command that runs in the namespaces of a process."""
    user = [] if os.geteuid() == 0 else ["-U", "--preserve-credentials"]
    return [find_program("nsenter"), "-t", str(pid), *user, "-n", "-m", "-u", "-i", "-p", "--"]


def _read_process(pid: int, entry: Path) -> NodeProcess | None:
    try:
        command = (entry / "cmdline").read_bytes()
        environment = (entry / "environ").read_bytes()
    except OSError:
        return None  # it has ended meanwhile
    run_id = next(
        (word[len(_RUN_ID_TAG) :] for word in environment.split(b"\0") if word.startswith(_RUN_ID_TAG)), b""
    )
    text = command.rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")
    return NodeProcess(pid, text, run_id.decode(errors="replace"))


def list_running(state_dir: Path) -> list[Lab]:
    """The labs that run now, by name; starts no process."""
    return [
        lab
        for directory in list_lab_directories(state_dir)
        if (lab := _load_if_running(directory)) is not None
    ]


def load(state_dir: Path, name: str | None = None) -> Lab:
    """The running lab of that name; without a name the only one, so that no lab is broken by accident."""
    labs = list_running(state_dir)
    matching = [lab for lab in labs if name in (None, lab.name)]
    if len(matching) == 1:
        return matching[0]
    names = ", ".join(lab.name for lab in labs)
    if matching:
        raise LabError("CC-LAB-005", "several", count=len(labs), names=names, name=labs[0].name)
    if name is None:
        raise LabError("CC-LAB-005", "none-running")
    raise LabError("CC-LAB-005", "others-running" if labs else "not-running", name=name, names=names)


def exists(state_dir: Path, name: str) -> bool:
    """Return whether a lab of that name runs, or has left something that `down` removes."""
    leftovers = (path.name.rpartition("-")[0] for path in list_leftovers(state_dir))
    directories = (path.name for path in list_lab_directories(state_dir))
    return name in directories or f"{REMOVED_PREFIX}{name}" in leftovers


def default_lab(labs: Sequence[Lab]) -> Lab | None:
    """The only one of these labs, or the one called `lab`: whose inventory is taken where none is named."""
    matching = labs if len(labs) == 1 else [lab for lab in labs if lab.name == DEFAULT_NAME]
    return matching[0] if matching else None


def status(state_dir: Path) -> list[tuple[Lab, tuple[LabNodeState, ...]]]:
    """Every running lab with its nodes as they are now; remains of dead labs are removed."""
    remove_dead(state_dir)
    return [(lab, lab.send_request({"do": "look"})) for lab in list_running(state_dir)]


def down(state_dir: Path, names: Sequence[str] | None = None) -> list[str]:
    """End the labs of these names (None: all) with all they hold; returns the names of those that ran."""
    stopped = []
    for directory in list_lab_directories(state_dir):
        if names is None or directory.name in names:
            with hold_lock(state_dir):
                holder = read_holder(directory)
                if holder is not None and holder.is_alive():
                    stopped.append(directory.name)
                _stop(directory, holder)
    remove_dead(state_dir)
    return stopped


def remove_dead(state_dir: Path) -> None:
    """Remove the remains of dead labs."""
    for directory in list_lab_directories(state_dir):
        if not _is_running(directory):
            with hold_lock(state_dir):  # one that is being built holds the lock, and runs when we get it
                if not _is_running(directory):
                    remove_lab(directory)
    if list_leftovers(state_dir):
        with hold_lock(state_dir):
            remove_leftovers(state_dir)


def break_node(lab: Lab, node: str, break_kind: str) -> LabNodeState:
    """Cut a node's `is_on`, take its training NIC down (`nic-down`), or kill its listening `sshd`."""
    if break_kind not in BREAKS:
        raise LabError("CC-LAB-003", "break", break_kind=break_kind, names=", ".join(BREAKS))
    if break_kind == "nic-down" and lab.plan.backend == "inproc":
        raise LabError("CC-LAB-010", name=lab.find_node(node).name)
    return lab.send_request({"do": "break", "how": break_kind, "node": lab.find_node(node).name})[0]


def heal_node(lab: Lab, node: str) -> LabNodeState:
    """Undo every break of a node; returns when its sshd answers."""
    return lab.send_request({"do": "heal", "node": lab.find_node(node).name})[0]


def _is_running(directory: Path) -> bool:
    holder = read_holder(directory)
    return holder is not None and holder.is_alive()


def _load_if_running(directory: Path) -> Lab | None:
    """The living lab in a directory; one that another version made cannot be read, only ended."""
    holder = read_holder(directory)
    if holder is None or not holder.is_alive():
        return None
    try:
        plan = LabPlan.from_dict(json.loads((directory / "plan.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Lab(directory, plan, holder)


def _stop(directory: Path, holder: Process | None) -> None:
    if holder is not None and not (_stops_on_request(directory, holder) or holder.kill()):
        raise LabError("CC-LAB-008", "end", name=directory.name, pid=holder.pid)
    remove_lab(directory)


def _stops_on_request(directory: Path, holder: Process) -> bool:
    """Without namespaces no kernel ends the nodes with their holder: it does that on SIGTERM."""
    return _backend(directory) == "inproc" and holder.terminate()


def remove_lab(directory: Path) -> None:
    """Remove a dead lab's directory, and the processes that a lab without namespaces may not have ended."""
    if _backend(directory) == "inproc":
        kill_lab_processes(directory)
    remove_directory(directory)


def _backend(directory: Path) -> str:
    try:
        plan: PlanRecord = json.loads((directory / "plan.json").read_text(encoding="utf-8"))
        return str(plan.get("backend", "netns"))
    except (OSError, ValueError, AttributeError):
        return "netns"
