"""Which NICs of a node could carry the training, and which to propose in place of wrong ones."""

from __future__ import annotations

import re
from collections.abc import Collection
from difflib import SequenceMatcher

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
