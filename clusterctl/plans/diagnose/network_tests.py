"""The two tests of `check`: which nodes connect to which, and the deep check's job; what both report, with distrust.

In the test of the network each node connects to its neighbours (`plans/facts/facts.py`), and all to node 0's second
port, where torchrun's would be. Further NICs that were chosen are rails: nodes that have one in the same network are
tested there too. The deep check is a job, whose leader reports its rounds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from typing import TYPE_CHECKING

from clusterctl.plans.facts.facts import plan_neighbours
from clusterctl.plans.facts.untrusted import read_clean, read_clean_many
from clusterctl.plans.launch.launchers import has_simulated_gpus
from clusterctl.plans.launch.network import NodeNetwork, training_nic
from clusterctl.protocol.messages.checks import (
    MAIN_RAIL,
    MASTER,
    MESH,
    GroupResult,
    MeshPath,
    MeshPorts,
    RoundEntry,
    SearchReport,
)
from clusterctl.protocol.messages.facts import Facts
from clusterctl.protocol.untrusted import MalformedError, Untrusted, parse_object
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.job.model import Job, Sync
from clusterctl.translation import tr

if TYPE_CHECKING:
    from clusterctl.protocol.messages.network import MeshPeer

TRANSFER_SIZE = 256 << 10  # bytes each way
# of the deep check
LINE_PREFIX = "clusterctl-deep "  # how the leader's lines begin
NAME = "deep-check"
PACKAGE_NAME = "deepcheck"  # the package that is sent
MODULES = (
    "node/__init__",
    "node/diagnose/__init__",
    "node/diagnose/collective",
    "protocol/__init__",
    "protocol/messages/__init__",
    "protocol/messages/checks",
    "protocol/messages/record",
    "protocol/ranks",
    "protocol/untrusted",
)
LIMITS = {"nccl": 60, "gloo": 20}  # seconds for the round of all; NCCL may take long to connect
BUDGET = 60  # seconds after which no further round begins
START_LIMIT = 120.0


def render_rail(rail: str) -> str:
    """Return on which rail something was seen; the training addresses go without saying."""
    return tr(" in {network}", network=rail) if rail else ""


def choose_mesh_members(
    nodes: Sequence[Node], facts: Mapping[str, Facts], networks: Mapping[str, NodeNetwork]
) -> tuple[Node, ...]:
    """Choose who takes part: whose address is known, his own alone, and not in the way of finding more.

    What is wrong with the others has a finding of its own already. Loopback addresses reach no other machine.
    """
    known = [node for node in nodes if node.name in facts and not networks[node.name].problems]
    ips = Counter(networks[node.name].ip for node in nodes)
    unique = [node for node in known if networks[node.name].ip and ips[networks[node.name].ip] == 1]
    machines = {facts[node.name].machine.boot_id for node in unique}
    reachable = [
        node for node in unique if len(machines) == 1 or not str(networks[node.name].ip).startswith("127.")
    ]
    return tuple(reachable) if len(reachable) > 1 else ()


def plan_rails(
    nodes: Sequence[Node], facts: Mapping[str, Facts], networks: Mapping[str, NodeNetwork]
) -> dict[str, dict[str, str]]:
    """Return addresses by node and rail: the training address, and the first one of each further NIC that was chosen.

    What two nodes have (a bridge of containers, say) leads nowhere and is left out.
    """
    rails_by_node = {node.name: _list_rails(facts[node.name], networks[node.name]) for node in nodes}
    count = Counter(ip for rails in rails_by_node.values() for ip in rails.values())
    return {
        name: {rail: ip for rail, ip in rails.items() if rail == MAIN_RAIL or count[ip] == 1}
        for name, rails in rails_by_node.items()
    }


def _list_rails(facts: Facts, network: NodeNetwork) -> dict[str, str]:
    rails = {MAIN_RAIL: network.ip or ""}
    main = training_nic(network, facts)
    for nic in facts.nics:
        ipv4 = next((address for address in nic.addresses if address.family == 4 and address.ip), None)
        is_further = nic.name in network.nics and nic != main and nic.kind != "loopback" and nic.running
        if is_further and ipv4 is not None:
            rails.setdefault(_network_of(ipv4.ip or "", ipv4.prefix), ipv4.ip or "")
    return rails


def _network_of(ip: str, prefix: int | None) -> str:
    try:
        return str(IPv4Network((ip, 32 if prefix is None else prefix), strict=False))
    except ValueError:
        return ip


def plan_mesh_connections(listeners: Mapping[str, MeshPorts]) -> dict[str, list[MeshPeer]]:
    """List for each node which peers it calls on which rail; all call the second listener of the node that has one."""
    connections: dict[str, list[MeshPeer]] = {name: [] for name in listeners}
    for rail in sorted({rail for listener in listeners.values() for rail in listener.ports}):
        names = [name for name, listener in listeners.items() if rail in listener.ports]
        for name, peers in plan_neighbours(names).items():
            connections[name] += [_connection(peer, listeners[peer], rail) for peer in peers]
    for host, listener in listeners.items():
        if not listener.master_port:
            continue
        for name, peers_of_node in connections.items():
            if name != host:
                peer = _connection(host, listener, MAIN_RAIL)
                peer["port"], peer["listener"] = listener.master_port, MASTER
                peers_of_node.append(peer)
    return connections


def _connection(name: str, listener: MeshPorts, rail: str) -> MeshPeer:
    address, port = listener.addresses[rail], listener.ports[rail]
    return {"name": name, "address": address, "port": port, "listener": MESH, "rail": rail}


def parse_listener(raw: object, problem: str, addresses: Mapping[str, str]) -> MeshPorts | str:
    """Read where a node listens, or the reason why it does not."""
    listener = read_clean(MeshPorts, raw)
    if listener is not None and MAIN_RAIL in listener.ports and listener.ports.keys() <= addresses.keys():
        return listener.replace(addresses=addresses)
    reason = problem or tr("no reason reported")
    return tr("it cannot listen on {address}: {reason}", address=addresses[MAIN_RAIL], reason=reason)


def parse_paths(raw: object, caller: str, targets: Sequence[MeshPeer]) -> tuple[MeshPath, ...]:
    """Read what a node reports of its calls; only of those that it was to make."""
    paths = read_clean_many(MeshPath, raw)
    by_target = {(path.peer, path.listener, path.rail): path.replace(caller=caller) for path in paths}
    target_keys = ((peer["name"], peer["listener"], peer["rail"]) for peer in targets)
    return tuple(by_target[key] for key in target_keys if key in by_target)


@dataclass(frozen=True)
class DeepCheckResult:
    """What a deep check has shown; `trouble` is why it did not come to its end."""

    backend: str
    names: tuple[str, ...]
    ranks: int
    rounds: tuple[RoundEntry, ...] = ()
    diagnosis: SearchReport | None = None
    trouble: str = ""
    fix: str = ""
    at: tuple[str, ...] = field(default=())  # the nodes that the trouble names

    @property
    def full_group(self) -> GroupResult | None:
        """The group of all nodes, if its round came to an end."""
        return next(
            (group for round_ in self.rounds for group in round_.groups if round_.round == "all"), None
        )

    def name(self, number: int) -> str:
        """Return a node's name."""
        return self.names[number]

    def describe_error(self, group: GroupResult | None) -> str:
        """Return what went wrong in a group, and on which rank."""
        if group is None or not group.error:
            return tr("no answer")
        if group.rank is None:
            return group.error
        if group.at is None or not 0 <= group.at < len(self.names):
            return tr("rank {rank}: {error}", rank=group.rank, error=group.error)
        node = self.name(group.at)
        return tr("rank {rank} on {node}: {error}", rank=group.rank, node=node, error=group.error)

    def groups_with(
        self, *nodes: int, kinds: Sequence[str] = ("alone", "pairs", "again")
    ) -> list[GroupResult]:
        """Return the smaller groups in which these nodes were, the latest first."""
        members = set(nodes)
        groups = [group for round_ in self.rounds if round_.round in kinds for group in round_.groups]
        return [group for group in reversed(groups) if members <= set(group.nodes)]

    @property
    def usual(self) -> tuple[float, float]:
        """Bandwidth and latency that a node usually reaches with its best partner."""
        from statistics import median  # noqa: PLC0415 - 9 ms, which most verbs need not wait for

        ok_pairs = [group for group in self._pair_tries if group.ok]
        numbers = {number for group in ok_pairs for number in group.nodes}
        own_pairs = [[group for group in ok_pairs if number in group.nodes] for number in numbers]
        bandwidths = [max(group.bandwidth for group in pairs) for pairs in own_pairs]
        latencies = [min(group.latency for group in pairs) for pairs in own_pairs]
        return (median(bandwidths), median(latencies)) if own_pairs else (0.0, 0.0)

    @property
    def pairs(self) -> list[GroupResult]:
        """Return each pair of nodes that was tried once: of two tries that went well the better one, else the later."""
        best_tries: dict[frozenset[int], GroupResult] = {}
        for group in self._pair_tries:
            pair = frozenset(group.nodes)
            previous = best_tries.get(pair)
            keeps_previous = (
                previous is not None and previous.ok and group.ok and previous.bandwidth >= group.bandwidth
            )
            best_tries[pair] = previous if previous is not None and keeps_previous else group
        return [group for pair, group in best_tries.items() if len(pair) == 2]

    @property
    def _pair_tries(self) -> list[GroupResult]:
        """Every try of a pair; one that looked slow was tried again."""
        return [
            group for round_ in self.rounds if round_.round in {"pairs", "again"} for group in round_.groups
        ]


