"""Detached runs: the nodes end a failed run themselves, and any machine learns why, also when the launcher is gone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from driving import STUBBED, cctl, kill_leftovers, make_project, running_processes, tagged
from waiting import wait_until

from clusterctl.lab.labs import Lab

# Ranks that hang as in a collective; one raises when it is reported to.
HANGING = """
import os, time
print("settled", flush=True)
while not os.path.exists("/tmp/fail"):
    time.sleep(0.01)
raise ValueError("failed on purpose")
"""


@pytest.fixture(autouse=True)
def clean_nodes(cluster: Lab) -> Iterator[None]:
    """Keep one test's leftovers out of the next."""
    yield
    kill_leftovers(cluster)
    for node in cluster.nodes:
        node.run(["rm", "-f", "/tmp/fail"])


def settled(lab: Lab, run: str) -> bool:
    """Return whether every node runs its worker."""
    found = tagged(lab, run)
    return len(found) == 3 and all(any("train.py" in p.command for p in one) for one in found.values())


def test_a_detached_run_fails_as_one(cluster: Lab, tmp_path: Path) -> None:
    """A rank fails and all end; a stranger's status shows the cause."""
    job = make_project(tmp_path, HANGING, grace="1h", env=STUBBED)
    launched = cctl(cluster, "launch", "-d", job)
    run = launched.out.strip()
    assert launched.code == 0, launched.err
    assert "nobody watches" not in launched.err
    wait_until(lambda: settled(cluster, run), "workers everywhere")
    victim = cluster.nodes[1]

    victim.run(["touch", "/tmp/fail"])
    wait_until(lambda: running_processes(cluster) == {}, "all ended")

    fresh = {"XDG_STATE_HOME": str(tmp_path / "fresh"), "LOGNAME": "bob"}
    shown = cctl(cluster, "status", run, **fresh)
    told = json.loads(cctl(cluster, "status", run, "--json", **fresh).out)
    assert f"rank 1 on {victim.name}: ValueError: failed on purpose" in shown.out, shown.out
    assert (told["run"]["state"], told["cause"]["rank"]) == ("FAILED", 1)
    assert {node["state"] for node in told["nodes"]} == {"FAILED", "STOPPED"}
    attached = cctl(cluster, "attach", run, "--json", **fresh)
    assert (attached.code, attached.verdict()["cause"]["node"]) == (1, victim.name)
