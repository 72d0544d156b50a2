"""The spec of one node, made inside the allocation from the template and from what all tasks have reported; pure.

The client could not know which nodes Slurm would give: names, addresses, interfaces and numbers of GPUs are filled in
here, and who is whose hub.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ...protocol.ranks import NodeRank, Slot
from ...protocol.reasons import STOPPED_BY_SLURM
from ...protocol.untrusted import Untrusted

if TYPE_CHECKING:
    from ...protocol.messages.files import (
        AttemptRecord,
        NodePorts,
        OutsideStop,
        RosterEntry,
        SentTemplate,
        Spec,
    )

MAX_NICS, MAX_ADDRESSES = 256, 64
MAX_WORKERS = 4096
MAX_ATTEMPTS = 100_000
SSH_PORT = 22
LOOPBACK = "127.0.0.1"


class SlurmError(Exception):
    """This node cannot take part; the text is why."""


class Member(NamedTuple):
    """What a task reports of its node: where it trains, and with how many workers."""

    slot: int
    node: str
    address: str
    nics: Tuple[str, ...]
    workers: int
    attempt: int = 0  # the last one before this start of the job, as this node knows it

    def as_dict(self) -> Dict[str, Any]:
        """Return the message."""
        return {**self._asdict(), "nics": list(self.nics)}


def parse_member(raw: Untrusted, slot: int) -> Optional[Member]:
    """Read what a task reported; None if it is not whole."""
    node, address, workers = (
        raw.text("node", 128),
        raw.text("address", 15),
        raw.integer("workers", 1, MAX_WORKERS),
    )
    if not node or "/" in node or not _is_ipv4(address) or workers is None:
        return None
    attempt = raw.count("attempt", MAX_ATTEMPTS)
    return Member(slot, node, address, raw.texts("nics", MAX_NICS, 64), workers, attempt)


Addresses = Mapping[str, Sequence[Tuple[str, int]]]  # of each interface: address and length of the prefix


def choose_network(
    own: Addresses, nics: Sequence[str], network: Optional[str], source: Optional[str]
) -> Tuple[str, Tuple[str, ...]]:
    """Choose the training address and the interfaces: the inventory's, else the one that routes to the others.

    `source` is the address from which this node calls another one; None where there is no other.
    """
    if nics:
        missing = [name for name in nics if not own.get(name)]
        if missing:
            raise SlurmError(
                f"no interface {', '.join(missing)} with an IPv4 address; there are {', '.join(own)}"
            )
        return own[nics[0]][0][0], tuple(nics)
    if network:
        inside = IPv4Network(network, strict=False)
        found = [
            (name, ip) for name, entries in own.items() for ip, _ in entries if IPv4Address(ip) in inside
        ]
        if not found:
            raise SlurmError(f"no address in {network}; there are {_list(own)}")
        return found[0][1], tuple(dict.fromkeys(name for name, _ in found))
    if source is None:
        return LOOPBACK, ("lo",)
    owner = next((name for name, entries in own.items() if source in [ip for ip, _ in entries]), None)
    if owner is None:
        raise SlurmError(f"the route to the other nodes begins at {source}, which no interface has")
    return source, (owner,)


def choose_peer_addresses(own: Addresses, peer: Addresses) -> List[str]:
    """Return the addresses at which another node may be met: first those in a network that this one is in too."""
    networks = [
        IPv4Network(f"{ip}/{prefix}", strict=False)
        for entries in own.values()
        for ip, prefix in entries
        if not IPv4Address(ip).is_loopback
    ]
    addresses = [ip for entries in peer.values() for ip, _ in entries if not IPv4Address(ip).is_loopback]
    return sorted(addresses, key=lambda ip: not any(IPv4Address(ip) in network for network in networks))


def parse_addresses(raw: Untrusted) -> Dict[str, List[Tuple[str, int]]]:
    """Read the interfaces and addresses that a task reported."""
    found: Dict[str, List[Tuple[str, int]]] = {}
    for entry in raw.records("addresses", MAX_NICS * MAX_ADDRESSES):
        ip, prefix = entry.text("ip", 15), entry.integer("prefix", 0, 32)
        if _is_ipv4(ip) and prefix is not None:
            found.setdefault(entry.text("nic", 64), []).append((ip, prefix))
    return found


def _is_ipv4(text: str) -> bool:
    try:
        IPv4Address(text)
    except ValueError:
        return False
    return True


def _list(own: Addresses) -> str:
    return ", ".join(f"{ip} ({name})" for name, entries in own.items() for ip, _ in entries)


def count_workers(requested: Any, gpus: Optional[int], cpus: int) -> int:
    """Count the workers of this node: `requested` is a number, gpu or cpu."""
    if isinstance(requested, int):
        return requested
    if requested == "cpu":
        return cpus
    if not gpus:
        raise SlurmError(
            "Slurm gave no GPU to this node; set gpus_per_node in the inventory, or nproc_per_node"
        )
    return gpus


KILL_WAIT = 30.0  # seconds between Slurm's SIGTERM and SIGKILL unless it is set otherwise
RECORD_TIME = 3.0  # of these, seconds for the records of the end


def stop_by_slurm(job: str, grace: float, kill_wait: Optional[float]) -> OutsideStop:
    """Return what a SIGTERM means that no `stop` has announced; our own end must come before Slurm's SIGKILL."""
    limit = max(1.0, (KILL_WAIT if kill_wait is None else kill_wait) - RECORD_TIME)
    reason = f"{STOPPED_BY_SLURM}: job {job} was cancelled, preempted or out of time"
    return {"reason": reason, "grace": min(grace, limit)}


