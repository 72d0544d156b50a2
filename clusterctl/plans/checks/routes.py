"""Routes, MTU, names, InfiniBand/RoCE."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator

from clusterctl.node_texts import translate_node_text
from clusterctl.plans.checks.framework import (
    CheckContext,
    Hit,
    Split,
    across_nodes,
    as_root,
    check,
    join_items,
    join_parts,
    on_node,
    run_on_each,
    run_on_nodes,
    split_votes,
)
from clusterctl.plans.checks.nics import SIDE_NETWORKS
from clusterctl.plans.launch.network import ACTIVE, active_ports, parse_rate, route_nic, training_nic
from clusterctl.protocol.messages.facts import Facts, InfinibandPort, Nic, Route
from clusterctl.specs.inventory.model import Node
from clusterctl.translation import tr

LINKED = "LinkUp"
GID_INDEX = "NCCL_IB_GID_INDEX"


def _find_training_nic(context: CheckContext, node: Node, facts: Facts) -> Nic | None:
    return training_nic(context.networks[node.name], facts)


def _nodes_without_problems(context: CheckContext) -> list[tuple[Node, Facts]]:
    """Return the nodes whose NIC and address are in order: for the others the cause is reported already."""
    networks = context.networks
    healthy = [(node, facts) for node, facts in context.known if not networks[node.name].problems]
    return [(node, facts) for node, facts in healthy if not (networks[node.name].ip or "").startswith("127.")]


def _compare_nics(context: CheckContext, value: Callable[[Nic], int | None]) -> Split | None:
    nics = {
        node.name: _find_training_nic(context, node, facts)
        for node, facts in _nodes_without_problems(context)
    }
    return split_votes({name: str((nic and value(nic)) or "") for name, nic in nics.items()})


def _find_route(context: CheckContext, facts: Facts, peer: str) -> Route | None:
    """Return the route to a peer's training address; the probe may have asked for another of its addresses.

    A peer without an address has a finding of its own; there is no route to check.
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
    return Route(address=ip, nic=nic, problem=None if nic else tr("not in the routing table"))


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
    addresses: dict[str, object] = {}  # by node: one look at its table is enough for all peers
    for node, _, peer, route in _each_route(context):
        if route.problem:
            problem = translate_node_text(route.problem)
            evidence = tr("{address} ({peer}): {problem}", address=route.address, peer=peer, problem=problem)
            yield on_node(node, evidence, address=addresses.setdefault(node.name, route.address))


@check("CC-NET-007", needs=("routes", "routing", "nics"))
def routed_elsewhere(context: CheckContext) -> Iterator[Hit]:
    healthy = {node.name for node, _ in _nodes_without_problems(context)}
    for node, _, peer, route in _each_route(context):
        network = context.networks[node.name]
        if route.nic and route.nic not in network.nics and node.name in healthy:
            evidence = tr(
                "to {address} ({peer}) through {nic}, training uses {chosen}",
                address=route.address,
                peer=peer,
                nic=route.nic,
                chosen=", ".join(network.nics),
            )
            yield on_node(node, evidence, nic=route.nic)


@check("CC-NET-009", needs=("nics",))
def mtu_differs(context: CheckContext) -> Iterator[Hit]:
    split = _compare_nics(context, lambda nic: nic.mtu)
    if split:
        odd = [
            (node, facts, _find_training_nic(context, node, facts))
            for node, facts in context.known
            if node.name in split.odd
        ]
        lines = {
            node.name: as_root(facts, f"ip link set {shlex.quote(nic.name)} mtu {split.majority}")
            for node, facts, nic in odd[:4]
            if nic and nic.name and split.majority
        }
        commands = run_on_each(context, lines)
        yield across_nodes(split.odd, split.evidence, "" if lines else None, commands=commands)


