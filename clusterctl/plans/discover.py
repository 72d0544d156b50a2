"""From the facts of machines to an inventory: the fastest network that all of them have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network

from clusterctl.errors import ClusterctlError, InvalidValueError
from clusterctl.plans.checks.framework import join_items, join_parts
from clusterctl.plans.checks.nics import SIDE_NETWORKS, render_speed
from clusterctl.plans.facts.untrusted import clean_text
from clusterctl.plans.launch.network import active_ports, plan_hcas, resolve_network
from clusterctl.protocol.messages.facts import Address, Facts, FoundPython, Nic
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.inventory.render import DiscoveredNode
from clusterctl.specs.values import parse_nic
from clusterctl.translation import tr, trn


@dataclass(frozen=True)
class CandidateAddress:
    """An address of a NIC that could carry training."""

    nic: Nic
    name: str
    ip: str
    network: IPv4Network


@dataclass(frozen=True)
class DiscoveredCluster:
    """What to write: by node, and as advice for all."""

    nodes: Mapping[str, DiscoveredNode]
    advice: tuple[str, ...]


def plan_discovery(
    nodes: Sequence[Node],
    facts: Mapping[str, Facts],
    failures: Mapping[str, ClusterctlError],
    pythons: Mapping[str, FoundPython] | None = None,
) -> DiscoveredCluster:
    """Choose each machine's NIC and address; `failures` is why a machine was not read, `pythons` what it is to use."""
    candidates = {node.name: list(_list_candidates(facts[node.name])) for node in nodes if node.name in facts}
    networks = rank_networks(candidates, {name: facts[name].machine.ssh_address for name in candidates})
    network = networks[0] if networks else None
    answered = {
        node.name: _describe_node(
            node, facts[node.name], candidates[node.name], network, (pythons or {}).get(node.name)
        )
        for node in nodes
        if node.name in facts
    }
    unanswered = {
        node.name: _describe_failure(failures[node.name]) for node in nodes if node.name in failures
    }
    return DiscoveredCluster({**answered, **unanswered}, tuple(_render_advice(networks, candidates)))


# Of a machine with any other error an SSH server answered.
NOT_REACHED = ("CC-SSH-001", "CC-SSH-002", "CC-SSH-003", "CC-SSH-004", "CC-SSH-005", "CC-SSH-013")


def _describe_failure(error: ClusterctlError) -> DiscoveredNode:
    text = clean_text(f"{error.code} {error.message}")
    return DiscoveredNode(failure=text, is_reached=error.code not in NOT_REACHED)


def _list_candidates(facts: Facts) -> Iterator[CandidateAddress]:
    """List where training could go: NICs that are on and linked, without loopback and the bridges of containers."""
    for nic in facts.nics:
        usable = nic.running and nic.kind != "loopback" and _is_valid_nic_name(nic.name or "")
        for address in nic.addresses if usable else ():
            network = _network_of(address)
            if network is not None and not (nic.name or "").startswith(SIDE_NETWORKS):
                yield CandidateAddress(nic, nic.name or "", address.ip or "", network)


def _is_valid_nic_name(name: str) -> bool:
    try:
        return parse_nic(name) == name
    except InvalidValueError:
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
    candidates: Mapping[str, Sequence[CandidateAddress]], ssh_addresses: Mapping[str, str | None]
) -> list[IPv4Network]:
    """List the networks that all machines are in: the fastest first, among equals physical ones, then SSH's own.

    None if there is none, or only one machine.
    """
    networks_by_node = [{candidate.network for candidate in addresses} for addresses in candidates.values()]
    if len(networks_by_node) < 2:
        return []

    def rank(network: IPv4Network) -> tuple[int, bool, bool, str]:
        members = [
            (name, candidate)
            for name, addresses in candidates.items()
            for candidate in addresses
            if candidate.network == network
        ]
        by_ssh = any(ssh_addresses[name] == candidate.ip for name, candidate in members)
        return (
            _slowest_speed(network, candidates),
            all(candidate.nic.physical for _, candidate in members),
            by_ssh,
            str(network),
        )

    return sorted(set.intersection(*networks_by_node), key=rank, reverse=True)


