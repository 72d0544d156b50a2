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


@check(
    "CC-NET-006",
    "error",
    "no route to another node",
    why="The kernel has no way to send a packet to that node's training address.",
    needs=("routes", "routing"),
)
def no_route(context: CheckContext) -> Iterator[Hit]:
    """The routing table of the node has no entry that covers the other node's training address.

    Either the address is in a network that this node is not part of (a private network of another cluster),
    or a route or default gateway is missing.
    """
    fixes: dict[str, str] = {}  # by node: one look at its table is enough for all peers
    for node, _, peer, route in _each_route(context):
        if route.problem:
            evidence = f"{route.address} ({peer}): {route.problem}"
            command = ssh_to(node, f"ip route get {route.address}; ip route")
            yield on_node(node, evidence, fixes.setdefault(node.name, command))


@check(
    "CC-NET-007",
    "error",
    "packets leave by another NIC",
    why=(
        "The kernel routes to the other nodes by a NIC that is not the chosen one: slow at best, "
        "often a hang."
    ),
    needs=("routes", "routing", "nics"),
)
def routed_elsewhere(context: CheckContext) -> Iterator[Hit]:
    """The NIC for training and the kernel's route to the other nodes' training addresses disagree.

    NCCL and Gloo listen on the chosen NIC, while connections leave by the routed one. Use addresses of one
    network on all nodes (`network:` or `ip:`), or choose the NIC that the route takes.
    """
    healthy = {node.name for node, _ in _nodes_without_problems(context)}
    for node, _, peer, route in _each_route(context):
        network = context.networks[node.name]
        if route.nic and route.nic not in network.nics and node.name in healthy:
            evidence = f"to {route.address} ({peer}) by {route.nic}, training uses {', '.join(network.nics)}"
            fix = in_inventory(node, f"nic: [{route.nic}]  # or give every node an ip: in one network")
            yield on_node(node, evidence, fix)


@check(
    "CC-NET-009",
    "warning",
    "the MTUs differ",
    why="Small messages pass and large ones hang when one side sends frames that the other drops.",
    needs=("nics",),
)
def mtu_differs(context: CheckContext) -> Iterator[Hit]:
    """The training NICs have different MTUs.

    TCP usually finds the smaller one; where ICMP is blocked, or with RoCE, transfers hang once messages get
    large.
    """
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


@check(
    "CC-NET-010",
    "info",
    "the hostname means loopback",
    why=(
        "Gloo would listen on loopback by itself; clusterctl names the NIC to it, so its launches are "
        "not affected."
    ),
    needs=("hostname",),
)
def hostname_is_loopback(context: CheckContext) -> Iterator[Hit]:
    """The node's own hostname resolves to 127.x.x.x, as Debian's installer writes it into /etc/hosts.

    Programs that ask for "my address" by hostname then get loopback: Gloo without GLOO_SOCKET_IFNAME,
    torchrun's c10d rendezvous without --local-addr. A launch by clusterctl sets both.
    """
    for node, facts in context.known:
        loops = [ip for ip in facts.hostname.addresses if ip.startswith("127.")]
        if loops and not (context.networks[node.name].ip or "").startswith("127."):
            line = f"{context.networks[node.name].ip} {facts.hostname.host}"
            fix = f"for programs started by hand, in /etc/hosts on {node.name}: {line}"
            yield on_node(node, f"{facts.hostname.host} is {loops[0]}", fix)


@check(
    "CC-NET-012",
    "warning",
    "the NIC speeds differ",
    why="The slowest link sets the pace of every all-reduce.",
    needs=("nics",),
)
def speed_differs(context: CheckContext) -> Iterator[Hit]:
    """The training NICs report different link speeds (Mbit/s).

    A bad cable or port makes a link fall back to a lower speed.
    """
    split = _compare_nics(context, lambda nic: nic.speed)
    if split:
        nic = training_nic(context.networks[split.odd[0]], context.facts[split.odd[0]])
        command = f"ethtool {shlex.quote(nic.name)}" if nic and nic.name else "ip -s link"
        yield across_nodes(split.odd, split.evidence, ssh_to_first(context.nodes, split.odd[:1], command))


@check(
    "CC-NET-013",
    "warning",
    "training would use a side network",
    why="The NIC was chosen because it owns the address, but it looks like one of a container engine or VPN.",
    needs=("nics",),
)
def side_network(context: CheckContext) -> Iterator[Hit]:
    """Nobody named a NIC, and the one that owns the training address is a bridge or tunnel.

    If that is meant, name it by `nic:`; otherwise give the address of the real network as `ip:`.
    """
    for node, facts in context.known:
        nic = _find_training_nic(context, node, facts)
        if nic and nic.name and not node.nic and not nic.physical and nic.name.startswith(SIDE_NETWORKS):
            yield on_node(
                node, f"{nic.name} ({nic.kind})", in_inventory(node, f"nic: [{nic.name}]  # if it is meant")
            )


@check(
    "CC-NET-014",
    "warning",
    "a settings file steers NCCL",
    why="NCCL reads it unseen, on this node only.",
    needs=("nccl_conf",),
)
def nccl_file_sets_variables(context: CheckContext) -> Iterator[Hit]:
    """/etc/nccl.conf, ~/.nccl.conf or the file in NCCL_CONF_FILE sets NCCL variables.

    Environment variables beat these files. What a file sets beyond the launch's variables makes this node
    differ.
    """
    for node, facts in context.known:
        for path, lines in facts.nccl_conf.items():
            if lines:
                fix = f"put what all nodes need into `env:` of the job; {ssh_to(node, f'cat {shlex.quote(path)}')}"
                yield on_node(node, f"{path}: {'; '.join(lines[:4])}", fix)


