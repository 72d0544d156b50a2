"""`inventory discover` against real nodes, two of whose NICs no one has written down."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from driving import cctl

from clusterctl.specs.inventory.parse import parse_inventory

if TYPE_CHECKING:
    from conftest import Bed


def test_discovered_nodes_pass_the_check(make_lab: Callable[..., Bed], tmp_path: Path) -> None:
    """The written file names each node's own NIC and is fit; a host that is not there is left out, exit code 5."""
    lab = make_lab(n=2)
    target = tmp_path / "made.yaml"
    words = [
        "inventory",
        "discover",
        "gpu[01-02]",
        "nowhere.invalid",
        "--ssh-config",
        lab.ssh_config,
        "-o",
        target,
    ]
    made = cctl(None, *words)
    assert made.code == 5, made.err
    text = target.read_text()
    inventory = parse_inventory(text, "made.yaml")
    assert [(node.nic, node.ip) for node in inventory.nodes] == [
        ((node.plan.training_nic,), node.plan.ip) for node in lab.nodes
    ]
    assert "# Not reached, so left out:\n#  - host: nowhere.invalid\n" in text
    again = cctl(None, *words)
    assert (again.code, "CC-USE-040" in again.err, target.read_text()) == (2, True, text)
    checked = cctl(None, "-i", target, "check")
    assert "network: all 2 connections work" in checked.out, checked.out + checked.err
