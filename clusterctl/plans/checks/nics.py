"""NICs, training address, interface variables."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from difflib import SequenceMatcher
from ipaddress import IPv4Network, ip_address

from clusterctl.plans.checks.framework import Hit, Situation, across, as_root, check, in_inventory, on
from clusterctl.plans.facts.facts import Facts
from clusterctl.plans.facts.records import Nic
from clusterctl.plans.launch.network import NodeNetwork, active_ports, owner_of, plan_hcas, training_nic
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.nodeset import fold_names

# What container engines and VPNs make: up, with an address, and not the way to another node.
SIDE_NETWORKS = (
    "docker",
    "br-",
    "virbr",
    "cni",
    "flannel",
    "cali",
    "podman",
    "lxc",
    "tailscale",
    "wg",
    "zt",
    "tun",
)
_NUMBERS = re.compile(r"\d+")


def candidates(facts: Facts, wanted: str = "") -> list[Nic]:
    """List the NICs that could carry training, the one with the nearest name first."""
    able = [nic for nic in facts.nics if nic.name and nic.kind != "loopback" and nic.ipv4]
    return sorted(able, key=lambda nic: -SequenceMatcher(None, wanted, nic.name or "").ratio())


def told(nics: list[Nic]) -> str:
    """Tell NICs with their addresses."""
    return (
        ", ".join(f"{nic.name} ({', '.join(nic.ipv4)})" for nic in nics[:6]) or "no NIC with an IPv4 address"
    )


def propose_nics(node: Node, facts: Facts, wrong: Collection[str]) -> str:
    """Give the node's `nic:` line with plausible NICs in place of the wrong ones; empty if there are none.

    The NIC that owns the inventory's `ip` is one of them, because the address must be on a NIC of the list.
    """
    kept = [name for name in node.nic if name not in wrong]
    owner = owner_of(facts, node.ip) if node.ip else None
    found = [name for name in dict.fromkeys([owner, *_plausible(facts, wrong)]) if name and name not in kept]
    room = len(node.nic) - len(kept)
    chosen = iter([nic.name for nic in facts.nics if nic.name in found[:room]])
    slots = [next(chosen, None) if name in wrong else name for name in node.nic]
    names = [name for name in slots if name]
    note = f"  # {len(slots)} were named: choose from those above" if len(names) < len(slots) else ""
    return f"nic: [{', '.join(names)}]{note}" if found else ""


def propose_ip(seen: Situation, node: Node, facts: Facts) -> str | None:
    """Choose one of the node's own addresses to train with: on the NICs that the inventory names, near the peers'."""
    named = [nic for nic in facts.nics if nic.name in node.nic]
    pool = [ip for nic in named or candidates(facts) for ip in nic.ipv4]
    near = [ip for ip in pool if _prefix_at_peers(seen, node, ip)]
    arrived = facts.machine.ssh_address
    usual = [arrived] if arrived and owner_of(facts, arrived) and not named else []
    return next(iter([*near, *usual, *pool]), None)


def give_address(seen: Situation, node: Node, facts: Facts, nic: str) -> str:
    """Give the command that gives a NIC its address back; its prefix is the one that the other nodes have."""
    ip = node.ip or "ADDRESS"
    prefix = _prefix_at_peers(seen, node, node.ip) if node.ip else None
    return as_root(node, facts, f"ip addr add {ip}/{prefix or 'PREFIX'} dev {shlex.quote(nic)}")


def _prefix_at_peers(seen: Situation, node: Node, ip: str) -> int | None:
    """Give the prefix of the network in which an address is together with the training address of another node."""
    for peer, facts in seen.known:
        theirs = seen.networks[peer.name].ip
        if peer is not node and theirs and theirs != ip:
            prefix = _prefix_of(facts, theirs)
            if prefix and _network(ip, prefix) == _network(theirs, prefix):
                return prefix
    return None


def _prefix_of(facts: Facts, ip: str) -> int | None:
    found = (entry.prefix for nic in facts.nics for entry in nic.addresses if entry.ip == ip)
    return next((prefix for prefix in found if prefix and 0 < prefix <= 32), None)


def _network(ip: str, prefix: int) -> IPv4Network | None:
    try:
        return IPv4Network(f"{ip}/{prefix}", strict=False)
    except ValueError:
        return None


def also_there(seen: Situation, name: str, among: Collection[str]) -> tuple[str, str] | None:
    """Find another node that has the training address of this one; gives its name and `ADDRESS/PREFIX dev NIC`."""
    ip = seen.networks[name].ip
    if ip and not ip.startswith("127."):
        for node, facts in seen.known:
            nic = owner_of(facts, ip) if node.name in among and node.name != name else None
            if nic:
                return node.name, f"{ip}/{_prefix_of(facts, ip) or 32} dev {shlex.quote(nic)}"
    return None


def _plausible(facts: Facts, wrong: Collection[str]) -> list[str]:
    """List bonds in place of members, else names that differ in numbers only, else all; nearest name first."""
    able = candidates(facts, next(iter(wrong), ""))
    member = any(nic.slave for nic in facts.nics if nic.name in wrong)
    bonds = [nic.name or "" for nic in able if member and nic.kind == "bond"]
    near = [nic.name or "" for nic in able]
    shapes = {_shape(name) for name in wrong}
    alike = [name for name in near if _shape(name) in shapes]
    return bonds or alike or [name for name in near if not name.startswith(SIDE_NETWORKS)]


def _shape(name: str) -> str:
    return _NUMBERS.sub("0", name)


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


GLOO_READS = ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
NCCL_READS = ("NCCL_SOCKET_IFNAME",)


def match_gloo(value: str, names: Collection[str]) -> tuple[str, ...]:
    """Name the words of a list of exact names that no NIC bears; every one must."""
    return tuple(word for word in value.split(",") if word not in names)


def match_nccl(value: str, names: Collection[str]) -> tuple[str, ...]:
    """Give the NICs that NCCL would take: `eth` is a prefix, `=eth0` exact, `^` turns the whole list round."""
    without = value.startswith("^")
    words = value[without:]
    exact = words.startswith("=")
    wanted = [word.partition(":")[0] for word in words[exact:].split(",") if word]
    return tuple(
        name
        for name in names
        if without != any(name == word if exact else name.startswith(word) for word in wanted)
    )


VIRTUAL = ("veth", "tun", "wireguard", "vxlan", "dummy", "virtual")


def _chosen(seen: Situation) -> Iterator[tuple[Node, Facts, Nic]]:
    for node, facts in seen.known:
        nic = training_nic(seen.networks[node.name], facts)
        if nic is not None and nic.name and not seen.networks[node.name].problems:
            yield node, facts, nic


def _physical(facts: Facts) -> list[Nic]:
    """List the real NICs that could carry training as they are: on, linked, with an address."""
    return [nic for nic in facts.nics if nic.physical and nic.running and nic.ipv4]


@check(
    "CC-NET-018",
    "warning",
    "training uses a virtual NIC",
    why="Tunnels and virtual links cost bandwidth, and the node has a real NIC with an address.",
    needs=("nics",),
)
def nic_is_virtual(seen: Situation) -> Iterator[Hit]:
    """The chosen NIC is a tunnel, a VPN or a virtual link (tun, wireguard, vxlan, veth, dummy), beside a physical one.

    Right where the tunnel is the only way between the nodes; otherwise choose the physical NIC's address or name.
    """
    for node, facts, nic in _chosen(seen):
        real = _physical(facts)
        told_already = not node.nic and (nic.name or "").startswith(SIDE_NETWORKS)  # CC-NET-013
        if nic.kind in VIRTUAL and real and not told_already:
            fix = in_inventory(node, f"nic: [{real[0].name}]  # if the other nodes can be reached by it")
            yield on(node, f"{nic.name} ({nic.kind}); there is {told(real)}", fix)


@check(
    "CC-NET-019",
    "warning",
    "a faster NIC is not used",
    why="Gradients go over the chosen NIC; the faster one stays idle.",
    needs=("nics", "infiniband"),
)
def faster_nic(seen: Situation) -> Iterator[Hit]:
    """The node has a physical NIC, linked and with an address, whose speed is above that of the chosen one.

    Usual where SSH goes over a slow management network and `host:` is all that the inventory says: name the fast
    network by `network:` or the NIC by `nic:`. NCCL on InfiniBand or RoCE ports is not affected: it finds those by
    itself and uses the NIC only to set up.
    """
    for node, facts, nic in _chosen(seen):
        if nic.speed is None or (seen.wants_gpus() and active_ports(facts)):
            continue
        best = max(_physical(facts), key=lambda one: one.speed or 0, default=nic)
        if (best.speed or 0) > nic.speed and best.name not in seen.networks[node.name].nics:
            evidence = (
                f"{nic.name} {speed_text(nic.speed)}, {best.name} ({best.ipv4[0]}) {speed_text(best.speed)}"
            )
            yield on(node, evidence, in_inventory(node, f"nic: [{best.name}]"))


def speed_text(speed: int | None) -> str:
    """Write a speed, given in Mbit/s."""
    if speed is None:
        return "speed unknown"
    return f"{speed / 1000:g} Gbit/s" if speed >= 1000 else f"{speed} Mbit/s"


@check(
    "CC-NET-029",
    "error",
    "the job names NICs that a node does not have",
    why="A variable in the job's env beats the launch's own, and is the same on every node.",
    needs=("nics",),
)
def env_does_not_fit(seen: Situation) -> Iterator[Hit]:
    """NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME or TP_SOCKET_IFNAME in the job's `env:` matches no NIC of the node.

    Gloo and TensorPipe take exact names, comma-separated, and all of them must exist: `=eth0`, `^docker0` and `eth`
    are NCCL's grammar, in which a bare name is a prefix, `=` means exact and `^` everything but. Remove the variable:
    a launch sets each of them for each node in its own grammar.
    """
    env: Mapping[str, str] = seen.job.env if seen.job else {}
    for node, facts in seen.known:
        names = [nic.name for nic in facts.nics if nic.name]
        for variable in (*GLOO_READS, *NCCL_READS):
            value = env.get(variable, "")
            if value and "${" not in value and (why := _misfit(variable, value, names)):
                yield on(node, f"{variable}={value}: {why}", f"job: remove {variable} from env:")


def _misfit(variable: str, value: str, names: list[str]) -> str:
    if variable in NCCL_READS:
        return "" if match_nccl(value, names) else f"no NIC matches; there is {', '.join(names)}"
    missing = match_gloo(value, names)
    if not missing:
        return ""
    if value[:1] in "=^":
        return f"{value[0]!r} is NCCL's grammar, this variable takes exact names"
    return f"no NIC is called {', '.join(missing)}; there is {', '.join(names)}"


def explain_choice(node: Node, network: NodeNetwork) -> str:
    """Say why these NICs, and why this address."""
    if node.nic:
        why = "nic: in the inventory"
    elif node.network:
        why = f"network: {node.network}"
    else:
        why = "the training address, which it has"
    source = network.source.replace(f"host {node.host}", "host:")  # so that equal nodes read equal
    return f"chosen by {why}; address by {source}"


def describe_nics(facts: Facts, network: NodeNetwork) -> str:
    """Tell the chosen NICs with kind, speed and MTU, without their names and addresses."""
    chosen = [nic for nic in facts.nics if nic.name in network.nics]
    return "; ".join(dict.fromkeys(map(_about, chosen)))


def _about(nic: Nic) -> str:
    kind = nic.kind or "unknown kind"
    mtu = f"MTU {nic.mtu}" if nic.mtu else "MTU unknown"
    return f"{kind}{'' if nic.physical else ' (virtual)'}, {speed_text(nic.speed)}, {mtu}"


def describe_rdma(facts: Facts, network: NodeNetwork) -> str:
    """Tell the InfiniBand and RoCE ports with state and rate, and how NCCL_IB_HCA would name the right ones."""
    if not facts.infiniband:
        return ""
    ports = ", ".join(
        " ".join(word for word in (f"{port.adapter}:{port.port}", port.link, port.state, port.rate) if word)
        for port in facts.infiniband
    )
    hcas = plan_hcas(facts, network.nics)
    if hcas is None:
        return f"{ports}; none is active"
    return f"{ports}; NCCL takes all {len(active_ports(facts))} active ones, NCCL_IB_HCA={hcas} names those of training"


def describe_settings(facts: Facts) -> Iterator[str]:
    """Tell what NCCL's own files set on the node."""
    for path, lines in facts.nccl_conf.items():
        yield f"{path}: {'; '.join(lines) or 'empty'}"


def describe_others(facts: Facts, network: NodeNetwork) -> str:
    """Tell the NICs that were not chosen and bear an address."""
    others = [
        nic for nic in facts.nics if nic.name not in network.nics and nic.ipv4 and nic.kind != "loopback"
    ]
    return ", ".join(f"{nic.name} {', '.join(nic.ipv4)} ({_about(nic)})" for nic in others[:8])
