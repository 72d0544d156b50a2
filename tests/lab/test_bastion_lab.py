"""A whole run through a bastion that only the user's own SSH files know, and what is said when it is down."""

from __future__ import annotations

import json
from pathlib import Path

from driving import STUBBED, cctl, leftovers, make_project, said
from routes import behind
from waiting import wait_until

from clusterctl.lab.labs import Lab, LabNode, break_node, heal_node


def sessions_at(node: LabNode) -> list[str]:
    """List the sessions of sshd on a node."""
    commands = [process.command for process in node.list_processes()]
    return [command for command in commands if command.startswith("sshd") and "@" in command]


def test_a_run_through_a_bastion(cluster: Lab, tmp_path: Path) -> None:
    """One login there carries check, code, run and logs; when its sshd is down the bastion is named."""
    inventory = behind(cluster, tmp_path)
    job = make_project(tmp_path / "job", "print('through')", env=STUBBED)
    launched = cctl(None, "-i", inventory, "launch", job, "--json")
    wait_until(lambda: not sessions_at(cluster.nodes[0]), "no session stays at the bastion")
    break_node(cluster, cluster.nodes[0].name, "sshd")
    try:
        refused = cctl(None, "-i", inventory, "check", "--json")
    finally:
        heal_node(cluster, cluster.nodes[0].name)

    assert launched.code == 0, launched.err
    assert said(launched.json_lines()) == ["through", "through"]
    assert set(launched.json_lines()[-1]["verdict"]["nodes"]) == {node.name for node in cluster.nodes[1:]}
    (finding,) = json.loads(refused.out)["findings"]
    assert (refused.code, finding["code"]) == (4, "CC-SSH-018")
    assert finding["nodes"] == [node.name for node in cluster.nodes[1:]]
    assert "the bastion gate" in finding["evidence"]
    assert leftovers(cluster) == {}
