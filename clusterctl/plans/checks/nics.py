"""NICs, training address, interface variables."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from difflib import SequenceMatcher
from ipaddress import IPv4Network, ip_address

from clusterctl.plans.checks.framework import (
    CheckContext,
    Hit,
    across_nodes,
    as_root,
    check,
    in_inventory,
    join_items,
    join_parts,
    of_nodes,
    on_node,
    run_on_nodes,
)
from clusterctl.plans.launch.network import (
    NodeNetwork,
    active_ports,
    nic_with_address,
    plan_hcas,
    training_nic,
)
from clusterctl.protocol.messages.facts import Facts, Nic
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.nodeset import group_values
from clusterctl.translation import tr

# What container engines and VPNs make: up, with an address, but no connection to another node.
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
GLOO_VARIABLES = ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
NCCL_VARIABLES = ("NCCL_SOCKET_IFNAME",)
VIRTUAL = ("veth", "tun", "wireguard", "vxlan", "dummy", "virtual")


def list_candidate_nics(facts: Facts, similar_to: str = "") -> list[Nic]:
    """List the NICs that could carry training, the one with the nearest name first."""
    usable = [nic for nic in facts.nics if nic.name and nic.kind != "loopback" and nic.ipv4]
    return sorted(usable, key=lambda nic: -SequenceMatcher(None, similar_to, nic.name or "").ratio())


def render_nics(nics: list[Nic]) -> str:
    """List NICs with their addresses."""
    shown = [f"{nic.name} ({', '.join(nic.ipv4)})" for nic in nics[:6]]
    return join_items(shown) or tr("no NIC with an IPv4 address")


def propose_nics(node: Node, facts: Facts, wrong_names: Collection[str]) -> str:
    """Return the node's `nic:` line with plausible NICs in place of the wrong ones; empty if there are none.

    The NIC that owns the inventory's `ip` is one of them, because the address must be on a NIC of the list.
    """
    kept = [name for name in node.nic if name not in wrong_names]
    owner = nic_with_address(facts, node.ip) if node.ip else None
    proposed = [
        name
        for name in dict.fromkeys([owner, *_list_plausible_names(facts, wrong_names)])
        if name and name not in kept
    ]
    free_slots = len(node.nic) - len(kept)
    chosen = iter([nic.name for nic in facts.nics if nic.name in proposed[:free_slots]])
    slots = [next(chosen, None) if name in wrong_names else name for name in node.nic]
    names = [name for name in slots if name]
    line = f"nic: [{', '.join(names)}]"
    if len(names) < len(slots):
        line += "  # " + tr("{count} were configured: choose from those above", count=len(slots))
    return line if proposed else ""


def propose_ip(context: CheckContext, node: Node, facts: Facts) -> str | None:
    """Choose one of the node's own addresses to train with: on the NICs that the inventory names, near the peers'."""
    inventory_nics = [nic for nic in facts.nics if nic.name in node.nic]
    addresses = [ip for nic in inventory_nics or list_candidate_nics(facts) for ip in nic.ipv4]
    near_peers = [ip for ip in addresses if _prefix_shared_with_peers(context, node, ip)]
    ssh_address = facts.machine.ssh_address
    fallback = (
        [ssh_address] if ssh_address and nic_with_address(facts, ssh_address) and not inventory_nics else []
    )
    return next(iter([*near_peers, *fallback, *addresses]), None)


def restore_address_command(context: CheckContext, node: Node, facts: Facts, nic: str) -> str:
    """Return the command that gives a NIC its address back; its prefix is the one that the other nodes have."""
    ip = node.ip or "ADDRESS"
    prefix = _prefix_shared_with_peers(context, node, node.ip) if node.ip else None
    line = as_root(facts, f"ip addr add {ip}/{prefix or 'PREFIX'} dev {shlex.quote(nic)}")
    return run_on_nodes(context.program, [node.name], line)


def _prefix_shared_with_peers(context: CheckContext, node: Node, ip: str) -> int | None:
    """Return the prefix of the network in which an address is together with the training address of another node."""
    for peer, facts in context.known:
        peer_ip = context.networks[peer.name].ip
        if peer is not node and peer_ip and peer_ip != ip:
            prefix = _prefix_of(facts, peer_ip)
            if prefix and _network(ip, prefix) == _network(peer_ip, prefix):
                return prefix
    return None


def _prefix_of(facts: Facts, ip: str) -> int | None:
    prefixes = (entry.prefix for nic in facts.nics for entry in nic.addresses if entry.ip == ip)
    return next((prefix for prefix in prefixes if prefix and 0 < prefix <= 32), None)


def _network(ip: str, prefix: int) -> IPv4Network | None:
    try:
        return IPv4Network(f"{ip}/{prefix}", strict=False)
    except ValueError:
        return None


def find_duplicate_address(
    context: CheckContext, name: str, node_names: Collection[str]
) -> tuple[str, str] | None:
    """Find another node that has the training address of this one; gives its name and `ADDRESS/PREFIX dev NIC`."""
    ip = context.networks[name].ip
    if ip and not ip.startswith("127."):
        for node, facts in context.known:
            nic = nic_with_address(facts, ip) if node.name in node_names and node.name != name else None
            if nic:
                return node.name, f"{ip}/{_prefix_of(facts, ip) or 32} dev {shlex.quote(nic)}"
    return None


def _list_plausible_names(facts: Facts, wrong_names: Collection[str]) -> list[str]:
    """List bonds in place of members, else names that differ in numbers only, else all; nearest name first."""
    usable = list_candidate_nics(facts, next(iter(wrong_names), ""))
    is_bond_member = any(nic.slave for nic in facts.nics if nic.name in wrong_names)
    bonds = [nic.name or "" for nic in usable if is_bond_member and nic.kind == "bond"]
    names = [nic.name or "" for nic in usable]
    shapes = {_name_shape(name) for name in wrong_names}
    same_shape = [name for name in names if _name_shape(name) in shapes]
    return bonds or same_shape or [name for name in names if not name.startswith(SIDE_NETWORKS)]


def _name_shape(name: str) -> str:
    return _NUMBERS.sub("0", name)


def _each_problem(context: CheckContext, kind: str) -> Iterator[tuple[Node, Facts, str]]:
    for node, facts in context.known:
        for problem in context.networks[node.name].problems:
            if problem.kind == kind:
                yield node, facts, problem.text


def _nodes_with_problem(context: CheckContext, kind: str) -> Iterator[tuple[Node, Facts, list[str]]]:
    """Yield each node with all its problems of a kind at once."""
    for node, facts in context.known:
        texts = [problem.text for problem in context.networks[node.name].problems if problem.kind == kind]
        if texts:
            yield node, facts, texts


@check("CC-NET-001", needs=("nics",))
def nic_is_missing(context: CheckContext) -> Iterator[Hit]:
    for node, facts, names in _nodes_with_problem(context, "nic-missing"):
        line = propose_nics(node, facts, names)
        present = render_nics(list_candidate_nics(facts, names[0]))
        evidence = tr("no {names}; there is {nics}", names=join_items(names), nics=present)
        yield on_node(node, evidence, "" if line else None, line=line)


@check("CC-NET-002", needs=("nics",))
def nic_is_down(context: CheckContext) -> Iterator[Hit]:
    for node, facts, name in _each_problem(context, "nic-down"):
        nic = next(nic for nic in facts.nics if nic.name == name)
        if nic.up:
            yield on_node(node, tr("{nic} is up but has no link", nic=name), "cable")
        else:
            yield on_node(node, tr("{nic} is down", nic=name), nic=shlex.quote(name))


@check("CC-NET-003", needs=("nics",))
def address_on_other_nic(context: CheckContext) -> Iterator[Hit]:
    for node, facts, ip in _each_problem(context, "address-on-other-nic"):
        owner, chosen = nic_with_address(facts, ip), ", ".join(context.networks[node.name].nics)
        evidence = tr("{ip} is on {owner}, training uses {chosen}", ip=ip, owner=owner, chosen=chosen)
        yield on_node(node, evidence, nic=owner)


@check("CC-NET-004", needs=("nics",))
def address_on_no_nic(context: CheckContext) -> Iterator[Hit]:
    for node, facts, ip in _each_problem(context, "address-on-no-nic"):
        evidence = tr(
            "{ip} ({source}); there is {nics}",
            ip=ip,
            source=context.networks[node.name].source,
            nics=render_nics(list_candidate_nics(facts)),
        )
        yield on_node(node, evidence, lines=_own_address_fix(context, node, facts))


def _own_address_fix(context: CheckContext, node: Node, facts: Facts) -> str:
    names_without_address = [
        nic.name for nic in facts.nics if nic.name and nic.name in node.nic and not nic.ipv4
    ]
    if (
        node.ip
        and names_without_address
        and not any(nic.slave for nic in facts.nics if nic.name in names_without_address)
    ):
        return restore_address_command(context, node, facts, names_without_address[0])
    return in_inventory(node, f"ip: {propose_ip(context, node, facts) or 'ADDRESS'}")


@check("CC-NET-005", needs=("nics", "address"))
def no_address(context: CheckContext) -> Iterator[Hit]:
    for node, facts, text in _each_problem(context, "no-address"):
        nics = list_candidate_nics(facts)
        yield on_node(
            node,
            tr("{problem}; there is {nics}", problem=text, nics=render_nics(nics)),
            "" if nics else None,
            ip=nics[0].ipv4[0] if nics else "",
        )


@check("CC-NET-008")
def address_is_shared(context: CheckContext) -> Iterator[Hit]:
    nodes_of = group_values((context.networks[node.name].ip, node.name) for node in context.nodes)
    for ip, names in nodes_of.items():
        if ip and len(names) > 1:
            lines = _shared_address_fix(context, names, ip)
            yield across_nodes(names, of_nodes(names, ip), "lines" if lines else "", lines=lines)


def _shared_address_fix(context: CheckContext, names: list[str], ip: str) -> str:
    """Return the nodes that do not have the address one of their own; another check explains why that is wrong too."""
    without_address = [
        (node, facts)
        for node, facts in context.known
        if node.name in names and not nic_with_address(facts, ip)
    ]
    if not 0 < len(without_address) < len(names):
        return ""
    return "\n".join(_own_address_fix(context, node, facts) for node, facts in without_address)


@check("CC-NET-011", needs=("machine",))
def address_is_loopback(context: CheckContext) -> Iterator[Hit]:
    machines = {facts.machine.boot_id for _, facts in context.known}
    for node, facts in context.known:
        ip = context.networks[node.name].ip
        if ip and ip.startswith("127.") and len(machines) > 1:
            nics = list_candidate_nics(facts)
            yield on_node(node, ip, ip=nics[0].ipv4[0] if nics else "ADDRESS")


@check("CC-NET-016", needs=("nics",))
def nic_without_address(context: CheckContext) -> Iterator[Hit]:
    for node, facts, names in _nodes_with_problem(context, "nic-without-address"):
        slaves = {nic.name for nic in facts.nics if nic.slave}
        bare = join_items(
            tr("{nic} has none and is a member of a bond", nic=name)
            if name in slaves
            else tr("{nic} has none", nic=name)
            for name in names
        )
        present = render_nics(list_candidate_nics(facts, names[0]))
        evidence = tr("{problem}; there is {nics}", problem=bare, nics=present)
        line = propose_nics(node, facts, names)
        if slaves.isdisjoint(names):
            yield on_node(
                node, evidence, "restore", command=restore_address_command(context, node, facts, names[0])
            )
        else:
            yield on_node(node, evidence, "" if line else None, line=line)


@check("CC-NET-017", needs=("nics",))
def address_is_public(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        ip = context.networks[node.name].ip
        if ip and _is_public(ip):
            private = [nic for nic in list_candidate_nics(facts) if not any(map(_is_public, nic.ipv4))]
            yield on_node(node, ip, "private" if private else "", ip=private[0].ipv4[0] if private else "")


def _is_public(ip: str) -> bool:
    try:
        return ip_address(ip).is_global
    except ValueError:
        return False


def list_unmatched_names(value: str, names: Collection[str]) -> tuple[str, ...]:
    """Return the words of a list of exact names that are no NIC's name; all must be."""
    return tuple(word for word in value.split(",") if word not in names)


