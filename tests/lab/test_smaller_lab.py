"""A run that goes on with fewer nodes: real torchrun on four nodes, of which one after the other loses power."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from driving import cctl, leftovers, make_project, read_until, running_processes, start_cctl
from waiting import wait_until

from clusterctl.lab.labs import Lab, break_node, heal_node
from clusterctl.specs.nodeset import fold_names

# Counts together until a file `enough` is on every node; all print what they were given.
COUNTING = """
import os, pathlib, sys, time
import torch, torch.distributed as dist

dist.init_process_group("gloo")
folder = pathlib.Path(os.environ["CLUSTERCTL_OUTPUT_DIR"])
size = os.environ["WORLD_SIZE"], os.environ["NODES"], *sys.argv[1:]
print("attempt", os.environ["CLUSTERCTL_ATTEMPT"], "rank", dist.get_rank(), "of", *size, flush=True)
going = torch.ones(1)
while going:
    going = torch.tensor([0.0 if (folder / "enough").exists() else 1.0])
    dist.all_reduce(going, dist.ReduceOp.MAX)
    (folder / "count").write_text(str(time.time()))
    time.sleep(0.05)
dist.destroy_process_group()
"""


def seen_sizes(lab: Lab, run: str, attempt: int, node: str) -> set[str]:
    """Return what the ranks of an attempt have printed of their size: `2 of 4 2 2/4`."""
    out = cctl(lab, "logs", run, "--attempt", str(attempt), "--node", node).out
    found = (line.partition(f"attempt {attempt} rank ")[2] for line in out.splitlines())
    return {line for line in found if line}


@pytest.mark.parametrize("start", ["fork", pytest.param("exec", marks=pytest.mark.variant)])
def test_four_nodes_become_three_and_then_two(
    make_lab: Callable[..., Lab], tmp_path: Path, start: str
) -> None:
    """Node 0 is lost, then another: ranks close up in their order; the end names how many are left, and no process."""
    lab = make_lab(n=4)
    first, second, third, fourth = (node.name for node in lab.nodes)
    job = make_project(
        tmp_path,
        COUNTING,
        nodes=4,
        min_nodes=2,
        nproc_per_node=2,
        start=start,
        args=["${nnodes}/${world_size}"],
        env={"NODES": "${nnodes}"},
        restart={"max": 5},
    )
    launcher = start_cctl(lab, "launch", job, "--json")
    run = json.loads(read_until(launcher, "attempt 1 rank 7 of 8 4 4/8"))["run"]
    break_node(lab, first, "power")
    read_until(launcher, "attempt 2 rank 5 of 6 3 3/6")
    wait_until(lambda: "3/3 of 4" in cctl(lab, "ps").out, "ps shows the smaller run")
    break_node(lab, third, "power")
    read_until(launcher, "attempt 3 rank 3 of 4 2 2/4")
    shown = cctl(lab, "status", run).out
    assert "attempt 3 with 2 of 4 nodes" in shown, shown
    for node in lab.nodes:
        if node.name in (second, fourth):
            node.run(["sh", "-c", "touch ~/.clusterctl/outputs/t/enough"])
    out, notices = launcher.communicate()
    verdict = json.loads(out.splitlines()[-1])["verdict"]

    assert (verdict["state"], verdict["attempt"]) == ("SUCCEEDED", 3), (verdict, notices)
    assert verdict["smaller"] == {"nodes": 2, "of": 4}
    assert verdict["nodes"] == {first: "LOST", second: "SUCCEEDED", third: "LOST", fourth: "SUCCEEDED"}
    reasons = [(attempt["reason"], attempt["node"]) for attempt in verdict["attempts"]]
    assert reasons == [("node_lost", first), ("node_lost", third)]
    assert f"attempt 2 begins on {fold_names([second, third, fourth])}: 3 of 4 nodes" in notices, notices
    assert "note: the last attempt ran on 2 of 4 nodes (min_nodes)" in notices, notices
    assert seen_sizes(lab, run, 2, fourth) == {"4 of 6 3 3/6", "5 of 6 3 3/6"}
    assert seen_sizes(lab, run, 3, second) == {"0 of 4 2 2/4", "1 of 4 2 2/4"}
    status = json.loads(cctl(lab, "status", run, "--json").out)["run"]
    assert (status["state"], status["world_size"], status["smaller"]) == (
        "SUCCEEDED",
        4,
        {"nodes": 2, "of": 4},
    )
    wait_until(lambda: running_processes(lab) == {}, "no process is left")
    for name in (first, third):
        heal_node(lab, name)
    assert leftovers(lab) == {}
    status = json.loads(cctl(lab, "status", run, "--json").out)["run"]
    assert (status["state"], status["smaller"]) == ("SUCCEEDED", {"nodes": 2, "of": 4}), (
        "what the lost nodes have is older"
    )


# Saves a part on each node every 10 steps, and begins at the checkpoint that it is given.
SAVING = """
import os, pathlib, time
import torch, torch.distributed as dist

