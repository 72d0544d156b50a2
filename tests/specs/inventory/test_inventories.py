"""The annotated examples say what their comments say."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterctl.specs.inventory.model import Inventory, Ssh
from clusterctl.specs.inventory.parse import parse_inventory

INVENTORIES = Path(__file__).parents[3] / "inventories"


def load(name: str) -> Inventory:
    """Read one of the examples."""
    return parse_inventory((INVENTORIES / name).read_text(encoding="utf-8"), name)


def test_minimal() -> None:
    """Hosts are names, and all else is default."""
    inventory = load("minimal.yaml")

    assert inventory.cluster == "pair"
    assert [(node.name, node.host, node.index) for node in inventory.nodes] == [
        ("gpu01", "gpu01", 0),
        ("gpu02", "gpu02", 1),
    ]
    assert {(node.ssh, node.python, node.nic, node.ip) for node in inventory.nodes} == {
        (Ssh(), "python3", (), None)
    }


def test_two_nics_each() -> None:
    """NICs have other names on each node; a node's port leaves user and key alone."""
    first, second = load("two-nics-each.yaml").nodes

    assert (first.host, first.nic) == ("192.168.10.235", ("meth919", "meth920"))
    assert (second.host, second.nic) == ("192.168.10.236", ("meth917", "meth918"))
    assert first.ssh == Ssh(user="root", key="~/.ssh/id_ed25519", host_keys="accept-new")
    assert second.ssh == Ssh(user="root", port=2222, key="~/.ssh/id_ed25519", host_keys="accept-new")
    assert [(node.gpus, node.python) for node in (first, second)] == [(4, "/opt/conda/bin/python")] * 2


def test_behind_one_address() -> None:
    """One host, a port for each node, and a network instead of NIC names."""
    first, second, third = load("behind-one-address.yaml").nodes

    assert [(node.name, node.host, node.ssh.port) for node in (first, second)] == [
        ("rack-01", "lab.example.org", 2201),
        ("rack-02", "lab.example.org", 2202),
    ]
    assert (first.network, first.nic, first.ip) == ("10.20.0.0/16", (), None)
    assert (third.network, third.nic, third.ip) == ("10.20.0.0/16", ("eno2",), "10.20.0.3")
    assert (second.activate, third.activate) == (
        "source /etc/profile.d/modules.sh && module load cuda/12.4",
        None,
    )
    assert third.ssh == Ssh(
        user="trainer",
        jump="trainer@lab.example.org:2201",
        known_hosts="~/.ssh/known_hosts.basement",
    )
    assert {(node.ports, node.workdir) for node in (first, second, third)} == {
        ((20000, 20100), "/scratch/clusterctl")
    }


@pytest.mark.parametrize("path", sorted(INVENTORIES.glob("*.yaml")), ids=lambda path: path.name)
def test_each_example_tells_editors_its_schema(path: Path) -> None:
    """And the path to it is right."""
    first = path.read_text(encoding="utf-8").splitlines()[0]

    assert first.startswith("# yaml-language-server: $schema=")
    assert (INVENTORIES / first.partition("=")[2]).is_file()
