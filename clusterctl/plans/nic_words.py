"""Which NIC a node trains with and why, in words."""

from __future__ import annotations

from collections.abc import Iterator

from clusterctl.plans.checks.nic_choice import speed_text
from clusterctl.plans.facts import Facts
from clusterctl.plans.facts_records import Nic
from clusterctl.plans.network import NodeNetwork
from clusterctl.plans.rdma import active_ports, plan_hcas
from clusterctl.specs.inventory import Node


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