def _slowest_speed(network: IPv4Network, candidates: Mapping[str, Sequence[CandidateAddress]]) -> int:
    """Return the speed of the slowest NIC in a network, in Mbit/s; 0 where one does not report it."""
    return min(
        candidate.nic.speed or 0
        for addresses in candidates.values()
        for candidate in addresses
        if candidate.network == network
    )


def _describe_node(
    node: Node,
    facts: Facts,
    candidates: Sequence[CandidateAddress],
    network: IPv4Network | None,
    python: FoundPython | None,
) -> DiscoveredNode:
    chosen = next(
        (candidate for candidate in candidates if candidate.network == network), None
    ) or _find_default_address(node, facts, candidates)
    ip = chosen.ip if chosen is not None and chosen.ip != node.host else None
    gpus = facts.gpus.count or None
    return DiscoveredNode(
        (chosen.name,) if chosen else (), ip, gpus, tuple(_notes(facts, candidates, chosen, python))
    )


def _find_default_address(
    node: Node, facts: Facts, candidates: Sequence[CandidateAddress]
) -> CandidateAddress | None:
    """Without a network that all are in, take what a bare `host:` would mean."""
    ip = resolve_network(node, facts).ip
    return next((candidate for candidate in candidates if candidate.ip == ip), None)


def _notes(
    facts: Facts,
    candidates: Sequence[CandidateAddress],
    chosen: CandidateAddress | None,
    python: FoundPython | None,
) -> Iterator[str]:
    if chosen:
        yield tr("{subject}: {text}", subject=chosen.name, text=_describe_candidate(chosen))
    else:
        yield tr("no NIC with an IPv4 address and a link was found")
    others = [
        f"{candidate.name} {candidate.ip}/{candidate.network.prefixlen} ({_describe_candidate(candidate)})"
        for candidate in candidates
        if candidate != chosen
    ]
    if others:
        yield tr("there is also: {nics}", nics=join_parts(others[:6]))
    ports = active_ports(facts)
    if ports:
        hcas = plan_hcas(facts, (chosen.name,) if chosen else ())
        port_texts = join_items(
            f"{port.adapter}:{port.port} {port.link} {port.rate or ''}".strip() for port in ports[:8]
        )
        if hcas:
            yield tr(
                "InfiniBand and RoCE: {ports}; NCCL_IB_HCA={hcas} selects them", ports=port_texts, hcas=hcas
            )
        else:
            yield tr("{subject}: {text}", subject="RoCE", text=port_texts)
    models = sorted({gpu.name or "GPU" for gpu in facts.gpus.devices})
    used = python or FoundPython(path=facts.interpreter.executable or "Python", torch=facts.torch.version)
    yield tr(
        "{gpus}; {python} has {torch}",
        gpus=join_items(models) or tr("no GPU"),
        python=used.path,
        torch=f"torch {used.torch}" if used.torch else tr("no torch"),
    )


def _describe_candidate(candidate: CandidateAddress) -> str:
    virtual = [] if candidate.nic.physical else [candidate.nic.kind or tr("virtual")]
    mtu = f"MTU {candidate.nic.mtu}" if candidate.nic.mtu else tr("MTU unknown")
    return join_items([*virtual, render_speed(candidate.nic.speed), mtu])


def _render_advice(
    networks: Sequence[IPv4Network], candidates: Mapping[str, Sequence[CandidateAddress]]
) -> Iterator[str]:
    yield tr("The order of the nodes is the node_rank: the first one is the master.")
    if networks:
        network_texts = [
            f"{network} ({render_speed(_slowest_speed(network, candidates) or None)})" for network in networks
        ]
        yield trn(
            "{n} node has an address in {network}: training uses it.",
            "All {n} nodes have an address in {network}: training uses it.",
            len(candidates),
            network=network_texts[0],
        )
        yield tr(
            "`network: {network}` instead of the nic: and ip: lines means the same.", network=networks[0]
        )
        if network_texts[1:]:
            yield tr("All of them are also in {networks}.", networks=join_items(network_texts[1:5]))
    elif len(candidates) > 1:
        yield tr("The nodes have no network in common: each uses the NIC of the route to its host:.")
    if candidates:
        yield tr("`clusterctl check` tests that the nodes can reach each other this way.")
