"""The proof on the wire: which nodes call which, and what they told of the ways between them.

Each calls its neighbours (`plans/facts/facts.py`); all call node 0's second door, which listens where torchrun's would.

Further NICs that were chosen are rails of their own: nodes that have one in the same network call each other there too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Network
from typing import Any

from clusterctl.plans.facts.facts import Facts, plan_calls
from clusterctl.plans.facts.untrusted import read_value
from clusterctl.plans.launch.network import NodeNetwork, training_nic
from clusterctl.specs.inventory.model import Node

SIZE = 256 << 10  # bytes each way
MESH, MASTER = "mesh", "master"
MAIN = ""  # the rail of the training addresses; others are called by their network


@dataclass(frozen=True)
class Listening:
    """Where a node listens for the proof: ports by rail, and node 0's second one."""

    addresses: Mapping[str, str]
    ports: Mapping[str, int] = field(default_factory=dict)
    master_port: int | None = None


@dataclass(frozen=True)
class Way:
    """One call, as the caller tells it: times in seconds, round trips in microseconds, `got` and `acked` in bytes.

    `step` is how far it came: connect, greet (the other proves who it is), carry (SIZE bytes both ways), done.
    """

    caller: str = ""
    peer: str = ""
    door: str = MESH
    rail: str = MAIN
    step: str = "connect"
    error: str | None = None
    stranger: bool = False
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
        return self.error is None and self.step == "done"


@dataclass(frozen=True)
class Wire:
    """What a proof showed; `absent` tells why a node did not take part to the end."""

    nodes: tuple[str, ...]
    ways: tuple[Way, ...]
    absent: Mapping[str, str] = field(default_factory=dict)
    master_port: int | None = None
    seconds: float = 0.0

    def through(self, door: str, rail: str = MAIN) -> tuple[Way, ...]:
        """Give the calls on one rail at one kind of door, between nodes that took part to the end."""
        both = (way for way in self.ways if not self.absent.keys() & set(way.ends))
        return tuple(way for way in both if (way.door, way.rail) == (door, rail))

    def members(self, rail: str) -> tuple[str, ...]:
        """Name the nodes that call or are called on a rail, in the order of the inventory."""
        there = {name for way in self.ways if way.rail == rail for name in way.ends}
        return tuple(name for name in self.nodes if name in there)

    @property
    def rails(self) -> tuple[str, ...]:
        """The rails on which there were calls, the training addresses first."""
        return tuple(sorted({way.rail for way in self.ways}))


def on_rail(rail: str) -> str:
    """Say on which rail something was seen; the training addresses go without saying."""
    return f" in {rail}" if rail else ""


def choose_takers(
    nodes: Sequence[Node], facts: Mapping[str, Facts], networks: Mapping[str, NodeNetwork]
) -> tuple[Node, ...]:
    """Choose who takes part: whose address is known, his own alone, and not in the way of finding more.

    What is wrong with the others has a finding of its own already. Loopback addresses reach no other machine.
    """
    known = [node for node in nodes if node.name in facts and not networks[node.name].problems]
    ips = Counter(networks[node.name].ip for node in nodes)
    alone = [node for node in known if networks[node.name].ip and ips[networks[node.name].ip] == 1]
    machines = {facts[node.name].machine.boot_id for node in alone}
    fit = [node for node in alone if len(machines) == 1 or not str(networks[node.name].ip).startswith("127.")]
    return tuple(fit) if len(fit) > 1 else ()


def plan_rails(
    nodes: Sequence[Node], facts: Mapping[str, Facts], networks: Mapping[str, NodeNetwork]
) -> dict[str, dict[str, str]]:
    """Give each node's addresses by rail: the training address, and the first one of each further NIC that was chosen.

    What two nodes have (a bridge of containers, say) leads nowhere and is left out.
    """
    found = {node.name: _rails(facts[node.name], networks[node.name]) for node in nodes}
    count = Counter(ip for rails in found.values() for ip in rails.values())
    return {
        name: {rail: ip for rail, ip in rails.items() if rail == MAIN or count[ip] == 1}
        for name, rails in found.items()
    }


def _rails(facts: Facts, network: NodeNetwork) -> dict[str, str]:
    rails = {MAIN: network.ip or ""}
    main = training_nic(network, facts)
    for nic in facts.nics:
        first = next((one for one in nic.addresses if one.family == 4 and one.ip), None)
        further = nic.name in network.nics and nic != main and nic.kind != "loopback" and nic.running
        if further and first is not None:
            rails.setdefault(_network_of(first.ip or "", first.prefix), first.ip or "")
    return rails


def _network_of(ip: str, prefix: int | None) -> str:
    try:
        return str(IPv4Network((ip, 32 if prefix is None else prefix), strict=False))
    except ValueError:
        return ip


def plan_orders(listening: Mapping[str, Listening]) -> dict[str, list[dict[str, Any]]]:
    """Say what is sent to each node: whom it is to call, on which rail; all call the second door that one node has."""
    orders: dict[str, list[dict[str, Any]]] = {name: [] for name in listening}
    for rail in sorted({rail for place in listening.values() for rail in place.ports}):
        there = [name for name, place in listening.items() if rail in place.ports]
        for name, peers in plan_calls(there).items():
            orders[name] += [_peer(peer, listening[peer], rail) for peer in peers]
    for host, place in listening.items():
        for name in orders if place.master_port else ():
            if name != host:
                orders[name].append({**_peer(host, place, MAIN), "port": place.master_port, "door": MASTER})
    return orders


def _peer(name: str, place: Listening, rail: str) -> dict[str, Any]:
    address, port = place.addresses[rail], place.ports[rail]
    return {"name": name, "address": address, "port": port, "door": MESH, "rail": rail}


def read_listening(raw: object, problem: str, addresses: Mapping[str, str]) -> Listening | str:
    """Read where a node listens, or in words why it does not."""
    place: Listening | None = read_value(Listening, {**_table(raw), "addresses": addresses}, "listening", [])
    if place is not None and MAIN in place.ports and place.ports.keys() <= addresses.keys():
        return place
    return f"it cannot listen on {addresses[MAIN]}: {problem or 'it did not say why'}"


def read_ways(raw: object, caller: str, called: Sequence[Mapping[str, Any]]) -> tuple[Way, ...]:
    """Read what a node tells of its calls; only of those that it was to make."""
    ways = read_value(tuple[Way, ...], raw, "ways", []) or ()
    told = {(way.peer, way.door, way.rail): replace(way, caller=caller) for way in ways}
    wanted = ((peer["name"], peer["door"], peer["rail"]) for peer in called)
    return tuple(told[one] for one in wanted if one in told)


def _table(raw: object) -> Mapping[str, Any]:
    return raw if isinstance(raw, Mapping) else {}
