"""Training IP and NICs of a node, RDMA ports.

Which address and which NICs a node trains with, and why.

The address: the inventory's `ip`; with `network`, the node's address in it; else what `host` resolves to on
the node; where that is loopback (Debian gives every machine's own name 127.0.1.1), where SSH arrived.
The NICs: the inventory's `nic`; with `network`, those that have an address in it; else the one that owns
the training address. `nic` beats `network`; without `ip` and with a host on none of the NICs, the first
address on the NICs is taken.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from clusterctl.protocol.messages.facts import Facts, InfinibandPort, Nic
from clusterctl.specs.inventory.model import Node
from clusterctl.translation import tr

ACTIVE, INFINIBAND = "ACTIVE", "InfiniBand"
_RATE = re.compile(r"([0-9.]+) *Gb/sec")


@dataclass(frozen=True)
class Problem:
    """Something that keeps a node from being used as the inventory has; `kind` is what checks look at."""

    kind: str
    text: str


@dataclass(frozen=True)
class NodeNetwork:
    """The training address and NICs of a node; `source` is why these."""

    ip: str | None
    nics: tuple[str, ...]
    source: str
    problems: tuple[Problem, ...] = ()


def resolve_network(node: Node, facts: Facts | None) -> NodeNetwork:
    """Choose address and NICs; without facts only what the inventory itself has is known."""
    if facts is None:
        ip = node.ip or (node.host if _parse_ipv4(node.host) and not node.network else None)
        return NodeNetwork(ip, node.nic, "inventory")
    ip, source = _choose_ip(node, facts)
    nics = _choose_nics(node, facts, ip)
    return NodeNetwork(ip, nics, source, tuple(_find_problems(node, facts, ip, nics)))


def _choose_ip(node: Node, facts: Facts) -> tuple[str | None, str]:
    if node.ip:
        return node.ip, tr("ip: in the inventory")
    inside = [ip for ip in _list_addresses(node, facts) if node.network and _is_within(ip, node.network)]
    if node.network and (inside or not node.nic):
        return _first(inside), f"network: {node.network}"
    ip, source = _host_ip(node, facts)
    chosen = _list_addresses(node, facts)
    if node.nic and chosen and ip not in chosen:
        source = tr(
            "first address on nic: {nics}, which host {host} is not on",
            nics=",".join(node.nic),
            host=node.host,
        )
        return chosen[0], source
    return ip, source


def _host_ip(node: Node, facts: Facts) -> tuple[str | None, str]:
    answers = facts.address.addresses
    known = [node.host] if _parse_ipv4(node.host) else [ip for ip in answers if _parse_ipv4(ip)]
    usable = [ip for ip in known if not _is_loopback(ip) or _parse_ipv4(node.host)]
    own = [ip for ip in usable if nic_with_address(facts, ip)]
    if usable:
        ip = (own or usable)[0]
        return ip, "host" if ip == node.host else tr("host {host} on the node", host=node.host)
    ssh_address = facts.machine.ssh_address
    if ssh_address and _parse_ipv4(ssh_address) and not _is_loopback(ssh_address):
        source = (
            tr("where SSH arrived (host {host} is loopback there)", host=node.host)
            if known
            else tr("where SSH arrived (host {host} does not resolve there)", host=node.host)
        )
        return ssh_address, source
    return None, f"host {node.host}"


def _list_addresses(node: Node, facts: Facts) -> list[str]:
    """List the node's IPv4 addresses, on the inventory's NICs only where it names some."""
    nics = [_find_nic(facts, name) for name in node.nic] if node.nic else list(facts.nics)
    return [ip for nic in nics if nic for ip in nic.ipv4]


def _choose_nics(node: Node, facts: Facts, ip: str | None) -> tuple[str, ...]:
    if node.nic:
        return tuple(node.nic)
    owner = nic_with_address(facts, ip) if ip else None
    if node.network:
        inside = [nic.name for nic in facts.nics if nic.name and _has_address_within(nic, node.network)]
        return tuple(sorted(inside, key=lambda name: name != owner))
    return (owner,) if owner else ()


def _find_problems(node: Node, facts: Facts, ip: str | None, nics: tuple[str, ...]) -> Iterable[Problem]:
    if ip is None:
        yield Problem("no-address", _describe_no_address(node, facts))
    nic_problems = [problem for name in nics for problem in _find_nic_problems(facts, name)]
    yield from nic_problems
    if ip and not nic_with_address(facts, ip):
        yield Problem("address-on-no-nic", ip)
    elif ip and nics and nic_with_address(facts, ip) not in nics and not nic_problems:
        yield Problem("address-on-other-nic", ip)


def _find_nic_problems(facts: Facts, name: str) -> Iterable[Problem]:
    nic = _find_nic(facts, name)
    if nic is None:
        yield Problem("nic-missing", name)
    elif not nic.up or not nic.running:
        yield Problem("nic-down", name)
    elif not nic.ipv4:
        yield Problem("nic-without-address", name)


def _describe_no_address(node: Node, facts: Facts) -> str:
    if node.network:
        return tr("no address in {network}", network=node.network)
    if facts.address.addresses:
        addresses = ", ".join(facts.address.addresses)
        return tr("host {host} is {addresses} on the node", host=node.host, addresses=addresses)
    return tr("host {host} does not resolve on the node", host=node.host)


def nic_with_address(facts: Facts, ip: str) -> str | None:
    """Name the NIC that has an address; all of 127.0.0.0/8 is on the loopback NIC."""
    owner = _first(nic.name for nic in facts.nics if ip in nic.ipv4)
    if owner or not _parse_ipv4(ip) or not _is_loopback(ip):
        return owner
    return _first(nic.name for nic in facts.nics if nic.kind == "loopback")


def training_nic(network: NodeNetwork, facts: Facts) -> Nic | None:
    """Return the NIC that has the training address, or the first one that was chosen."""
    owner = nic_with_address(facts, network.ip) if network.ip else None
    name = owner if owner in network.nics else next(iter(network.nics), None)
    return _find_nic(facts, name) if name else None


def _find_nic(facts: Facts, name: str) -> Nic | None:
    return next((nic for nic in facts.nics if nic.name == name), None)


def _first(values: Iterable[str | None]) -> str | None:
    return next((value for value in values if value), None)


def route_nic(facts: Facts, ip: str) -> str | None:
    """Name the NIC that the routing table gives for an address; `None` if there is no route."""
    number = _parse_ipv4(ip)
    rows = [
        row for row in facts.routing if row.usable and number and number in _row_network(row.to, row.prefix)
    ]
    best = sorted(rows, key=lambda row: (-(row.prefix or 0), row.metric or 0))
    return best[0].nic if best else None


def _row_network(to: str | None, prefix: int | None) -> IPv4Network:
    try:
        return IPv4Network((to or "", prefix or 0), strict=False)
    except ValueError:
        return IPv4Network("255.255.255.255/32")


def _parse_ipv4(text: str | None) -> IPv4Address | None:
    try:
        return IPv4Address(text or "")
    except ValueError:
        return None


def _is_loopback(ip: str) -> bool:
    return IPv4Address(ip).is_loopback


def _has_address_within(nic: Nic, network: str) -> bool:
    return any(_is_within(ip, network) for ip in nic.ipv4)


def _is_within(ip: str, network: str) -> bool:
    number = _parse_ipv4(ip)
    return number is not None and number in IPv4Network(network, strict=False)


def active_ports(facts: Facts) -> tuple[InfinibandPort, ...]:
    """Return the ports that carry traffic."""
    return tuple(port for port in facts.infiniband if port.state == ACTIVE)


def parse_rate(port: InfinibandPort) -> float | None:
    """Return a port's rate in Gbit/s."""
    match = _RATE.search(port.rate or "")
    return float(match[1]) if match else None


def plan_hcas(facts: Facts, nics: Collection[str]) -> str | None:
    """Return the NCCL_IB_HCA that names, exactly, the ports of the chosen NICs; else all active InfiniBand ports.

    NCCL by itself takes every active port. None where there is none.
    """
    ports = active_ports(facts)
    own = [port for port in ports if set(port.nics) & set(nics)]
    chosen = own or [port for port in ports if port.link == INFINIBAND]
    return "=" + ",".join(f"{port.adapter}:{port.port}" for port in chosen) if chosen else None
