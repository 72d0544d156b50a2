"""The proof on the wire between real nodes: firewalls, black holes and dead links are named by the nodes concerned."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from driving import HELLO, cctl, make_project
from waiting import wait_until

from clusterctl.lab.labs import break_node
from clusterctl.lab.linux import find_program

if TYPE_CHECKING:
    from conftest import Bed

TABLE = """
table ip proof {
  chain i { type filter hook input priority 0; }
  chain o { type filter hook output priority 0; }
}
"""


def set_firewall(lab: Bed, node: str, *rules: str) -> None:
    """Give a node firewall rules; skips where that cannot be shown."""
    if shutil.which("nft", path="/usr/sbin:/sbin:/usr/bin:/bin") is None:
        pytest.skip("nft is not installed: apt install nftables")
    text = TABLE + "".join(f"add rule ip proof {rule}\n" for rule in rules)
    done = lab.find_node(node).run([find_program("nft"), "-f", "-"], input=text, check=False)
    if done.returncode:
        pytest.skip(f"a node of this lab cannot have a firewall: {' '.join(done.stderr.split())[:200]}")


def listeners(lab: Bed) -> dict[str, list[str]]:
    """List the sockets that listen on each node."""
    tables = {node.name: node.run(["cat", "/proc/net/tcp"]).stdout.splitlines()[1:] for node in lab.nodes}
    return {
        name: sorted(row.split()[1] for row in rows if row.split()[3] == "0A")
        for name, rows in tables.items()
    }


def test_eight_sound_nodes(make_lab: Callable[..., Bed]) -> None:
    """All reach all, and nobody listens any more."""
    lab = make_lab(n=8)
    before = listeners(lab)
    result = cctl(lab, "check", "--json")
    told = json.loads(result.out)
    assert (result.code, told["findings"]) == (0, []), result.err
    wire = told["wire"]
    assert [way for way in wire["ways"] if not way["open"]] == []
    assert len(wire["ways"]) == 8 * 7 + 7
    wait_until(lambda: listeners(lab) == before, "nothing listens any more")


def test_a_launch_names_both_ends_of_a_closed_way(make_lab: Callable[..., Bed], tmp_path: Path) -> None:
    """A firewall that keeps out one node starts nothing; the finding says who does not reach whom, and how to look."""
    lab = make_lab(n=4)
    address = lab.find_node("gpu02").plan.ip
    set_firewall(lab, "gpu03", f"i ip saddr {address} tcp flags & (syn|ack) == syn drop")
    result = cctl(lab, "launch", make_project(tmp_path / "job", HELLO))
    assert result.code == 3, result.out + result.err
    said = " ".join(result.err.split())
    assert "error CC-NET-030: two nodes cannot connect to each other (gpu[02-03])" in said
    assert (
        "gpu02 -> gpu03 blocked (no answer within 2.5 s), all 11 other connections work: a firewall on gpu03?"
        in said
    )
    assert "nft list ruleset" in said
    assert f"for connections from {address}" in said


def test_each_fault_has_its_own_finding(make_lab: Callable[..., Bed], tmp_path: Path) -> None:
    """A dead link, a black hole for large packets, a closed master port and a firewall on the second NIC at once."""
    lab = make_lab(n=5, nics=["eth0+meth0"])
    both = tmp_path / "both.yaml"
    both.write_text(lab.inventory.read_text().replace('nic: ["meth0"]', "nic: [meth0, eth0]"))
    before = listeners(lab)
    training = {node.name: node.plan.ip for node in lab.nodes}
    set_firewall(lab, "gpu03", f"o ip saddr {training['gpu03']} ip length > 1400 drop")
    outside = "{ 0-32767, 61000-65535 }"  # of the ports that the kernel hands out: where a master's is chosen
    set_firewall(lab, "gpu01", f"i ip saddr {training['gpu04']} tcp dport {outside} drop")
    set_firewall(
        lab, "gpu05", f"i ip saddr {lab.find_node('gpu04').plan.host} tcp flags & (syn|ack) == syn drop"
    )
    break_node(lab, "gpu02", "nic-down")
    result = cctl(lab, "-i", both, "check", "--json")
    found = {one["code"]: one for one in json.loads(result.out)["findings"]}
    assert result.code == 3
    del found["CC-NET-006"]  # it follows from 002
    assert {code: one["nodes"] for code, one in found.items()} == {
        "CC-NET-002": ["gpu02"],
        "CC-NET-030": ["gpu04", "gpu05"],
        "CC-NET-031": ["gpu03"],
        "CC-NET-033": ["gpu01", "gpu04"],
    }
    assert "gpu04 -> gpu05 blocked in 10." in found["CC-NET-030"]["evidence"]
    assert "from gpu03: 0 of 256 KiB arrived, segments of 1448 bytes" in found["CC-NET-031"]["evidence"]
    assert "mtu 1400" in found["CC-NET-031"]["fix"]
    assert "gpu04 -> gpu01, port" in found["CC-NET-033"]["evidence"]
    wait_until(lambda: listeners(lab) == before, "nothing listens any more")
