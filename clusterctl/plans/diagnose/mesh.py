"""The test of the network: which nodes connect to which, and what they report of the connections.

Each connects to its neighbours (`plans/facts/facts.py`), and all to node 0's second port, where torchrun's would be.

Further NICs that were chosen are rails of their own: nodes that have one in the same network are tested there too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Network
from typing import TYPE_CHECKING, Final

from clusterctl.plans.facts.facts import plan_neighbours
from clusterctl.plans.facts.untrusted import read_value
from clusterctl.plans.launch.network import NodeNetwork, training_nic
from clusterctl.protocol.messages.facts import Facts
from clusterctl.specs.inventory.model import Node
from clusterctl.translation import tr

if TYPE_CHECKING:
    from clusterctl.protocol.messages.network import MeshPeer, MeshStep

TRANSFER_SIZE = 256 << 10  # bytes each way
MESH: Final = "mesh"
MASTER: Final = "master"
MAIN_RAIL = ""  # the rail of the training addresses; others are called by their network
DONE: MeshStep = "done"


@dataclass(frozen=True)
class MeshListener:
    """Where a node listens for the proof: ports by rail, and node 0's second one."""

    addresses: Mapping[str, str] = field(default_factory=dict)
    ports: Mapping[str, int] = field(default_factory=dict)
    master_port: int | None = None


@dataclass(frozen=True)
class MeshPath:
    """One call, as the caller tells it: times in seconds, round trips in microseconds, `got` and `acked` in bytes.

    `step` is how far it came: connect, greet (the other proves who it is), transfer (SIZE bytes both ways), done.
    """

    caller: str = ""
    peer: str = ""
    listener: str = MESH
    rail: str = MAIN_RAIL
    step: str = "connect"
    error: str | None = None
    unproven: bool = False
    connect: float | None = None
    seconds: float | None = None
    got: int = 0
    acked: int | None = None
    lost: int | None = None
    mss: int | None = None
    rtt: int | None = None
    least_rtt: int | None = None
    own: str | None = None
    seen: str | None = None

    @property
    def ends(self) -> tuple[str, str]:
        """Caller and called."""
        return self.caller, self.peer

    @property
    def open(self) -> bool:
        """Whether all went well."""
        return self.error is None and self.step == DONE


@dataclass(frozen=True)
class MeshResult:
    """What a proof showed; `absent` tells why a node did not take part to the end.

    `ports_taken` is node 0 where it found all of the inventory's `ports` in use.
    """

    nodes: tuple[str, ...]
    paths: tuple[MeshPath, ...]
    absent: Mapping[str, str] = field(default_factory=dict)
    master_port: int | None = None
    seconds: float = 0.0
    ports_taken: str = ""

    def select_paths(self, listener: str, rail: str = MAIN_RAIL) -> tuple[MeshPath, ...]:
        """Give the calls on one rail at one kind of listener, between nodes that took part to the end."""
        between_present = (path for path in self.paths if not self.absent.keys() & set(path.ends))
        return tuple(path for path in between_present if (path.listener, path.rail) == (listener, rail))

    def members(self, rail: str) -> tuple[str, ...]:
        """Name the nodes that call or are called on a rail, in the order of the inventory."""
        present = {name for path in self.paths if path.rail == rail for name in path.ends}
        return tuple(name for name in self.nodes if name in present)

    @property
    def rails(self) -> tuple[str, ...]:
        """The rails on which there were calls, the training addresses first."""
        return tuple(sorted({path.rail for path in self.paths}))


def render_rail(rail: str) -> str:
    """Say on which rail something was seen; the training addresses go without saying."""
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
    """Give each node's addresses by rail: the training address, and the first one of each further NIC that was chosen.

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


def plan_mesh_connections(listeners: Mapping[str, MeshListener]) -> dict[str, list[MeshPeer]]:
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


def _connection(name: str, listener: MeshListener, rail: str) -> MeshPeer:
    address, port = listener.addresses[rail], listener.ports[rail]
    return {"name": name, "address": address, "port": port, "listener": MESH, "rail": rail}


def parse_listener(raw: object, problem: str, addresses: Mapping[str, str]) -> MeshListener | str:
    """Read where a node listens, or the reason why it does not."""
    listener: MeshListener | None = read_value(MeshListener, raw, "listening", [])
    if listener is not None and MAIN_RAIL in listener.ports and listener.ports.keys() <= addresses.keys():
        return replace(listener, addresses=addresses)
    reason = problem or tr("no reason reported")
    return tr("it cannot listen on {address}: {reason}", address=addresses[MAIN_RAIL], reason=reason)


def parse_paths(raw: object, caller: str, targets: Sequence[MeshPeer]) -> tuple[MeshPath, ...]:
    """Read what a node tells of its calls; only of those that it was to make."""
    paths = read_value(tuple[MeshPath, ...], raw, "paths", []) or ()
    by_target = {(path.peer, path.listener, path.rail): replace(path, caller=caller) for path in paths}
    target_keys = ((peer["name"], peer["listener"], peer["rail"]) for peer in targets)
    return tuple(by_target[key] for key in target_keys if key in by_target)
