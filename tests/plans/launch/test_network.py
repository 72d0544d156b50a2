"""Which address and NICs a node trains with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from cases import change, healthy_answer

from clusterctl.plans.facts.facts import parse_facts
from clusterctl.plans.launch.network import resolve_network, route_nic
from clusterctl.protocol.messages.facts import Facts
from clusterctl.specs.inventory.model import Node

NODE = Node(name="gpu1", index=0, host="10.0.0.1")


def facts(**changes: Any) -> Facts:
    """Give the facts of healthy node gpu1 with some values changed; `__` stands for a dot."""
    raw = healthy_answer(1)
    for path, value in changes.items():
        change(raw, path.replace("__", "."), value)
    return parse_facts(raw)


@pytest.mark.parametrize(
    ("node", "ip", "nics"),
    [
        (NODE, "10.0.0.1", ("eth0",)),
        (replace(NODE, ip="10.9.0.1"), "10.9.0.1", ("ib0",)),
        (replace(NODE, network="10.9.0.0/24"), "10.9.0.1", ("ib0",)),
        (replace(NODE, network="10.0.0.0/8"), "10.0.0.1", ("eth0", "ib0")),
        (replace(NODE, ip="10.9.0.1", network="10.0.0.0/8"), "10.9.0.1", ("ib0", "eth0")),
        (replace(NODE, nic=("ib0",)), "10.9.0.1", ("ib0",)),
        (replace(NODE, nic=("ib0", "eth0")), "10.0.0.1", ("ib0", "eth0")),
        (replace(NODE, nic=("eth0",), network="10.9.0.0/24"), "10.0.0.1", ("eth0",)),
        (replace(NODE, nic=("ib0",), network="10.9.0.0/24"), "10.9.0.1", ("ib0",)),
    ],
    ids=[
        "host",
        "ip",
        "network",
        "wide network",
        "ip and network",
        "nic",
        "two nics",
        "nic beats network",
        "both",
    ],
)
def test_choice(node: Node, ip: str, nics: tuple[str, ...]) -> None:
    """The inventory's words decide, in this order: ip, nic, network, host."""
    network = resolve_network(node, facts())
    assert (network.ip, network.nics, network.problems) == (ip, nics, ())


def test_name_is_resolved_on_the_node() -> None:
    """A host given by name means what it means on the node."""
    network = resolve_network(
        replace(NODE, host="gpu1"), facts(address={"host": "gpu1", "addresses": ["10.9.0.1"]})
    )
    assert (network.ip, network.nics, network.source) == ("10.9.0.1", ("ib0",), "host gpu1 on the node")


def test_name_with_several_addresses_prefers_the_nodes_own() -> None:
    """Of the addresses that a name has, one that the node has is chosen."""
    reported = {"host": "gpu1", "addresses": ["203.0.113.9", "10.0.0.1"]}
    assert resolve_network(replace(NODE, host="gpu1"), facts(address=reported)).ip == "10.0.0.1"


@pytest.mark.parametrize("addresses", [["127.0.1.1"], []])
def test_useless_name_falls_back_to_where_ssh_arrived(addresses: list[str]) -> None:
    """Debian maps a machine's own name to 127.0.1.1; an alias of ~/.ssh/config does not resolve at all."""
    network = resolve_network(
        replace(NODE, host="gpu1"), facts(address={"host": "gpu1", "addresses": addresses})
    )
    assert (network.ip, network.nics) == ("10.0.0.1", ("eth0",))
    assert network.source.startswith("where SSH arrived")


def test_nothing_leads_to_an_address() -> None:
    """Without any usable address there is a problem and no guess."""
    reported = facts(address={"host": "gpu1", "addresses": []}, machine__ssh_address="127.0.0.1")
    network = resolve_network(replace(NODE, host="gpu1"), reported)
    assert network.ip is None and network.nics == ()
    assert [problem.kind for problem in network.problems] == ["no-address"]


@pytest.mark.parametrize(
    ("node", "changes", "kind"),
    [
        (replace(NODE, nic=("eth1",)), {}, "nic-missing"),
        (NODE, {"nics__1__running": False}, "nic-down"),
        (replace(NODE, nic=("ib0",)), {"nics__2__addresses": []}, "nic-without-address"),
        (replace(NODE, ip="10.0.0.77"), {}, "address-on-no-nic"),
        (replace(NODE, ip="10.0.0.1", nic=("ib0",)), {}, "address-on-other-nic"),
    ],
)
def test_problem(node: Node, changes: dict[str, Any], kind: str) -> None:
    """Each contradiction between inventory and node has its own kind, reported once."""
    assert [problem.kind for problem in resolve_network(node, facts(**changes)).problems] == [kind]


def test_loopback_addresses_belong_to_lo() -> None:
    """All of 127.0.0.0/8 is there, though only 127.0.0.1 is listed."""
    network = resolve_network(replace(NODE, host="127.0.3.1"), facts())
    assert (network.ip, network.nics, network.problems) == ("127.0.3.1", ("lo",), ())


def test_without_facts_only_the_inventory_counts() -> None:
    """A dry run knows literal addresses and named NICs, and guesses nothing."""
    assert resolve_network(NODE, None).ip == "10.0.0.1"
    assert resolve_network(replace(NODE, network="10.9.0.0/24"), None).ip is None
    assert resolve_network(replace(NODE, host="gpu1", nic=("eth0",)), None).nics == ("eth0",)


def test_an_address_that_is_none_is_not_used() -> None:
    """What a node calls its address goes into commands, so it must be one."""
    reported = facts(nics__1__addresses=[{"ip": "10.0.0.1;reboot", "family": 4}])
    assert resolve_network(replace(NODE, nic=("eth0",)), reported).problems[0].kind == "nic-without-address"


def test_route_takes_the_longest_prefix() -> None:
    """The routing table is read as the kernel reads it."""
    assert route_nic(facts(), "10.9.0.7") == "ib0"
    assert route_nic(facts(), "8.8.8.8") == "eth0"
    assert route_nic(facts(routing=[]), "8.8.8.8") is None
    assert route_nic(facts(routing__0__usable=False), "8.8.8.8") is None


def test_route_with_rubbish_in_the_table() -> None:
    """Rows that are no networks match nothing."""
    assert (
        route_nic(facts(routing=[{"nic": "x", "to": "everywhere", "prefix": 99, "usable": True}]), "1.2.3.4")
        is None
    )
