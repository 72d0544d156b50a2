"""A run that goes on with fewer nodes: real torchrun on four nodes, of which one after the other loses power."""

from __future__ import annotations

import json
import sys
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

# Trains with any number of ranks: a checkpoint has how many samples of the epoch are done, the ranks share the others.
# A step prints its samples; while nodes are to be lost, rank 0 waits three steps after a checkpoint.
TRAINING = """
import os, pathlib, sys, time
import torch, torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, Subset

dist.init_process_group("gloo")
attempt, rank, world = int(os.environ["CLUSTERCTL_ATTEMPT"]), dist.get_rank(), dist.get_world_size()
print("attempt", attempt, "rank", rank, "of", os.environ["WORLD_SIZE"], os.environ["NODES"], *sys.argv[1:], flush=True)
out, resume = pathlib.Path(os.environ["CLUSTERCTL_OUTPUT_DIR"]), os.environ["CLUSTERCTL_RESUME"]
state = torch.load(f"{resume}/state.pt") if resume else {"step": 0, "epoch": 0, "seen": 0}
samples = torch.arange(240)
while state["epoch"] < 3:
    order = torch.randperm(len(samples), generator=torch.Generator().manual_seed(state["epoch"]))
    rest = Subset(samples, order[state["seen"]:].tolist())
    for batch in DataLoader(rest, sampler=DistributedSampler(rest, shuffle=False)):
        dist.all_reduce(torch.ones(1))
        state["step"] += 1
        state["seen"] += len(batch) * world
        print("step", attempt, state["step"], state["epoch"], *batch.tolist(), flush=True)
        if rank == 0 and state["step"] % 6 == 0:
            folder = out / f"step-{state['step']}"
            folder.mkdir(exist_ok=True)
            torch.save(state, folder / "state.pt")
            (folder / "done").touch()
        while rank == 0 and (attempt, state["step"]) in ((1, 21), (2, 45)):
            time.sleep(0.1)
    state.update(epoch=state["epoch"] + 1, seen=0)
dist.destroy_process_group()
"""


def check_samples(lab: Lab, run: str) -> None:
    """Check that each step follows the one before, and that of the steps that count each epoch has all samples once."""
    printed = [
        [*map(int, entry["line"].split()[1:]), entry["rank"]]
        for attempt in ("1", "2", "3")
        for entry in cctl(lab, "logs", run, "--attempt", attempt, "--json").json_lines()
        if entry["line"].startswith("step ")
    ]
    ends = {attempt - 1: min(row[1] for row in printed if row[0] == attempt) - 1 for attempt in (2, 3)}
    assert ends == {1: 18, 2: 42}, "where attempts 2 and 3 have begun"
    counted = [row for row in printed if row[1] <= ends.get(row[0], sys.maxsize)]
    assert [row[1] for row in counted if row[-1] == 0] == list(range(1, 151))
    for epoch in range(3):
        assert sorted(row[3] for row in counted if row[2] == epoch) == list(range(240))


def wait_until_safe(lab: Lab, run: str, name: str) -> None:
    """Wait until a checkpoint has its copies."""

    def is_safe() -> bool:
        found = json.loads(cctl(lab, "status", run, "--json").out)["run"]["checkpoints"]
        return any((one["name"], one["state"]) == (name, "safe") for one in found)

    wait_until(is_safe, f"{name} has its copies")


def seen_sizes(lab: Lab, run: str, attempt: int, node: str) -> set[str]:
    """Return what the ranks of an attempt have printed of their size: `2 of 4 2 2/4`."""
    out = cctl(lab, "logs", run, "--attempt", str(attempt), "--node", node).out
    found = (line.partition(f"attempt {attempt} rank ")[2] for line in out.splitlines())
    return {line for line in found if line}


@pytest.mark.parametrize("start", ["fork", pytest.param("exec", marks=pytest.mark.variant)])
def test_four_nodes_become_three_and_then_two(
    make_lab: Callable[..., Lab], tmp_path: Path, start: str
) -> None:
    """Node 0 is lost, then another: ranks close up in their order, and each epoch has each sample once."""
    lab = make_lab(n=4)
    first, second, third, fourth = (node.name for node in lab.nodes)
    job = make_project(
        tmp_path,
        TRAINING,
        nodes=4,
        min_nodes=2,
        nproc_per_node=2,
        start=start,
        args=["${nnodes}/${world_size}"],
        env={"NODES": "${nnodes}"},
        restart={"max": 5},
        checkpoints={"path": "${output_dir}/step-*", "complete": "done"},
    )
    launcher = start_cctl(lab, "launch", job, "--json")
    run = json.loads(read_until(launcher, "attempt 1 rank 7 of 8 4 4/8"))["run"]
    wait_until_safe(lab, run, "step-18")
    break_node(lab, first, "power")
    read_until(launcher, "attempt 2 rank 5 of 6 3 3/6")
    wait_until(lambda: "3/3 of 4" in cctl(lab, "ps").out, "ps shows the smaller run")
    wait_until_safe(lab, run, "step-42")
    (listed,) = json.loads(cctl(lab, "ps", "--json").out)["runs"]
    assert (listed["checkpoint"], listed["smaller"]) == ("step-42", {"nodes": 3, "of": 4})
    break_node(lab, third, "power")
    read_until(launcher, "attempt 3 rank 3 of 4 2 2/4")
    out, notices = launcher.communicate()
    verdict = json.loads(out.splitlines()[-1])["verdict"]

    assert (verdict["state"], verdict["attempt"]) == ("SUCCEEDED", 3), (verdict, notices)
    assert verdict["smaller"] == {"nodes": 2, "of": 4}
    assert verdict["nodes"] == {first: "LOST", second: "SUCCEEDED", third: "LOST", fourth: "SUCCEEDED"}
    reasons = [(attempt["reason"], attempt["node"]) for attempt in verdict["attempts"]]
    assert reasons == [("node_lost", first), ("node_lost", third)]
    assert (
        f"attempt 2 begins on {fold_names([second, third, fourth])}: 3 of 4 nodes, from checkpoint step-18"
        in notices
    )
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
    check_samples(lab, run)
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
