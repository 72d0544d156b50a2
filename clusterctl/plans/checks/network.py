"""The NICs and the training address that the inventory names, held against the node's own."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from ipaddress import ip_address

from clusterctl.plans.checks.check import Hit, Situation, across, check, on
from clusterctl.plans.checks.nics import candidates, give_address, propose_ip, propose_nics, told
from clusterctl.plans.checks.remedy import as_root, in_inventory
from clusterctl.plans.facts import Facts
from clusterctl.plans.network import owner_of
from clusterctl.specs.inventory import Node
from clusterctl.specs.nodeset import fold_names


def _with_problem(seen: Situation, kind: str) -> Iterator[tuple[Node, Facts, str]]:
    for node, facts in seen.known:
        for problem in seen.networks[node.name].problems:
            if problem.kind == kind:
                yield node, facts, problem.text


def _nodes_with(seen: Situation, kind: str) -> Iterator[tuple[Node, Facts, list[str]]]:
    """Give each node with all its problems of a kind at once."""
    for node, facts in seen.known:
        texts = [one.text for one in seen.networks[node.name].problems if one.kind == kind]
        if texts:
            yield node, facts, texts


@check(
    "CC-NET-001",
    "error",
    "a NIC does not exist",
    why="Gloo and NCCL are told this name and fail when no NIC bears it.",
    needs=("nics",),
)
def nic_is_missing(seen: Situation) -> Iterator[Hit]:
    """The inventory's `nic:` names an interface that this node does not have.

    Names differ from machine to machine and may change when a card moves to another slot. Gloo says "Unable
    to find address for", NCCL says "no socket interface found".
    """
    for node, facts, names in _nodes_with(seen, "nic-missing"):
        line = propose_nics(node, facts, names)
        evidence = f"no {', '.join(names)}; there is {told(candidates(facts, names[0]))}"
        yield on(node, evidence, in_inventory(node, line) if line else "")


@check(
    "CC-NET-002",
    "error",
    "a NIC is down",
    why="No packet leaves through it.",
    needs=("nics",),
)
def nic_is_down(seen: Situation) -> Iterator[Hit]:
    """The interface is switched off, or has no carrier: no cable, no link at the switch, an empty bond."""
    for node, facts, name in _with_problem(seen, "nic-down"):
        nic = next(nic for nic in facts.nics if nic.name == name)
        if nic.up:
            yield on(node, f"{name} is on but has no link", "look at the cable and the switch port")
        else:
            yield on(
                node, f"{name} is switched off", as_root(node, facts, f"ip link set {shlex.quote(name)} up")
            )


@check(
    "CC-NET-003",
    "error",
    "the training address is on another NIC",
    why="The other nodes connect to the address, but NCCL and Gloo would listen on the NIC.",
    needs=("nics",),
)
def address_on_other_nic(seen: Situation) -> Iterator[Hit]:
    """`ip` and `nic` of this node contradict each other: the address belongs to a NIC that is not listed."""
    for node, facts, ip in _with_problem(seen, "address-on-other-nic"):
        owner, chosen = owner_of(facts, ip), ", ".join(seen.networks[node.name].nics)
        yield on(node, f"{ip} is on {owner}, training uses {chosen}", in_inventory(node, f"nic: [{owner}]"))


@check(
    "CC-NET-004",
    "error",
    "no NIC has the training address",
    why="The node cannot listen on an address that it does not have, so the others cannot reach it.",
    needs=("nics",),
)
def address_on_no_nic(seen: Situation) -> Iterator[Hit]:
    """The address by which the others should reach this node is not one of its own.

    Often `host:` is a public address that a gateway translates. Then give the node's own address as `ip:`.
    """
    for node, facts, ip in _with_problem(seen, "address-on-no-nic"):
        evidence = f"{ip} ({seen.networks[node.name].source}); there is {told(candidates(facts))}"
        yield on(node, evidence, _own_address(seen, node, facts))


def _own_address(seen: Situation, node: Node, facts: Facts) -> str:
    bare = [nic.name for nic in facts.nics if nic.name and nic.name in node.nic and not nic.ipv4]
    if node.ip and bare and not any(nic.slave for nic in facts.nics if nic.name in bare):
        return give_address(seen, node, facts, bare[0])
    return in_inventory(node, f"ip: {propose_ip(seen, node, facts) or 'ADDRESS'}")


@check(
    "CC-NET-005",
    "error",
    "there is no training address",
    why="The other nodes would not know where to connect.",
    needs=("nics", "address"),
)
def no_address(seen: Situation) -> Iterator[Hit]:
    """Neither `ip:`, nor `network:`, nor `host:` leads to an address of this node.

    A `host:` from ~/.ssh/config, for example, means nothing on the node itself. Give `ip:`.
    """
    for node, facts, text in _with_problem(seen, "no-address"):
        near = candidates(facts)
        fix = in_inventory(node, f"ip: {near[0].ipv4[0]}") if near else ""
        yield on(node, f"{text}; there is {told(near)}", fix)


@check(
    "CC-NET-008",
    "error",
    "two nodes have the same training address",
    why="Both would answer for the same place: ranks end up on the wrong machine.",
)
def address_is_shared(seen: Situation) -> Iterator[Hit]:
    """Every node needs a training address of its own.

    Machines cloned from one image may share one; so do addresses of container bridges (172.17.0.1), which
    exist on every host. Choose the NIC by `nic:` or `network:`.
    """
    nodes_of: dict[str, list[str]] = {}
    for node in seen.nodes:
        ip = seen.networks[node.name].ip
        if ip:
            nodes_of.setdefault(ip, []).append(node.name)
    for ip, names in nodes_of.items():
        if len(names) > 1:
            yield across(names, f"{fold_names(names)}: {ip}", _tell_apart(seen, names, ip))


def _tell_apart(seen: Situation, names: list[str], ip: str) -> str:
    """Give the nodes that do not have the address one of their own; another check says why that is wrong too."""
    without = [(node, facts) for node, facts in seen.known if node.name in names and not owner_of(facts, ip)]
    if not 0 < len(without) < len(names):
        return "inventory: give each of them its own ip:"
    return "\n".join(_own_address(seen, node, facts) for node, facts in without)


@check(
    "CC-NET-011",
    "error",
    "the training address is loopback",
    why="No other machine can reach an address in 127.0.0.0/8.",
    needs=("machine",),
)
def address_is_loopback(seen: Situation) -> Iterator[Hit]:
    """A loopback address works only between nodes on one machine."""
    machines = {facts.machine.boot_id for _, facts in seen.known}
    for node, facts in seen.known:
        ip = seen.networks[node.name].ip
        if ip and ip.startswith("127.") and len(machines) > 1:
            near = candidates(facts)
            yield on(node, ip, in_inventory(node, f"ip: {near[0].ipv4[0] if near else 'ADDRESS'}"))


@check(
    "CC-NET-016",
    "error",
    "a NIC has no IPv4 address",
    why="Gloo and NCCL find no address on it to listen on.",
    needs=("nics",),
)
def nic_without_address(seen: Situation) -> Iterator[Hit]:
    """The NIC exists and is up but bears no IPv4 address.

    The members of a bond or bridge have none: name the bond or bridge. Otherwise give the NIC its address back. Another
    NIC would put the training on another network, often the slower one of SSH.
    """
    for node, facts, names in _nodes_with(seen, "nic-without-address"):
        slaves = {nic.name for nic in facts.nics if nic.slave}
        bare = ", ".join(
            f"{name} has none" + " and is a member of a bond" * (name in slaves) for name in names
        )
        evidence = f"{bare}; there is {told(candidates(facts, names[0]))}"
        line = propose_nics(node, facts, names)
        if slaves.isdisjoint(names):
            yield on(node, evidence, give_address(seen, node, facts, names[0]))
        else:
            yield on(node, evidence, in_inventory(node, line) if line else "")


@check(
    "CC-NET-017",
    "warning",
    "the training address is public",
    why="PyTorch's own traffic has no password and no encryption: whoever reaches its ports can run code in the job.",
    needs=("nics",),
)
def address_is_public(seen: Situation) -> Iterator[Hit]:
    """The address is one that the whole internet can reach, unless a firewall stands before it.

    TCPStore, Gloo and NCCL trust everybody who connects. Train over a private network, or let a firewall pass
    only the nodes' own addresses: the rendezvous port of node 0 (see `ports:`) and the ports that the kernel gives
    out (`ip_local_port_range`).
    """
    for node, facts in seen.known:
        ip = seen.networks[node.name].ip
        if ip and _is_public(ip):
            private = [nic for nic in candidates(facts) if not any(map(_is_public, nic.ipv4))]
            fix = in_inventory(node, f"ip: {private[0].ipv4[0]}") if private else ""
            yield on(node, ip, fix or "let a firewall pass only the nodes' own addresses")


def _is_public(ip: str) -> bool:
    try:
        return ip_address(ip).is_global
    except ValueError:
        return False
