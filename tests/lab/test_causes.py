"""Causes that only a real run can show; recorded ones are replayed in tests/plans/test_cause_replay.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from driving import cctl, leftovers, make_project, read_until, start_cctl, wait_for

from clusterctl.lab.labs import Lab

pytestmark = pytest.mark.lab

WAITING = """
import datetime, os, time, torch, torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=8))
print("pid", os.getpid(), flush=True)
while True:
    dist.all_reduce(torch.ones(1))
    time.sleep(0.05)
"""


def test_a_rank_that_sigstop_holds_is_never_forgotten(cluster: Lab, tmp_path: Path) -> None:
    """status and the watching launch say that it is stopped; when the others give up, it is the cause, not they."""
    launching = start_cctl(cluster, "launch", make_project(tmp_path, WAITING))
    node, pids = cluster.nodes[1], dict[str, str]()
    while len(pids) < 3:
        name, _, _, _, pid = read_until(launching, "pid ").split()
        pids[name] = pid
    node.run(["kill", "-STOP", pids[node.name]])

    def stopped() -> list[int]:
        nodes = json.loads(cctl(cluster, "status", "--json").out)["nodes"]
        return [rank["rank"] for told in nodes for rank in told["ranks"] if rank["stopped"]]

    assert wait_for(stopped, 8, "the stopped rank in status") == [1]
    shown = cctl(cluster, "status")
    _, err = launching.communicate(timeout=60)

    assert "r1 stopped (SIGSTOP)" in " ".join(shown.out.split())
    assert launching.returncode == 1
    assert f"{node.name}: rank 1 is stopped (SIGSTOP)" in err
    assert f"root cause: rank 1 on {node.name}, for which the others waited in vain" in err
    assert "somebody had stopped it with SIGSTOP" in err
    assert "CC-JOB-050" in err
    assert leftovers(cluster) == {}
