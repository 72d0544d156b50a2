"""Which NIC a discovered machine gets, and that what is written is an inventory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from cases import change, healthy_answer
from variants import VARIANT

from clusterctl.errors import AuthenticationFailed, Location, Unreachable
from clusterctl.plans.discover import DiscoveredCluster, plan_discovery
from clusterctl.plans.facts.facts import parse_facts
from clusterctl.protocol.messages.facts import Facts
from clusterctl.specs.importers.imported import Imported, ImportedHost
from clusterctl.specs.inventory.model import Inventory, Node
from clusterctl.specs.inventory.parse import parse_inventory
from clusterctl.specs.render import render_discovered
from clusterctl.specs.yaml.reader import read_tree
from clusterctl.specs.yaml.tree import YamlList, YamlScalar, render_scalar

CLOSED = Unreachable("CC-SSH-002", target="192.0.2.2 port 22")


def facts_of(number: int, changes: dict[str, Any]) -> Facts:
    """Give the facts of healthy node gpuN, changed; its NICs are eth0 in 10.0.0.0/24 and ib0 in 10.9.0.0/24."""
    raw = healthy_answer(number)
    for path, value in changes.items():
        change(raw, path, value)
    return parse_facts(raw)


def discovered(count: int, changes: dict[int, dict[str, Any]] | None = None, *lost: int) -> DiscoveredCluster:
    """Discover gpu1, gpu2, ...; `changes` of number 0 are for all."""
    told = changes or {}
    nodes = [Node(name=f"gpu{n}", index=n - 1, host=f"gpu{n}") for n in range(1, count + 1)]
    facts = {
        f"gpu{n}": facts_of(n, {**told.get(0, {}), **told.get(n, {})})
        for n in range(1, count + 1)
        if n not in lost
    }
    return plan_discovery(nodes, facts, {f"gpu{n}": CLOSED for n in lost})


def written(found: DiscoveredCluster, **way: Any) -> tuple[str, Inventory]:
    """Write an inventory and read it again."""
    place = Location("x", 1, 1)
    hosts = tuple(ImportedHost(name=name, host=name, location=place, **way) for name in found.nodes)
    text = render_discovered(Imported("k", "f", hosts, ()), "lab-a", found.nodes, found.advice)
    return text, parse_inventory(text, "made.yaml")


def test_the_fastest_network_that_all_share() -> None:
    """A faster network wins over the one that SSH uses, and the address is given as it is not the host's."""
    found = discovered(2, {0: {"nics.2.speed": 200000}})
    assert [(one.nic, one.ip) for one in found.nodes.values()] == [
        (("ib0",), "10.9.0.1"),
        (("ib0",), "10.9.0.2"),
    ]
    assert "All 2 nodes have an address in 10.9.0.0/24 (200 Gbit/s): training uses it." in found.advice
    assert "All of them are also in 10.0.0.0/24 (100 Gbit/s)." in found.advice


def test_equal_networks_and_ssh() -> None:
    """Among equals the network by which SSH came stays."""
    assert {one.nic for one in discovered(3).nodes.values()} == {("eth0",)}


def test_the_slowest_link_counts() -> None:
    """A network in which one node is slow is as slow as that node; a NIC without a link is none."""
    slow = discovered(2, {0: {"nics.2.speed": 200000}, 2: {"nics.2.speed": 1000}})
    assert {one.nic for one in slow.nodes.values()} == {("eth0",)}
    down = discovered(2, {0: {"nics.2.speed": 200000}, 2: {"nics.2.running": False}})
    assert {one.nic for one in down.nodes.values()} == {("eth0",)}


@pytest.mark.parametrize("name", ["docker0", "br-1f2e", "tailscale0", "eth0:1", "a b"])
def test_bridges_and_strange_names_are_not_chosen(name: str) -> None:
    """What every host has under one address, and what NCCL could not be told, carries no training."""
    found = discovered(2, {0: {"nics.2.speed": 400000, "nics.2.name": name}})
    assert {one.nic for one in found.nodes.values()} == {("eth0",)}


def test_no_common_network() -> None:
    """Each gets what its host leads to, and the file says so."""
    found = discovered(
        2,
        {
            2: {
                "nics.1.addresses.0.ip": "10.1.0.2",
                "nics.2.addresses": [],
                "address": {"host": "gpu2", "addresses": ["10.1.0.2"]},
            }
        },
    )
    assert [(one.nic, one.ip) for one in found.nodes.values()] == [
        (("eth0",), "10.0.0.1"),
        (("eth0",), "10.1.0.2"),
    ]
    assert any("The nodes have no network in common" in line for line in found.advice)


def test_what_is_written_is_an_inventory() -> None:
    """Keys for what was chosen, comments for the rest; who did not answer stands in comments."""
    found = discovered(3, {0: {"nics.2.speed": 200000, "infiniband.0.nics": ["ib0"]}}, 2)
    text, inventory = written(found, user="alice", port=2222)
    assert [(node.name, node.nic, node.ip, node.gpus) for node in inventory.nodes] == [
        ("gpu1", ("ib0",), "10.9.0.1", 2),
        ("gpu3", ("ib0",), "10.9.0.3", 2),
    ]
    assert {(node.ssh.user, node.ssh.port) for node in inventory.nodes} == {("alice", 2222)}
    assert (
        "    # ib0: 200 Gbit/s, MTU 4092\n    # there is also: eth0 10.0.0.1/24 (100 Gbit/s, MTU 9000)\n"
        in text
    )
    assert "mlx5_0:1 InfiniBand 200 Gb/sec; NCCL_IB_HCA==mlx5_0:1 selects them" in text
    left_out = "# Not reached, so left out:\n#  - host: gpu2\n#    # not read yet: CC-SSH-002 "
    assert left_out + "192.0.2.2 port 22 refused the connection\n" in text


