"""Causes that only a real run can show; recorded ones are replayed in tests/plans/runs/test_cause_replay.py."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from driving import cctl, leftovers, make_project, read_until, start_cctl
from variants import VARIANT
from waiting import HANG, wait_until

from clusterctl.lab.labs import Lab

WAITING = """
import datetime, os, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
short = dist.new_group(timeout=datetime.timedelta(seconds=8))
print("pid", os.getpid(), flush=True)
while not os.path.exists("/tmp/go-on"):
    time.sleep(0.05)
dist.all_reduce(torch.ones(1), group=short)
"""


@VARIANT  # of worker-stopped in test_fault_matrix.py: here the others give up waiting
def test_a_rank_that_sigstop_holds_is_never_forgotten(cluster: Lab, tmp_path: Path) -> None:
    """status and the watching launch say that it is stopped; when the others give up, it is the cause, not they."""
    launching = start_cctl(cluster, "launch", make_project(tmp_path, WAITING, nodes=2, start="fork"))
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
    assert f"rank 1 on {node.name}: the other ranks waited for it until they timed out" in err
    assert "it was suspended by SIGSTOP" in err
    assert "CC-JOB-050" in err
    assert leftovers(cluster) == {}


ASLEEP = """
import atexit, sys, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
try:
    for step in range(1000):
        if step == 5 and rank == 1:
            atexit.register(time.sleep, 3600)
            sys.exit(0)
        dist.all_reduce(torch.ones(1))
finally:
    dist.destroy_process_group()
"""


def test_a_rank_that_left_early_and_sleeps_in_its_clean_up_is_the_cause(cluster: Lab, tmp_path: Path) -> None:
    """It ends only by our stop; launch, status and the nodes, which could start the run again, all name it."""
    restart = {"on": ["network", "node_lost"], "max": 1}
    job = make_project(tmp_path, ASLEEP, nodes=2, start="fork", restart=restart)
    launched = cctl(cluster, "launch", job)
    shown = cctl(cluster, "status")
    node = cluster.nodes[1].name
    named = f"rank 1 on {node}: stopped after it had closed its connections"

    assert launched.code == 1
    assert named in launched.err
    assert named in shown.out
    assert "CC-JOB-053" in launched.err
    assert "not started again: that is an error of the script" in launched.err
    assert leftovers(cluster) == {}