def list_matching_nics(value: str, names: Collection[str]) -> tuple[str, ...]:
    """Return the NICs that NCCL would take: `eth` is a prefix, `=eth0` exact, `^` turns the whole list round."""
    is_negated = value.startswith("^")
    pattern_text = value[is_negated:]
    is_exact = pattern_text.startswith("=")
    patterns = [word.partition(":")[0] for word in pattern_text[is_exact:].split(",") if word]
    return tuple(
        name
        for name in names
        if is_negated != any(name == word if is_exact else name.startswith(word) for word in patterns)
    )


def _each_training_nic(context: CheckContext) -> Iterator[tuple[Node, Facts, Nic]]:
    for node, facts in context.known:
        nic = training_nic(context.networks[node.name], facts)
        if nic is not None and nic.name and not context.networks[node.name].problems:
            yield node, facts, nic


def _list_physical_nics(facts: Facts) -> list[Nic]:
    """List the real NICs that could carry training as they are: on, linked, with an address."""
    return [nic for nic in facts.nics if nic.physical and nic.running and nic.ipv4]


@check("CC-NET-018", needs=("nics",))
def nic_is_virtual(context: CheckContext) -> Iterator[Hit]:
    for node, facts, nic in _each_training_nic(context):
        physical = _list_physical_nics(facts)
        is_reported_elsewhere = not node.nic and (nic.name or "").startswith(SIDE_NETWORKS)  # CC-NET-013
        if nic.kind in VIRTUAL and physical and not is_reported_elsewhere:
            problem = f"{nic.name} ({nic.kind})"
            evidence = tr("{problem}; there is {nics}", problem=problem, nics=render_nics(physical))
            yield on_node(node, evidence, nic=physical[0].name)


