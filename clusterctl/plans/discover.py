"""From what machines say of themselves to an inventory: the network that all have and that is the fastest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network

from clusterctl.plans.checks.nics import SIDE_NETWORKS, speed_text
from clusterctl.plans.facts.facts import Facts
from clusterctl.plans.facts.records import Address, Nic
from clusterctl.plans.launch.network import active_ports, plan_hcas, resolve_network
from clusterctl.specs.addresses import parse_nic
from clusterctl.specs.codes import BadValueError
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.inventory.render import Discovered
from clusterctl.specs.text import counted


@dataclass(frozen=True)
class Spot:
    """An address of a NIC that could carry training."""

    nic: Nic
    name: str
    ip: str
    network: IPv4Network


@dataclass(frozen=True)
class Discovery:
    """What to write: by node, and as advice for all."""

    nodes: Mapping[str, Discovered]
    advice: tuple[str, ...]


def plan_discovery(
    nodes: Sequence[Node], facts: Mapping[str, Facts], failures: Mapping[str, str]
) -> Discovery:
    """Choose each machine's NIC and address; `failures` tells why a machine did not answer."""
    spots = {node.name: list(_spots(facts[node.name])) for node in nodes if node.name in facts}
    networks = rank_networks(spots, {name: facts[name].machine.ssh_address for name in spots})
    network = networks[0] if networks else None
    found = {
        node.name: _describe(node, facts[node.name], spots[node.name], network)
        for node in nodes
        if node.name in facts
    }
    lost = {
        node.name: Discovered(failure=failures.get(node.name, "no answer"))
        for node in nodes
        if node.name not in facts
    }
    return Discovery({**found, **lost}, tuple(_advise(networks, spots)))


def _spots(facts: Facts) -> Iterator[Spot]:
    """List where training could go: NICs that are on and linked, without loopback and the bridges of containers."""
    for nic in facts.nics:
        usable = nic.running and nic.kind != "loopback" and _may_be_named(nic.name or "")
        for address in nic.addresses if usable else ():
            network = _network_of(address)
            if network is not None and not (nic.name or "").startswith(SIDE_NETWORKS):
                yield Spot(nic, nic.name or "", address.ip or "", network)


def _may_be_named(name: str) -> bool:
    try:
        return parse_nic(name) == name
    except BadValueError:
        return False


def _network_of(address: Address) -> IPv4Network | None:
    try:
        return (
            IPv4Network((address.ip or "", address.prefix or 0), strict=False)
            if address.family == 4
            else None
        )
    except ValueError:
        return None


def rank_networks(
    spots: Mapping[str, Sequence[Spot]], arrived: Mapping[str, str | None]
) -> list[IPv4Network]:
    """List the networks that all machines are in: the fastest first, among equals physical ones, then SSH's own.

    None if there is none, or only one machine.
    """
    every = [{spot.network for spot in found} for found in spots.values()]
    if len(every) < 2:
        return []

    def rank(network: IPv4Network) -> tuple[int, bool, bool, str]:
        inside = [(name, spot) for name, found in spots.items() for spot in found if spot.network == network]
        by_ssh = any(arrived[name] == spot.ip for name, spot in inside)
        return _pace(network, spots), all(spot.nic.physical for _, spot in inside), by_ssh, str(network)

    return sorted(set.intersection(*every), key=rank, reverse=True)


def _pace(network: IPv4Network, spots: Mapping[str, Sequence[Spot]]) -> int:
    """Give the speed of the slowest NIC in a network, in Mbit/s; 0 where one does not tell."""
    return min(spot.nic.speed or 0 for found in spots.values() for spot in found if spot.network == network)


def _describe(node: Node, facts: Facts, spots: Sequence[Spot], network: IPv4Network | None) -> Discovered:
    chosen = next((spot for spot in spots if spot.network == network), None) or _default(node, facts, spots)
    ip = chosen.ip if chosen is not None and chosen.ip != node.host else None
    gpus = facts.gpus.count or None
    return Discovered((chosen.name,) if chosen else (), ip, gpus, tuple(_notes(facts, spots, chosen)))


def _default(node: Node, facts: Facts, spots: Sequence[Spot]) -> Spot | None:
    """Without a network that all are in, take what a bare `host:` would mean."""
    ip = resolve_network(node, facts).ip
    return next((spot for spot in spots if spot.ip == ip), None)


def _notes(facts: Facts, spots: Sequence[Spot], chosen: Spot | None) -> Iterator[str]:
    yield f"{chosen.name}: {_about(chosen)}" if chosen else "no NIC with an IPv4 address and a link was found"
    others = [
        f"{spot.name} {spot.ip}/{spot.network.prefixlen} ({_about(spot)})" for spot in spots if spot != chosen
    ]
    if others:
        yield f"there is also: {'; '.join(others[:6])}"
    ports = active_ports(facts)
    if ports:
        hcas = plan_hcas(facts, (chosen.name,) if chosen else ())
        told = ", ".join(
            f"{port.adapter}:{port.port} {port.link} {port.rate or ''}".strip() for port in ports[:8]
        )
        yield f"InfiniBand and RoCE: {told}; NCCL_IB_HCA={hcas} names them" if hcas else f"RoCE: {told}"
    models = sorted({gpu.name or "GPU" for gpu in facts.gpus.devices})
    torch = f"torch {facts.torch.version}" if facts.torch.version else "no torch"
    yield f"{', '.join(models) or 'no GPU'}; {facts.interpreter.executable or 'Python'} has {torch}"


def _about(spot: Spot) -> str:
    virtual = "" if spot.nic.physical else f"{spot.nic.kind or 'virtual'}, "
    return f"{virtual}{speed_text(spot.nic.speed)}, MTU {spot.nic.mtu or 'unknown'}"


def _advise(networks: Sequence[IPv4Network], spots: Mapping[str, Sequence[Spot]]) -> Iterator[str]:
    yield "The order of the nodes is the node_rank: the first one is the master."
    if networks:
        paces = [f"{network} ({speed_text(_pace(network, spots) or None)})" for network in networks]
        yield f"All {counted(len(spots), 'node')} have an address in {paces[0]}: training goes there."
        yield f"`network: {networks[0]}` in place of the nic: and ip: lines would mean the same."
        if paces[1:]:
            yield f"They are all in {', '.join(paces[1:5])} too."
    elif len(spots) > 1:
        yield "No network that all nodes are in was found: each has the NIC that its host: leads to."
    if spots:
        yield "`clusterctl check` proves that the nodes reach each other this way."