@check("CC-NET-010", needs=("hostname",))
def hostname_is_loopback(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        loops = [ip for ip in facts.hostname.addresses if ip.startswith("127.")]
        if loops and not (context.networks[node.name].ip or "").startswith("127."):
            yield on_node(
                node,
                tr("{host} is {ip}", host=facts.hostname.host, ip=loops[0]),
                ip=context.networks[node.name].ip,
                host=facts.hostname.host,
            )


@check("CC-NET-012", needs=("nics",))
def speed_differs(context: CheckContext) -> Iterator[Hit]:
    split = _compare_nics(context, lambda nic: nic.speed)
    if split:
        nic = training_nic(context.networks[split.odd[0]], context.facts[split.odd[0]])
        command = f"ethtool {shlex.quote(nic.name)}" if nic and nic.name else "ip -s link"
        yield across_nodes(
            split.odd, split.evidence, command=run_on_nodes(context.program, split.odd[:1], command)
        )


@check("CC-NET-013", needs=("nics",))
def side_network(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        nic = _find_training_nic(context, node, facts)
        if nic and nic.name and not node.nic and not nic.physical and nic.name.startswith(SIDE_NETWORKS):
            yield on_node(node, f"{nic.name} ({nic.kind})", nic=nic.name)


@check("CC-NET-014", needs=("nccl_conf",))
def nccl_file_sets_variables(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        for path, lines in facts.nccl_conf.items():
            if lines:
                command = run_on_nodes(context.program, [node.name], f"cat {shlex.quote(path)}")
                yield on_node(node, f"{path}: {'; '.join(lines[:4])}", command=command)


@check("CC-NET-015", needs=("nics",))
def not_the_first_address(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        ip, nic = context.networks[node.name].ip, _find_training_nic(context, node, facts)
        if nic and ip in nic.ipv4[1:]:
            evidence = tr("{nic} has {addresses}", nic=nic.name, addresses=join_items(nic.ipv4))
            yield on_node(node, evidence, ip=nic.ipv4[0])


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
            evidence = join_items(
                tr("{port} is {state}", port=_port_name(port), state=port.state)
                if port.state
                else tr("{port} is in an unknown state", port=_port_name(port))
                for port in idle
            )
            yield on_node(node, evidence)


@check("CC-NET-024", needs=("infiniband",))
def port_counts_differ(context: CheckContext) -> Iterator[Hit]:
    split = _compare_ports(context, lambda ports: str(len(ports)))
    if split:
        odd = [(node, facts) for node, facts in context.known if node.name in split.odd]
        states = join_parts(
            tr("{node} has {ports}", node=node.name, ports=_render_port_states(facts))
            for node, facts in odd[:4]
        )
        yield across_nodes(split.odd, tr("{error} ({evidence})", error=split.evidence, evidence=states))


def _render_port_states(facts: Facts) -> str:
    states = join_items(f"{_port_name(port)} {port.state}" for port in facts.infiniband)
    return states or tr("no adapter")


@check("CC-NET-025", needs=("infiniband",))
def links_are_mixed(context: CheckContext) -> Iterator[Hit]:
    kinds = {node.name: {port.link or "" for port in active_ports(facts)} for node, facts in context.known}
    with_some = {name: present for name, present in kinds.items() if present}
    if context.needs_gpus() and len(with_some) > 1 and not set.intersection(*with_some.values()):
        split = split_votes({name: "+".join(sorted(present)) for name, present in with_some.items()})
        if split:
            yield across_nodes(split.odd, split.evidence)


@check("CC-NET-026", needs=("infiniband",))
def rates_differ(context: CheckContext) -> Iterator[Hit]:
    slowest = {
        node.name: min(rates)
        for node, facts in context.known
        if (rates := [rate for port in active_ports(facts) if (rate := parse_rate(port))])
    }
    split = split_votes({name: f"{rate:g} Gbit/s" for name, rate in slowest.items()})
    if split:
        yield across_nodes(
            split.odd, split.evidence, command=run_on_nodes(context.program, split.odd[:1], "ibstatus")
        )


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
            yield on_node(node, tr("nvidia_peermem is not loaded"))


@check("CC-NET-028", needs=("infiniband", "environment"))
def gid_index_is_set(context: CheckContext) -> Iterator[Hit]:
    job_value = (context.job.env if context.job else {}).get(GID_INDEX)
    for node, facts in context.known:
        value = job_value or facts.environment.get(GID_INDEX)
        if value and active_ports(facts):
            source = tr("the job's env") if job_value else tr("the node's environment")
            evidence = tr("{setting} in {source}", setting=f"{GID_INDEX}={value}", source=source)
            yield on_node(node, evidence, variable=GID_INDEX, source=source)