@check("CC-NET-019", needs=("nics", "infiniband"))
def faster_nic(context: CheckContext) -> Iterator[Hit]:
    for node, facts, nic in _each_training_nic(context):
        if nic.speed is None or (context.needs_gpus() and active_ports(facts)):
            continue
        best = max(_list_physical_nics(facts), key=lambda candidate: candidate.speed or 0, default=nic)
        if (best.speed or 0) > nic.speed and best.name not in context.networks[node.name].nics:
            chosen = f"{nic.name} {render_speed(nic.speed)}"
            evidence = join_items([chosen, f"{best.name} ({best.ipv4[0]}) {render_speed(best.speed)}"])
            yield on_node(node, evidence, nic=best.name)


def render_speed(speed: int | None) -> str:
    """Write a speed, given in Mbit/s."""
    if speed is None:
        return tr("speed unknown")
    return f"{speed / 1000:g} Gbit/s" if speed >= 1000 else f"{speed} Mbit/s"


@check("CC-NET-029", needs=("nics",))
def env_names_missing_nics(context: CheckContext) -> Iterator[Hit]:
    env: Mapping[str, str] = context.job.env if context.job else {}
    for node, facts in context.known:
        names = [nic.name for nic in facts.nics if nic.name]
        for variable in (*GLOO_VARIABLES, *NCCL_VARIABLES):
            value = env.get(variable, "")
            if value and "${" not in value and (why := _describe_mismatch(variable, value, names)):
                evidence = tr("{subject}: {text}", subject=f"{variable}={value}", text=why)
                yield on_node(node, evidence, variable=variable)