def build_spec(template: Spec, members: Sequence[Member], slot: int, python: str) -> Spec:
    """Make the spec of one node; `members` are those of all nodes by slot, the spares last."""
    spec = template.copy()
    own, master, count = members[slot], members[0], template["nnodes"]
    workers = [member.workers for member in members[:count]]
    if len(members) > count and len({member.workers for member in members}) > 1:
        raise SlurmError(f"a spare must have as many workers as every node, here are {sorted(set(workers))}")
    single = not spec["module"]
    values = {
        "workers": str(own.workers),
        "nics": ",".join(own.nics),
        "nic": own.nics[0],
    }
    if not template.get("min_nodes"):  # else the agent fills it in for each attempt
        values["world_size"] = str(sum(workers))
    spec["node"], spec["node_rank"], spec["python"] = own.node, NodeRank(slot), python
    spec["nproc"], spec["processes"] = own.workers, 1 if single else own.workers
    spec["world_size"] = sum(workers)
    spec["master_addr"], spec["address"], spec["nic"] = master.address, own.address, list(own.nics)
    spec["hub"], spec["gang"] = master.node, len(members) > 1
    spec["argv"] = [fill(word, values) for word in template["argv"]]
    spec["env"] = {key: fill(value, values) for key, value in template["env"].items()}
    if len(members) > 1:
        spec["node_ports"] = [node_ports(member, template["ports"]) for member in members]
    if len(members) > 1 and slot == 0:
        spec["nodes"] = [member.node for member in members]
    if template.get("restart"):
        spec["slot"], spec["slots"], spec["spare"] = Slot(slot), len(members), slot >= count
        spec["roster"] = roster(members, count)
        for entry in spec["roster"] if template.get("min_nodes") else ():
            entry["processes"] = members[entry["slot"]].workers
    if "mpi" in template:
        spec["mpi"] = {"slots": workers}
    if "ray" in template:
        names = {member.address: member.node for member in members[:count]}
        spec["ray"] = {**template["ray"], "names": names}
    return spec


def continue_spec(spec: Spec, attempt: int, earlier: List[AttemptRecord]) -> Spec:
    """Return the spec of an attempt that follows others, which Slurm has ended: these are not counted as restarts."""
    if not attempt:
        return spec
    spec = {**spec, "attempt": attempt + 1, "earlier": earlier}
    if spec.get("restart"):
        policy = spec["restart"]
        spec["restart"] = {**policy, "max": policy["max"] + attempt}
    return spec


def fill(value: SentTemplate, values: Mapping[str, str]) -> SentTemplate:
    """Put values into the holes that are known now; others are left to the agent."""
    if isinstance(value, str):
        return value
    parts = [values.get(part["fill"], part) if isinstance(part, dict) else part for part in value]
    texts = [part for part in parts if isinstance(part, str)]
    return "".join(texts) if len(texts) == len(parts) else parts


def node_ports(member: Member, ports: Optional[Sequence[int]]) -> NodePorts:
    """Return ports at which a node answers that is not gone."""
    return {"slot": Slot(member.slot), "address": member.address, "ports": [SSH_PORT, *list(ports or [])[:1]]}


def roster(members: Sequence[Member], count: int) -> List[RosterEntry]:
    """Return which slot has which rank in the first attempt."""
    return [
        {
            "slot": Slot(member.slot),
            "node": member.node,
            "node_rank": NodeRank(member.slot) if member.slot < count else None,
            "address": member.address,
        }
        for member in members
    ]
