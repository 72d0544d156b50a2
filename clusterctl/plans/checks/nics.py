"""Which NICs and addresses of a node could carry the training, and which to propose in place of wrong ones."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection
from difflib import SequenceMatcher
from ipaddress import IPv4Network

from clusterctl.plans.checks.check import Situation
from clusterctl.plans.checks.remedy import as_root
from clusterctl.plans.facts import Facts
from clusterctl.plans.facts_records import Nic
from clusterctl.plans.network import owner_of
from clusterctl.specs.inventory import Node

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
