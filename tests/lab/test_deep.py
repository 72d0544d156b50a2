"""`check --deep` on real nodes: a real torchrun, a NIC that is really slow, and nothing left."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator

import pytest
from driving import cctl, leftovers, running_processes, start_cctl, tagged
from waiting import HANG, wait_until

from clusterctl.lab.labs import Lab

SLOW = ["tbf", "rate", "30mbit", "burst", "32kb", "latency", "50ms"]


@pytest.fixture
def slow_third(cluster: Lab) -> Iterator[Lab]:
    """Let the third node's NIC send 30 Mbit/s at most."""
    third = cluster.nodes[2]
    nic = third.plan.training_nic
    done = third.run(["tc", "qdisc", "add", "dev", nic, "root", *SLOW], check=False)
    if done.returncode:
        pytest.skip(f"tc cannot slow a NIC here: {done.stderr.strip()}")
    yield cluster
    third.run(["tc", "qdisc", "del", "dev", nic, "root"])


def test_a_slow_nic_is_named(slow_third: Lab) -> None:
    """The sums are right, the third node is slow with both others, and no trace of the check stays on the nodes."""
    result = cctl(slow_third, "check", "--deep", "--json")

    assert result.code == 0, result.err
    told = json.loads(result.out)
    slow = [finding for finding in told["findings"] if finding["code"] == "CC-DEEP-004"]
    assert [finding["nodes"] for finding in slow] == [["gpu03"]], told["deep"]
    assert [one["kind"] for one in told["deep"]["rounds"]][:4] == ["all", "pairs", "pairs", "pairs"]
    whole = told["deep"]["rounds"][0]["groups"][0]
    assert (whole["ok"], whole["nodes"]) == (True, ["gpu01", "gpu02", "gpu03"])
    assert told["deep"]["found"] == {
        "ok": True,
        "nodes": [],
        "links": [],
        "slow_nodes": ["gpu03"],
        "slow_links": [],
        "rest": None,
    }
    assert leftovers(slow_third) == tagged(slow_third) == {}
    assert "deep-check" not in remembered(slow_third)


def test_ctrl_c_leaves_nothing(cluster: Lab) -> None:
    """Also where the nodes are only getting ready."""
    checking = start_cctl(cluster, "check", "--deep")
    wait_until(lambda: len(tagged(cluster, "deep-check")) == 3, "all nodes prepare")
    os.killpg(checking.pid, signal.SIGINT)
    _, err = checking.communicate(timeout=HANG)

    assert checking.returncode == 130 and "Traceback" not in err
    wait_until(lambda: running_processes(cluster) == {}, "nothing is left")
    assert "deep-check" not in remembered(cluster)


def remembered(lab: Lab) -> str:
    """Name the runs that the nodes remember."""
    listings = [node.run(["sh", "-c", "ls ~/.clusterctl/runs"]) for node in lab.nodes]
    return "".join(listing.stdout for listing in listings)