def _describe_mismatch(variable: str, value: str, names: list[str]) -> str:
    if variable in NCCL_VARIABLES:
        has_match = bool(list_matching_nics(value, names))
        return "" if has_match else tr("no NIC matches; there is {nics}", nics=join_items(names))
    missing = list_unmatched_names(value, names)
    if not missing:
        return ""
    if value[:1] in "=^":
        return tr("{sign!r} is syntax of NCCL, this variable takes exact names", sign=value[0])
    return tr("no {names}; there is {nics}", names=join_items(missing), nics=join_items(names))


def explain_choice(node: Node, network: NodeNetwork) -> str:
    """Return why these NICs, and why this address."""
    if node.nic:
        why = tr("nic: in the inventory")
    elif node.network:
        why = f"network: {node.network}"
    else:
        why = tr("it has the training address")
    source = network.source.replace(f"host {node.host}", "host:")  # so that equal nodes read equal
    return tr("chosen by {reason}; address by {source}", reason=why, source=source)


def describe_nics(facts: Facts, network: NodeNetwork) -> str:
    """Describe the chosen NICs with kind, speed and MTU, without their names and addresses."""
    chosen = [nic for nic in facts.nics if nic.name in network.nics]
    return join_parts(dict.fromkeys(map(_describe_nic, chosen)))


def _describe_nic(nic: Nic) -> str:
    kind = nic.kind or tr("unknown kind")
    mtu = f"MTU {nic.mtu}" if nic.mtu else tr("MTU unknown")
    return join_items(
        [kind if nic.physical else tr("{kind} (virtual)", kind=kind), render_speed(nic.speed), mtu]
    )


def describe_rdma(facts: Facts, network: NodeNetwork) -> str:
    """List the InfiniBand and RoCE ports with state and rate, and the NCCL_IB_HCA that selects the right ones."""
    if not facts.infiniband:
        return ""
    ports = join_items(
        " ".join(word for word in (f"{port.adapter}:{port.port}", port.link, port.state, port.rate) if word)
        for port in facts.infiniband
    )
    hcas = plan_hcas(facts, network.nics)
    if hcas is None:
        return tr("{ports}; none is active", ports=ports)
    return tr(
        "{ports}; NCCL uses all {count} active ones, NCCL_IB_HCA={hcas} selects those of the training NICs",
        ports=ports,
        count=len(active_ports(facts)),
        hcas=hcas,
    )


def describe_nccl_files(facts: Facts) -> Iterator[str]:
    """List what NCCL's own files set on the node."""
    for path, lines in facts.nccl_conf.items():
        yield tr("{subject}: {text}", subject=path, text="; ".join(lines) or tr("empty"))


def describe_other_nics(facts: Facts, network: NodeNetwork) -> str:
    """List the NICs that were not chosen and have an address."""
    others = [
        nic for nic in facts.nics if nic.name not in network.nics and nic.ipv4 and nic.kind != "loopback"
    ]
    return join_items(f"{nic.name} {', '.join(nic.ipv4)} ({_describe_nic(nic)})" for nic in others[:8])
