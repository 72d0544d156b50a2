"""A run that its nodes start again: real torchrun, a killed worker, node 0 without power, and nobody who watches."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from driving import cctl, leftovers, make_project, read_until, running_processes, start_cctl
from waiting import wait_until

from clusterctl.lab.labs import Lab, break_node, heal_node
from clusterctl.specs.nodeset import fold_names

# Counts to 40 together, every node keeping the count; a later attempt goes on at the highest that any of them has.
# The count replaces the one before it whole: a rank may be killed at any instruction, between two writes too.
COUNTING = """
import os, pathlib, signal, time
import torch, torch.distributed as dist

dist.init_process_group("gloo")
attempt, rank = int(os.environ["CLUSTERCTL_ATTEMPT"]), dist.get_rank()
file = pathlib.Path(os.environ["CLUSTERCTL_OUTPUT_DIR"], "count")
count = torch.tensor([int(file.read_text()) if attempt > 1 and file.exists() else 0])
dist.all_reduce(count, dist.ReduceOp.MAX)
print("attempt", attempt, "begins at", int(count), flush=True)
while count < 40:
    one = torch.ones(1)
    dist.all_reduce(one)
    count += 1
    new = file.with_suffix(".new")
    new.write_text(str(int(count)))
    os.replace(new, file)
    if attempt == 1 and rank == 1 and count == 10:
        os.kill(os.getpid(), signal.SIGKILL)
    while attempt == 2 and rank == 0 and count == 15:
        time.sleep(0.1)  # until its node has no power; the other rank waits for it in the next all_reduce
dist.destroy_process_group()
"""


def test_a_worker_is_killed_and_then_node_0_has_no_power(
    make_lab: Callable[..., Lab], tmp_path: Path
) -> None:
    """Attempt 2 is seen on the screen; attempt 3 runs with a spare and a new leader when the launcher is long gone."""
    lab = make_lab(n=3)
    first, second, spare = (node.name for node in lab.nodes)
    job = make_project(tmp_path, COUNTING, nodes=2, start="fork", restart={"spares": 1})
    launcher = start_cctl(lab, "launch", job, "--json")
    seen = json.loads(read_until(launcher, "attempt 2 begins at 10"))
    run = seen["run"]
    launcher.kill()
    notices = launcher.communicate()[1]
    wait_until(lambda: int(count_on(lab, second) or 0) > 10, "the count goes on")
    break_node(lab, first, "power")
    wait_until(lambda: running_processes(lab) == {}, "the run ends")
    heal_node(lab, first)

    stranger = {"XDG_STATE_HOME": str(tmp_path / "fresh"), "LOGNAME": "bob"}
    told = json.loads(cctl(lab, "status", run, "--json", **stranger).out)
    assert f"attempt 1: rank 1 on {second}, killed by SIGKILL; attempt 2 begins in 1 s" in notices, notices
    assert f"attempt 2 begins on {fold_names([first, second])}" in notices, notices
    assert seen["attempt"] == 2
    assert (told["run"]["state"], told["run"]["attempt"]) == ("SUCCEEDED", 3), told
    reasons = [(attempt["reason"], attempt["node"]) for attempt in told["run"]["attempts"]]
    assert reasons == [("worker_killed", second), ("node_lost", first)]
    assert {node["node"]: node["node_rank"] for node in told["nodes"]} == {first: None, second: 1, spare: 0}
    begun = cctl(lab, "logs", run, "--node", spare).out.splitlines()[-1]
    assert 10 < int(begun.rpartition(" ")[2]) < 40, "the spare goes on at the other node's count"
    journal = lab.find_node(spare).run(["sh", "-c", f"cat ~/.clusterctl/runs/{run}/*/events.jsonl"]).stdout
    warm = [entry["method"] for entry in map(json.loads, journal.splitlines()) if entry["event"] == "warm"]
    assert warm == ["fork"], "the spare has imported torch before it was called in"
    assert "attempt 1 begins at 0" in cctl(lab, "logs", run, "--attempt", "1").out
    assert "it has attempts 1 to 3" in cctl(lab, "logs", run, "--attempt", "4").err
    assert count_on(lab, spare) == "40"


def test_a_run_that_gets_nowhere_is_given_up(cluster: Lab, tmp_path: Path) -> None:
    """On one node, watched: three attempts leave nothing, and that has an exit code of its own."""
    dying = (
        "import os; print('attempt', os.environ['CLUSTERCTL_ATTEMPT'], flush=True); os.kill(os.getpid(), 9)"
    )
    job = make_project(tmp_path, dying, nodes=1, launcher="python", restart={"max": 9})
    done = cctl(cluster, "launch", job)

    assert done.code == 6, done.err
    assert [line.rpartition(" ")[2] for line in done.out.splitlines() if "| attempt" in line] == [
        "1",
        "2",
        "3",
    ]
    assert "given up: three attempts in a row made no progress" in done.err
    assert leftovers(cluster) == {}


def count_on(lab: Lab, name: str) -> str:
    """Read how far a node has come."""
    node = next(node for node in lab.nodes if node.name == name)
    return node.run(["sh", "-c", "cat ~/.clusterctl/outputs/t/count"]).stdout.strip()
