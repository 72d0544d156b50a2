"""The test of the network: which nodes connect to which, and what they report of the connections.

Each connects to its neighbours (`plans/facts/facts.py`), and all to node 0's second port, where torchrun's would be.

Further NICs that were chosen are rails of their own: nodes that have one in the same network are tested there too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network
from typing import TYPE_CHECKING

from clusterctl.plans.facts.facts import plan_neighbours
from clusterctl.plans.facts.untrusted import read_clean, read_clean_many
from clusterctl.plans.launch.network import NodeNetwork, training_nic
from clusterctl.protocol.messages.checks import MAIN_RAIL, MASTER, MESH, MeshPath, MeshPorts
from clusterctl.protocol.messages.facts import Facts
from clusterctl.specs.inventory.model import Node
from clusterctl.translation import tr

if TYPE_CHECKING:
    from clusterctl.protocol.messages.network import MeshPeer

TRANSFER_SIZE = 256 << 10  # bytes each way


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
    """Read what a node tells of its calls; only of those that it was to make."""
    paths = read_clean_many(MeshPath, raw)
    by_target = {(path.peer, path.listener, path.rail): path.replace(caller=caller) for path in paths}
    target_keys = ((peer["name"], peer["listener"], peer["rail"]) for peer in targets)
    return tuple(by_target[key] for key in target_keys if key in by_target)