def choose_backend(job: Job | None, facts: Sequence[Facts]) -> str:
    """Take the job's backend; without a job NCCL where every node has GPUs and a torch for them."""
    if job is not None:
        return job.backend
    return "nccl" if all(map(_can_compute_on_gpus, facts)) else "gloo"


def _can_compute_on_gpus(facts: Facts) -> bool:
    return bool(facts.gpus.count and not has_simulated_gpus(facts) and (facts.torch.cuda or facts.torch.hip))


def plan_deep_job(job: Job | None, backend: str, folder: str) -> Job:
    """Make the job of a deep check: with the interpreter, environment and GPUs of the job that it is done for."""
    limit = LIMITS.get(backend, LIMITS["nccl"])
    nproc_per_node = (job.nproc_per_node if job else "gpu") if backend == "nccl" else 1
    return Job(
        name=NAME,
        file=f"{folder}/job.yaml",
        module=f"{PACKAGE_NAME}.node.diagnose.collective",
        args=(backend, str(limit), str(BUDGET)),
        nproc_per_node=nproc_per_node,
        backend=job.backend if job else ("nccl" if backend == "nccl" else "gloo"),
        gpus=job.gpus if job else (),
        env=job.env if job else {},
        python=job.python if job else None,
        activate=job.activate if job else None,
        sync=Sync(source="."),
        grace=2.0,
        time_limit=START_LIMIT + limit + BUDGET,
    )


