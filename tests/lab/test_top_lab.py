"""`top` on real nodes, with simulated GPUs: one look, many looks, a node that freezes, and nothing left."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from driving import cctl, start_cctl
from waiting import HANG, wait_until

from clusterctl.lab.labs import Lab

SIM = "/tmp/simtop"
SMI = "#!/bin/sh\necho '0, Simulated GPU, 93, 1024, 81920, 66, 300.5'\n"  # SIMULATED: there is no GPU


@pytest.fixture
def inventory(cluster: Lab, tmp_path: Path) -> Iterator[str]:
    """Write an inventory whose nodes see one simulated GPU each."""
    for node in cluster.nodes:
        script = f"mkdir -p {SIM} && cat > {SIM}/nvidia-smi && chmod 755 {SIM}/nvidia-smi"
        node.run(["sh", "-c", script], input=SMI)
    path = tmp_path / "inventory.yaml"
    path.write_text(cluster.inventory.read_text() + f'activate: "export PATH={SIM}:$PATH"\n')
    yield str(path)
    for node in cluster.nodes:
        node.run(["rm", "-rf", SIM])


def listening(lab: Lab) -> dict[str, list[int]]:
    """Give the processes of conversations by node."""
    found = {
        node.name: [process.pid for process in node.list_processes() if "clusterctl-boot" in process.command]
        for node in lab.nodes
    }
    return {name: pids for name, pids in found.items() if pids}


def test_a_node_that_freezes_is_shown_and_the_others_go_on(cluster: Lab, inventory: str) -> None:
    """One look has every GPU; of many looks the frozen node's grow old while the others' are new; Ctrl-C ends all."""
    once = cctl(None, "-i", inventory, "top", "--once")
    assert once.code == 0, once.err
    assert [line.split()[0] for line in once.out.splitlines()] == [
        "NODE",
        "gpu01",
        "gpu02",
        "gpu03",
        "3",
        "the",
    ]
    rows = [line.split() for line in once.out.splitlines()[1:4]]
    assert [row[1:4] for row in rows] == [["█", "93", "%"]] * 3  # the processor may be as busy
    assert "3 GPUs: 93 % busy" in once.out

    watching = start_cctl(cluster, "-i", inventory, "top", "--json", "--interval", "0.3")
    assert watching.stdout is not None

    def look() -> dict[str, Any]:
        assert watching.stdout is not None
        return {one["name"]: one for one in json.loads(watching.stdout.readline())["nodes"]}

    def age(seen: dict[str, Any]) -> float:
        """How much older the second node's numbers are than those of both others."""
        return float(seen["gpu02"]["age"] - max(seen["gpu01"]["age"], seen["gpu03"]["age"]))

    wait_until(lambda: all(one["answered"] for one in look().values()), "all nodes answer")
    (frozen,) = wait_until(
        lambda: found if len(found := listening(cluster).get("gpu02", [])) == 1 else None,
        "the first look has left",
    )
    second = cluster.find_node("gpu02")
    second.run(["kill", "-STOP", str(frozen)])
    try:
        old = wait_until(lambda: next((a for a in [look()] if age(a) > 1.5), None), "gpu02 falls silent")
        assert old["gpu02"]["sample"]["gpus"][0]["busy"] == 93
    finally:
        second.run(["kill", "-CONT", str(frozen)])
    wait_until(lambda: look()["gpu02"]["age"] < old["gpu02"]["age"], "gpu02 is heard again")

    os.killpg(watching.pid, signal.SIGINT)
    _, err = watching.communicate(timeout=HANG)
    assert watching.returncode == 130 and "Traceback" not in err
    wait_until(lambda: listening(cluster) == {}, "no conversation is left")
