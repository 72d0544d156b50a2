"""Routes, MTU, names, InfiniBand/RoCE."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator

from clusterctl.plans.checks.framework import (
    CheckContext,
    Hit,
    Split,
    across_nodes,
    as_root,
    check,
    in_inventory,
    on_node,
    split_votes,
    ssh_to,
    ssh_to_first,
)
from clusterctl.plans.checks.nics import SIDE_NETWORKS
from clusterctl.plans.facts.facts import Facts
from clusterctl.plans.facts.records import InfinibandPort, Nic, Route
from clusterctl.plans.launch.network import ACTIVE, active_ports, parse_rate, route_nic, training_nic
from clusterctl.specs.inventory.model import Node


def _find_training_nic(context: CheckContext, node: Node, facts: Facts) -> Nic | None:
    return training_nic(context.networks[node.name], facts)


def _nodes_without_problems(context: CheckContext) -> list[tuple[Node, Facts]]:
    """Give the nodes whose NIC and address are in order: for the others the cause was already told."""
    networks = context.networks
    healthy = [(node, facts) for node, facts in context.known if not networks[node.name].problems]
    return [(node, facts) for node, facts in healthy if not (networks[node.name].ip or "").startswith("127.")]


def _compare_nics(context: CheckContext, value: Callable[[Nic], int | None]) -> Split | None:
    nics = {
        node.name: _find_training_nic(context, node, facts)
        for node, facts in _nodes_without_problems(context)
    }
    by_node = {name: (nic, value(nic)) for name, nic in nics.items() if nic}
    return split_votes({name: str(number) for name, (_, number) in by_node.items() if number})


def _find_route(context: CheckContext, facts: Facts, peer: str) -> Route | None:
    """Give the route to a peer's training address; the probe may have asked for another of its addresses.

    A peer without an address is told of by itself; there is no route to judge.
    """
    ip = context.networks[peer].ip
    if ip is None:
        return None
    probed = facts.routes.get(peer)
    if probed and probed.address == ip:
        return probed
    if not facts.routing or peer != context.nodes[0].name:
        return None
    nic = route_nic(facts, ip)
    return Route(ip, None, nic, None if nic else "the routing table has no way there")


def _each_route(context: CheckContext) -> Iterator[tuple[Node, Facts, str, Route]]:
    positions = {node.name: position for position, node in enumerate(context.nodes)}
    for node, facts in context.known:
        peers = {context.nodes[0].name, *facts.routes} - {node.name}
        for peer in sorted(peers & positions.keys(), key=positions.__getitem__):
            route = _find_route(context, facts, peer)
            if route:
                yield node, facts, peer, route


@check("CC-NET-006", needs=("routes", "routing"))
def no_route(context: CheckContext) -> Iterator[Hit]:
    fixes: dict[str, str] = {}  # by node: one look at its table is enough for all peers
    for node, _, peer, route in _each_route(context):
        if route.problem:
            evidence = f"{route.address} ({peer}): {route.problem}"
            command = ssh_to(node, f"ip route get {route.address}; ip route")
            yield on_node(node, evidence, fixes.setdefault(node.name, command))


@check("CC-NET-007", needs=("routes", "routing", "nics"))
def routed_elsewhere(context: CheckContext) -> Iterator[Hit]:
    healthy = {node.name for node, _ in _nodes_without_problems(context)}
    for node, _, peer, route in _each_route(context):
        network = context.networks[node.name]
        if route.nic and route.nic not in network.nics and node.name in healthy:
            evidence = f"to {route.address} ({peer}) by {route.nic}, training uses {', '.join(network.nics)}"
            fix = in_inventory(node, f"nic: [{route.nic}]  # or give every node an ip: in one network")
            yield on_node(node, evidence, fix)


@check("CC-NET-009", needs=("nics",))
def mtu_differs(context: CheckContext) -> Iterator[Hit]:
    split = _compare_nics(context, lambda nic: nic.mtu)
    if split:
        odd = [
            (node, facts, _find_training_nic(context, node, facts))
            for node, facts in context.known
            if node.name in split.odd
        ]
        fixes = [
            as_root(node, facts, f"ip link set {shlex.quote(nic.name)} mtu {split.majority}")
            for node, facts, nic in odd[:4]
            if nic and nic.name and split.majority
        ]
        yield across_nodes(split.odd, split.evidence, "\n".join(fixes))


@check("CC-NET-010", needs=("hostname",))
def hostname_is_loopback(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        loops = [ip for ip in facts.hostname.addresses if ip.startswith("127.")]
        if loops and not (context.networks[node.name].ip or "").startswith("127."):
            line = f"{context.networks[node.name].ip} {facts.hostname.host}"
            fix = f"for programs started by hand, in /etc/hosts on {node.name}: {line}"
            yield on_node(node, f"{facts.hostname.host} is {loops[0]}", fix)


@check("CC-NET-012", needs=("nics",))
def speed_differs(context: CheckContext) -> Iterator[Hit]:
    split = _compare_nics(context, lambda nic: nic.speed)
    if split:
        nic = training_nic(context.networks[split.odd[0]], context.facts[split.odd[0]])
        command = f"ethtool {shlex.quote(nic.name)}" if nic and nic.name else "ip -s link"
        yield across_nodes(split.odd, split.evidence, ssh_to_first(context.nodes, split.odd[:1], command))


@check("CC-NET-013", needs=("nics",))
def side_network(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        nic = _find_training_nic(context, node, facts)
        if nic and nic.name and not node.nic and not nic.physical and nic.name.startswith(SIDE_NETWORKS):
            yield on_node(
                node, f"{nic.name} ({nic.kind})", in_inventory(node, f"nic: [{nic.name}]  # if it is meant")
            )


@check("CC-NET-014", needs=("nccl_conf",))
def nccl_file_sets_variables(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        for path, lines in facts.nccl_conf.items():
            if lines:
                fix = f"put what all nodes need into `env:` of the job; {ssh_to(node, f'cat {shlex.quote(path)}')}"
                yield on_node(node, f"{path}: {'; '.join(lines[:4])}", fix)


@check("CC-NET-015", needs=("nics",))
def not_the_first_address(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        ip, nic = context.networks[node.name].ip, _find_training_nic(context, node, facts)
        if nic and ip in nic.ipv4[1:]:
            yield on_node(
                node, f"{nic.name} has {', '.join(nic.ipv4)}", in_inventory(node, f"ip: {nic.ipv4[0]}")
            )


LINKED = "LinkUp"
GID_INDEX = "NCCL_IB_GID_INDEX"


def _compare_ports(context: CheckContext, value: Callable[[tuple[InfinibandPort, ...]], str]) -> Split | None:
    """Compare the nodes' active ports, where any node has some."""
    by_node = {node.name: value(active_ports(facts)) for node, facts in context.known}
    return split_votes(by_node) if any(facts.infiniband for _, facts in context.known) else None