def parse_deep_result(lines: Sequence[str], deep: DeepCheckResult) -> DeepCheckResult:
    """Add what the leader's lines report to an empty result; what is no such line, or not understood, is left out."""
    rounds, diagnosis = list(deep.rounds), deep.diagnosis
    for line in lines:
        entry = _parse_line(line)
        if entry.text("round"):
            round_ = read_clean(RoundEntry, entry)
            rounds += [round_] if round_ is not None and _is_valid_round(round_, len(deep.names)) else []
        elif "found" in entry:
            parsed = read_clean(SearchReport, entry.record("found")) if entry.has_record("found") else None
            diagnosis = (
                parsed if parsed is not None and _is_valid_diagnosis(parsed, len(deep.names)) else None
            )
    return DeepCheckResult(
        deep.backend, deep.names, deep.ranks, tuple(rounds), diagnosis, deep.trouble, deep.fix, deep.at
    )


def _parse_line(line: str) -> Untrusted:
    try:
        return parse_object(
            line.removeprefix(LINE_PREFIX).encode() if line.startswith(LINE_PREFIX) else b"{}"
        )
    except MalformedError:
        return Untrusted({})


def _is_valid_round(round_: RoundEntry, count: int) -> bool:
    """Return whether the numbers can be calculated with, and the nodes are ours."""
    rows = [row for group in round_.groups for row in group.rows]
    numbers = {number for group in round_.groups for number in group.nodes}
    return all(len(row) == 2 and row[1] > 0 for row in rows) and numbers <= set(range(count))


def _is_valid_diagnosis(diagnosis: SearchReport, count: int) -> bool:
    links = (*diagnosis.links, *diagnosis.slow_links)
    numbers = {*diagnosis.nodes, *diagnosis.slow_nodes, *(number for link in links for number in link)}
    return all(len(link) == 2 for link in links) and numbers <= set(range(count))
