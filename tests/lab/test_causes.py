"""Causes that only a real run can show; recorded ones are replayed in tests/plans/test_cause_replay.py."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from driving import cctl, leftovers, make_project, read_until, start_cctl
from waiting import HANG, wait_until

from clusterctl.lab.labs import Lab

pytestmark = pytest.mark.lab

WAITING = """
import datetime, os, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
short = dist.new_group(timeout=datetime.timedelta(seconds=8))
print("pid", os.getpid(), flush=True)
while not os.path.exists("/tmp/go-on"):
    time.sleep(0.05)
dist.all_reduce(torch.ones(1), group=short)
"""


def test_a_rank_that_sigstop_holds_is_never_forgotten(cluster: Lab, tmp_path: Path) -> None:
    """status and the watching launch say that it is stopped; when the others give up, it is the cause, not they."""
    launching = start_cctl(cluster, "launch", make_project(tmp_path, WAITING, nodes=2))
    node, pids = cluster.nodes[1], dict[str, str]()
    while len(pids) < 2:
        name, _, _, _, pid = read_until(launching, "pid ").split()
        pids[name] = pid
    node.run(["kill", "-STOP", pids[node.name]])

    with ThreadPoolExecutor() as pool:

        def stopped() -> tuple[list[int], bool]:
            shown, told = pool.map(
                lambda words: cctl(cluster, *words).out, (["status"], ["status", "--json"])
            )
            ranks = [rank for node in json.loads(told)["nodes"] for rank in node["ranks"]]
            return [rank["rank"] for rank in ranks if rank["stopped"]], "r1 stopped (SIGSTOP)" in " ".join(
                shown.split()
            )

        wait_until(lambda: stopped() == ([1], True), "the stopped rank in both")
    cluster.nodes[0].run(["touch", "/tmp/go-on"])
    _, err = launching.communicate(timeout=HANG)

    cluster.nodes[0].run(["rm", "/tmp/go-on"])
    assert launching.returncode == 1
    assert f"{node.name}: rank 1 is stopped (SIGSTOP)" in err
    assert f"root cause: rank 1 on {node.name}, for which the others waited in vain" in err
    assert "somebody had stopped it with SIGSTOP" in err
    assert "CC-JOB-050" in err
    assert leftovers(cluster) == {}
