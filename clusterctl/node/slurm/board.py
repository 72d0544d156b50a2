"""The messages of all tasks of a job, as one of them reads and writes them; the first say where each node trains."""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional, Tuple

from ...protocol.untrusted import Untrusted
from ..probe.network import addresses
from .job_files import Exchange
from .spec import (
    Addresses,
    Member,
    SlurmError,
    choose_network,
    choose_peer_addresses,
    count_workers,
    parse_addresses,
    parse_member,
)

if TYPE_CHECKING:
    from ...protocol.messages.verbs import SubmittedTemplate

ARRIVAL_LIMIT = 600.0  # seconds in which all tasks have begun: a prolog may take minutes on some nodes
SHORTEST_PAUSE, LONGEST_PAUSE = 0.02, 0.5  # seconds between looks at the folder
FAILED = "failed"
LONGEST_REASON = 1000


class Task(NamedTuple):
    """Which task this is."""

    slot: int
    total: int
    node: str
    job: str
    key: str  # names this start of the job
    restarts: int = 0  # how often Slurm has requeued the job

    @classmethod
    def of(cls, variables: Any) -> Task:
        """Read the variables of the step; those of the batch script have other values under the same names."""
        restarts = variables.get("SLURM_RESTART_COUNT") or "0"
        return cls(
            int(variables["SLURM_PROCID"]),
            int(variables["SLURM_STEP_NUM_TASKS"]),
            variables["SLURMD_NODENAME"],
            variables["SLURM_JOB_ID"],
            f"{variables['SLURM_JOB_ID']}.{restarts}",
            int(restarts),
        )


class OtherFailedError(SlurmError):
    """Another task reported that its node cannot start."""


class Board:
    """The messages of all tasks, as this one reads and writes them."""

    def __init__(self, exchange: Exchange, task: Task) -> None:
        self.exchange, self.task = exchange, task
        self._pause = SHORTEST_PAUSE

    def check(self, names: List[str]) -> bool:
        """Whether all these messages are there; OtherFailedError if another task has failed."""
        present = self.exchange.names()
        if FAILED in present:
            failure = self.exchange.read(FAILED)
            raise OtherFailedError(f"{failure.text('node', 128)}: {failure.text('text', LONGEST_REASON)}")
        return present.issuperset(names)

    def wait(self, names: List[str], limit: float) -> None:
        """Wait for messages; SlurmError names what did not come."""
        deadline, pause = time.monotonic() + limit, SHORTEST_PAUSE
        while not self.check(names):
            if time.monotonic() > deadline:
                missing = sorted(set(names) - self.exchange.names())
                raise SlurmError(f"no {', '.join(missing[:5])} within {limit:g} s")
            time.sleep(pause)
            pause = min(LONGEST_PAUSE, pause * 1.3)

    def all_of(self, kind: str) -> List[str]:
        """Name a message of every task."""
        return [f"{kind}.{slot}" for slot in range(self.task.total)]

    def make_member(self, template: SubmittedTemplate) -> Member:
        """Return the others this node's addresses, and choose where it trains."""
        own = own_addresses()
        entries = [
            {"nic": nic, "ip": ip, "prefix": size} for nic, listed in own.items() for ip, size in listed
        ]
        self.exchange.post(f"hello.{self.task.slot}", {"node": self.task.node, "addresses": entries})
        self.exchange.touch(f"alive.{self.task.slot}")
        self.wait(self.all_of("hello"), ARRIVAL_LIMIT)
        nics, network = template["nic"], template["network"]
        source = None
        if self.task.total > 1 and not nics and not network:
            peer = self.exchange.read(f"hello.{0 if self.task.slot else 1}")
            source = find_source(own, peer)
        address, chosen = choose_network(own, nics, network, source)
        workers = count_workers(template["workers"], count_gpus(), len(os.sched_getaffinity(0)))
        return Member(self.task.slot, self.task.node, address, chosen, workers)

    def collect_members(self, own: Member) -> List[Member]:
        """Write where this node trains, and return the members of all nodes."""
        self.exchange.post(f"member.{own.slot}", own.as_dict())
        names = self.all_of("member")
        self.wait(names, ARRIVAL_LIMIT)
        members = [parse_member(self.exchange.read(name), slot) for slot, name in enumerate(names)]
        whole = [member for member in members if member is not None]
        if len(whole) < len(members) or len({member.node for member in whole}) < len(whole):
            raise SlurmError("the nodes' messages are damaged")
        return whole


def own_addresses() -> Dict[str, List[Tuple[str, int]]]:
    """List this node's IPv4 addresses by interface."""
    found = {
        name: [(entry.ip or "", entry.prefix or 0) for entry in entries if entry.family == 4]
        for name, entries in addresses().items()
    }
    return {name: entries for name, entries in found.items() if entries}


def find_source(own: Addresses, peer: Untrusted) -> str:
    """Ask the kernel from which address this node calls another one."""
    candidates = choose_peer_addresses(own, parse_addresses(peer))
    with suppress(OSError):
        resolved = socket.getaddrinfo(peer.text("node", 128), None, socket.AF_INET, socket.SOCK_DGRAM)
        names = [str(entry[4][0]) for entry in resolved]
        # Debian calls the machine itself 127.0.1.1
        candidates = [ip for ip in names if not ip.startswith("127.")] + candidates
    for address in candidates:
        with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))
            return str(probe.getsockname()[0])
    raise SlurmError(f"no route to {peer.text('node', 128)}")


def count_gpus() -> Optional[int]:
    """Count the GPUs that Slurm gave to this node."""
    number = os.environ.get("SLURM_GPUS_ON_NODE", "")
    if number.isdecimal():
        return int(number)
    for name in ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        visible = os.environ.get(name)
        if visible is not None:
            return len([word for word in visible.split(",") if word.strip() and word != "NoDevFiles"])
    return len([name for name in os.listdir("/dev") if name[:6] == "nvidia" and name[6:].isdecimal()]) or None