dist.init_process_group("gloo")
resume = os.environ["CLUSTERCTL_RESUME"]
begin = int(resume.rpartition("-")[2]) if resume else 0
found = sorted(path.name for path in pathlib.Path(resume).iterdir()) if resume else []
print("attempt", os.environ["CLUSTERCTL_ATTEMPT"], "rank", dist.get_rank(), "from", begin > 0, *found, flush=True)
for step in range(begin + 1, begin + 11 if resume else 5000):
    dist.all_reduce(torch.ones(1))
    if step % 10 == 0:
        folder = pathlib.Path(os.environ["CLUSTERCTL_OUTPUT_DIR"], f"step-{step}")
        folder.mkdir(exist_ok=True)
        (folder / f"rank{dist.get_rank()}").write_bytes(os.urandom(100000))
        dist.barrier()
        if dist.get_rank() == 0:
            (folder / ".metadata").write_text("whole")
    time.sleep(0.3)
dist.destroy_process_group()
"""


def test_fewer_nodes_have_the_files_of_all(make_lab: Callable[..., Lab], tmp_path: Path) -> None:
    """The checkpoint of three nodes is on each of the two that are left, with the part of the lost one."""
    lab = make_lab(n=3)
    checkpoints = {"path": "${output_dir}/step-*", "complete": ".metadata"}
    size = {"nodes": 3, "min_nodes": 2, "nproc_per_node": 1, "restart": {"max": 5}}
    job = make_project(tmp_path, SAVING, checkpoints=checkpoints, **size)
    launcher = start_cctl(lab, "launch", job, "--json")
    run = json.loads(read_until(launcher, "attempt 1 rank 2 from False"))["run"]
    wait_until(lambda: "3/3 nodes, 2 copies" in cctl(lab, "status", run).out, "a checkpoint is safe")
    break_node(lab, lab.nodes[1].name, "power")
    read_until(launcher, "attempt 2 rank 1 from True .metadata rank0 rank1 rank2")
    out, notices = launcher.communicate()
    verdict = json.loads(out.splitlines()[-1])["verdict"]
    assert (verdict["state"], verdict["smaller"]) == ("SUCCEEDED", {"nodes": 2, "of": 3}), (verdict, notices)
    wait_until(lambda: running_processes(lab) == {}, "no process is left")


def test_too_few_are_left(make_lab: Callable[..., Lab], tmp_path: Path) -> None:
    """Below min_nodes the run ends and says so; one that is alone after a loss starts nothing."""
    lab = make_lab(n=3)
    first, second, _ = (node.name for node in lab.nodes)
    job = make_project(
        tmp_path,
        COUNTING,
        nodes=3,
        min_nodes=2,
        nproc_per_node=1,
        env={"NODES": "${nnodes}"},
        restart={"max": 5},
    )
    launcher = start_cctl(lab, "launch", job, "--json")
    read_until(launcher, "attempt 1 rank 2 of 3 3")
    break_node(lab, second, "power")
    read_until(launcher, "attempt 2 rank 1 of 2 2")
    break_node(lab, first, "power")
    out, notices = launcher.communicate()
    verdict = json.loads(out.splitlines()[-1])["verdict"]
    assert (verdict["state"], verdict["gave_up"]) == ("LOST", "nodes"), (verdict, notices)
    assert verdict["cause"]["node"] == first
    wait_until(lambda: running_processes(lab) == {}, "no process is left")