def _port_name(port: InfinibandPort) -> str:
    return f"{port.adapter}:{port.port}"


@check("CC-NET-023", needs=("infiniband",))
def port_is_not_active(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        idle = [port for port in facts.infiniband if port.physical == LINKED and port.state != ACTIVE]
        if idle:
            evidence = ", ".join(
                f"{_port_name(port)} is {port.state or 'in an unknown state'}" for port in idle
            )
            yield on_node(node, evidence, as_root(node, facts, "ibstat; sminfo"))


@check("CC-NET-024", needs=("infiniband",))
def port_counts_differ(context: CheckContext) -> Iterator[Hit]:
    split = _compare_ports(context, lambda ports: str(len(ports)))
    if split:
        odd = [(node, facts) for node, facts in context.known if node.name in split.odd]
        states = "; ".join(f"{node.name} has {_render_port_states(facts)}" for node, facts in odd[:4])
        command = ssh_to(odd[0][0], "grep . /sys/class/infiniband/*/ports/*/state")
        yield across_nodes(split.odd, f"{split.evidence} ({states})", command)


def _render_port_states(facts: Facts) -> str:
    return ", ".join(f"{_port_name(port)} {port.state}" for port in facts.infiniband) or "no adapter"


@check("CC-NET-025", needs=("infiniband",))
def links_are_mixed(context: CheckContext) -> Iterator[Hit]:
    kinds = {node.name: {port.link or "" for port in active_ports(facts)} for node, facts in context.known}
    with_some = {name: present for name, present in kinds.items() if present}
    if context.needs_gpus() and len(with_some) > 1 and not set.intersection(*with_some.values()):
        split = split_votes({name: "+".join(sorted(present)) for name, present in with_some.items()})
        if split:
            yield across_nodes(
                split.odd, split.evidence, "job: env: {NCCL_IB_DISABLE: 1}  # plain TCP, as a way out"
            )


@check("CC-NET-026", needs=("infiniband",))
def rates_differ(context: CheckContext) -> Iterator[Hit]:
    slowest = {
        node.name: min(rates)
        for node, facts in context.known
        if (rates := [rate for port in active_ports(facts) if (rate := parse_rate(port))])
    }
    split = split_votes({name: f"{rate:g} Gbit/s" for name, rate in slowest.items()})
    if split:
        fix = f"look at cable and switch port; {ssh_to_first(context.nodes, split.odd, 'ibstatus')}"
        yield across_nodes(split.odd, split.evidence, fix)


@check("CC-NET-027", needs=("infiniband", "gpudirect", "gpus"))
def gpudirect_is_off(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        has_gpudirect = facts.gpudirect.peermem or facts.gpudirect.open_driver
        if (
            facts.gpus.count
            and facts.gpus.vendor == "nvidia"
            and active_ports(facts)
            and has_gpudirect is False
        ):
            yield on_node(
                node, "nvidia_peermem is not loaded", as_root(node, facts, "modprobe nvidia-peermem")
            )


@check("CC-NET-028", needs=("infiniband", "environment"))
def gid_index_is_set(context: CheckContext) -> Iterator[Hit]:
    job_value = (context.job.env if context.job else {}).get(GID_INDEX)
    for node, facts in context.known:
        value = job_value or facts.environment.get(GID_INDEX)
        if value and active_ports(facts):
            source = "the job's env" if job_value else "the node's environment"
            yield on_node(node, f"{GID_INDEX}={value} in {source}", f"remove {GID_INDEX} from {source}")
