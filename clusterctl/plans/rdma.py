"""What NCCL finds besides the NICs: the ports of InfiniBand and RoCE adapters, and how to name them."""

from __future__ import annotations

import re
from collections.abc import Collection

from clusterctl.plans.facts import Facts
from clusterctl.plans.facts_records import InfinibandPort

ACTIVE, INFINIBAND = "ACTIVE", "InfiniBand"
_RATE = re.compile(r"([0-9.]+) *Gb/sec")


def active_ports(facts: Facts) -> tuple[InfinibandPort, ...]:
    """Give the ports that carry traffic."""
    return tuple(port for port in facts.infiniband if port.state == ACTIVE)


def rate_of(port: InfinibandPort) -> float | None:
    """Give a port's rate in Gbit/s."""
    found = _RATE.search(port.rate or "")
    return float(found[1]) if found else None


def plan_hcas(facts: Facts, nics: Collection[str]) -> str | None:
    """Give the NCCL_IB_HCA that names, exactly, the ports of the chosen NICs; else all active InfiniBand ports.

    NCCL by itself takes every active port. None where there is none.
    """
    ports = active_ports(facts)
    ours = [port for port in ports if set(port.nics) & set(nics)]
    chosen = ours or [port for port in ports if port.link == INFINIBAND]
    return "=" + ",".join(f"{port.adapter}:{port.port}" for port in chosen) if chosen else None