@check(
    "CC-NET-015",
    "warning",
    "the training address is not the NIC's first",
    why="Gloo and NCCL are told the NIC and take its first address, not the one that the others were given.",
    needs=("nics",),
)
def not_the_first_address(context: CheckContext) -> Iterator[Hit]:
    """The NIC has several IPv4 addresses and the training address is not the first of them.

    It works as long as all nodes can reach each other by the first addresses too.
    """
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


@check(
    "CC-NET-023",
    "warning",
    "an InfiniBand port has a link but is not active",
    why="NCCL does not use it, and falls back to fewer ports or to plain TCP.",
    needs=("infiniband",),
)
def port_is_not_active(context: CheckContext) -> Iterator[Hit]:
    """The cable is in and the link is up, but the port stays in INIT or ARMED.

    No subnet manager answers on this InfiniBand fabric, or it does not know the port. Ports without a cable are not
    reported, only counted.
    """
    for node, facts in context.known:
        idle = [port for port in facts.infiniband if port.physical == LINKED and port.state != ACTIVE]
        if idle:
            evidence = ", ".join(
                f"{_port_name(port)} is {port.state or 'in an unknown state'}" for port in idle
            )
            yield on_node(node, evidence, as_root(node, facts, "ibstat; sminfo"))


@check(
    "CC-NET-024",
    "warning",
    "the nodes have different numbers of active InfiniBand ports",
    why="NCCL may refuse (`Detected mixed local Net device counts across ranks`) or use the smaller number.",
    needs=("infiniband",),
)
def port_counts_differ(context: CheckContext) -> Iterator[Hit]:
    """Some nodes have more active InfiniBand or RoCE ports: a cable is out, an adapter or its driver is gone."""
    split = _compare_ports(context, lambda ports: str(len(ports)))
    if split:
        odd = [(node, facts) for node, facts in context.known if node.name in split.odd]
        states = "; ".join(f"{node.name} has {_render_port_states(facts)}" for node, facts in odd[:4])
        command = ssh_to(odd[0][0], "grep . /sys/class/infiniband/*/ports/*/state")
        yield across_nodes(split.odd, f"{split.evidence} ({states})", command)


def _render_port_states(facts: Facts) -> str:
    return ", ".join(f"{_port_name(port)} {port.state}" for port in facts.infiniband) or "no adapter"


@check(
    "CC-NET-025",
    "error",
    "InfiniBand and RoCE are mixed",
    why="InfiniBand and Ethernet ports cannot talk to each other: `Attempted to connect incompatible devices`.",
    needs=("infiniband",),
)
def links_are_mixed(context: CheckContext) -> Iterator[Hit]:
    """The active ports of some nodes are InfiniBand and those of others Ethernet (RoCE), with no kind that all have.

    Nodes that have both are fine as long as NCCL_IB_HCA names ports of one kind; `check` shows which ones there are.
    """
    kinds = {node.name: {port.link or "" for port in active_ports(facts)} for node, facts in context.known}
    with_some = {name: present for name, present in kinds.items() if present}
    if context.needs_gpus() and len(with_some) > 1 and not set.intersection(*with_some.values()):
        split = split_votes({name: "+".join(sorted(present)) for name, present in with_some.items()})
        if split:
            yield across_nodes(
                split.odd, split.evidence, "job: env: {NCCL_IB_DISABLE: 1}  # plain TCP, as a way out"
            )


@check(
    "CC-NET-026",
    "warning",
    "the rates of InfiniBand ports differ",
    why="The slowest port sets the pace of every all-reduce.",
    needs=("infiniband",),
)
def rates_differ(context: CheckContext) -> Iterator[Hit]:
    """The slowest active port of some nodes has a lower rate than that of the others: a cable or a switch port made it
    fall back (`ibstatus` shows the same number).
    """
    slowest = {
        node.name: min(rates)
        for node, facts in context.known
        if (rates := [rate for port in active_ports(facts) if (rate := parse_rate(port))])
    }
    split = split_votes({name: f"{rate:g} Gbit/s" for name, rate in slowest.items()})
    if split:
        fix = f"look at cable and switch port; {ssh_to_first(context.nodes, split.odd, 'ibstatus')}"
        yield across_nodes(split.odd, split.evidence, fix)


@check(
    "CC-NET-027",
    "info",
    "network adapters do not reach GPU memory",
    why="Every byte is copied through the node's memory first: slower, without any error.",
    needs=("infiniband", "gpudirect", "gpus"),
)
def gpudirect_is_off(context: CheckContext) -> Iterator[Hit]:
    """The node has NVIDIA GPUs and active InfiniBand or RoCE ports, and GPUDirect RDMA has no way: the module
    nvidia_peermem is not loaded, and the kernel driver is not the open one, which needs no module (DMA-BUF).
    """
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


@check(
    "CC-NET-028",
    "info",
    "NCCL_IB_GID_INDEX is set",
    why="NCCL 2.21 and later find the right address themselves; a number that fits one node may not fit another.",
    needs=("infiniband", "environment"),
)
def gid_index_is_set(context: CheckContext) -> Iterator[Hit]:
    """A fixed GID index chooses an address of the RoCE port by its place in a table that differs between nodes and
    changes with addresses. Wrong ones end in `ibv_modify_qp failed with error Invalid argument`.
    """
    job_value = (context.job.env if context.job else {}).get(GID_INDEX)
    for node, facts in context.known:
        value = job_value or facts.environment.get(GID_INDEX)
        if value and active_ports(facts):
            source = "the job's env" if job_value else "the node's environment"
            yield on_node(node, f"{GID_INDEX}={value} in {source}", f"remove {GID_INDEX} from {source}")