def test_a_machine_that_answered_stays() -> None:
    """Its server refused the login, or it has no Python: it is a node, and a comment tells what was not read."""
    nodes, facts = (Node(name="a", index=0, host="a"), Node(name="b", index=1, host="b")), {"a": Facts()}
    refused = AuthenticationFailed(
        "CC-SSH-007", node="b", server="b port 22", user="me", reason="", command="", copy_command=""
    )

    text, inventory = written(plan_discovery(nodes, facts, {"b": refused}))

    assert [node.name for node in inventory.nodes] == ["a", "b"]
    assert "  - host: b\n    # not read yet: CC-SSH-007 " in text


def test_hostile_answers_stay_in_comments() -> None:
    """A node cannot write keys into the file by what it says of itself."""
    found = discovered(
        2, {1: {"torch.version": "1\nssh: {proxy_command: evil}", "gpus.devices.0.name": "x\u2028nodes:"}}
    )
    text, inventory = written(found)
    assert len(inventory.nodes) == 2
    assert all(line.lstrip().startswith("#") for line in text.splitlines() if "evil" in line)


def test_every_host_keeps_its_own_python() -> None:
    """One that all have stands at the top; else each host's stands with it."""
    place, found = Location("x", 1, 1), discovered(3)
    for pythons, top in ((("/a", "/a", "/a"), "/a"), (("/a", "/b", None), "python3")):
        hosts = tuple(
            ImportedHost(name=name, host=name, location=place, python=python)
            for name, python in zip(found.nodes, pythons, strict=True)
        )
        text = render_discovered(Imported("k", "f", hosts, ()), "lab-a", found.nodes, found.advice)
        assert [node.python for node in parse_inventory(text, "x").nodes] == [one or top for one in pythons]


HOSTILE = "\n- host: evil\n  ssh: {proxy_command: id}\r\x85\u2028\u2029" + "".join(
    map(chr, [*range(32), *range(0x7F, 0xA0), *range(0x200B, 0x2010), *range(0x202A, 0x202F), 0x2066, 0xFEFF])
)
STRANGE = (HOSTILE, 'a" b', "a' #b: c", "{a: [b", "\ud800", "&a *a !a %a", "0x10", "~", "")


def leaves(raw: Any, path: str = "") -> list[str]:
    """List where a text stands in what a machine says."""
    if isinstance(raw, str):
        return [path.lstrip(".")]
    pairs = raw.items() if isinstance(raw, dict) else enumerate(raw) if isinstance(raw, list) else ()
    return [leaf for key, value in pairs for leaf in leaves(value, f"{path}.{key}")]


def check_inventory(changes: dict[str, str]) -> None:
    """Check the file for two machines of which one says something else in some fields."""
    whole, inventory = written(discovered(2, {1: changes}))
    assert all(line.isprintable() for line in whole.split("\n")), changes
    assert [node.host for node in inventory.nodes] == ["gpu1", "gpu2"]
    assert not any(node.ssh.proxy_command for node in inventory.nodes)


@pytest.mark.parametrize("text", STRANGE)
def test_no_text_of_a_machine_spoils_the_inventory(text: str) -> None:
    """In all fields: the file can be read, has the same nodes and ways, and holds nothing that a terminal acts on."""
    fields = leaves(healthy_answer(1))
    assert len(fields) > 30
    check_inventory(dict.fromkeys(fields, text))


@pytest.mark.parametrize(
    "text", [pytest.param(text, marks=VARIANT if place > 1 else ()) for place, text in enumerate(STRANGE)]
)
def test_no_text_in_a_single_field_spoils_the_inventory(text: str) -> None:
    """The same where all other fields say what they should; what YAML reads as something else is tested below."""
    for field in leaves(healthy_answer(1)):
        check_inventory({field: text})


def test_why_a_machine_did_not_answer_is_a_comment() -> None:
    """Whatever it said."""
    found = discovered(2, None, 2)
    lost = {**found.nodes, "gpu2": replace(found.nodes["gpu2"], failure=HOSTILE)}
    whole, inventory = written(replace(found, nodes=lost))
    assert all(line.isprintable() for line in whole.split("\n"))
    assert [node.host for node in inventory.nodes] == ["gpu1"]


@pytest.mark.parametrize("text", STRANGE)
def test_a_value_is_read_as_it_was(text: str) -> None:
    """In quotes where it must be; what YAML cannot hold at all is not written raw either."""
    line = render_scalar(text)
    assert line.isprintable()
    if "\ud800" not in text:
        tree, issues = read_tree(f"[{line}]", Location("f", 1, 1))
        assert isinstance(tree, YamlList)
        (item,) = tree.items
        assert isinstance(item, YamlScalar)
        assert item.text == text or "\0" in text
        assert not issues or "\0" in text
