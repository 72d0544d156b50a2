"""A node without power takes its checkpoints with it, and the run goes on from the copies of its neighbour."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from driving import cctl, leftovers, make_project, read_until, running_processes, start_cctl
from waiting import wait_until

from clusterctl.lab.labs import Lab, break_node, heal_node

# Every rank writes a file of its own, and the first one `done` when all have; a later attempt needs the files of all.
COUNTING = """
import os, pathlib, sys, time
import torch, torch.distributed as dist

dist.init_process_group("gloo")
attempt, rank, world = int(os.environ["CLUSTERCTL_ATTEMPT"]), dist.get_rank(), dist.get_world_size()
out, resume = pathlib.Path(os.environ["CLUSTERCTL_OUTPUT_DIR"]), sys.argv[1]
assert os.environ["CLUSTERCTL_RESUME"] == resume
count = 0
if resume:
    counts = [int(torch.load(f"{resume}/{other}.pt")) for other in range(world)]
    assert len(set(counts)) == 1, counts
    count = counts[0]
print("attempt", attempt, "begins at", count, flush=True)
while count < 40:
    dist.all_reduce(torch.ones(1))
    count += 1
    if count % 10 == 0:
        folder = out / f"step-{count}"
        folder.mkdir(parents=True, exist_ok=True)
        torch.save(torch.tensor(count), folder / f"{rank}.pt")
        dist.barrier()
        if rank == 0:
            (folder / "done").touch()
    while attempt == 1 and rank == 0 and count == 25:
        time.sleep(0.1)  # until a node has no power; the other ranks wait for it in the next all_reduce
dist.destroy_process_group()
"""
CHECKPOINTS = {"path": "${output_dir}/step-*", "complete": "done"}


def test_a_node_has_no_power_and_a_spare_goes_on_from_its_checkpoint(
    make_lab: Callable[..., Lab], tmp_path: Path
) -> None:
    """All ranks go on at the same step, forked from warm nodes; the spare has never had a file of the run."""
    lab = make_lab(n=4)
    names = [node.name for node in lab.nodes]
    short = make_project(tmp_path / "warm", "import torch", nodes=4, alone="ok", keep_warm="2m")
    assert cctl(lab, "launch", short).code == 0
    wait_until(lambda: len(json.loads(cctl(lab, "ps", "--json").out)["warm"]) == 4, "all nodes are warm")
    job = make_project(
        tmp_path,
        COUNTING,
        nodes=3,
        start="fork",
        args=["${resume}"],
        restart={"spares": 1},
        checkpoints=CHECKPOINTS,
    )
    launcher = start_cctl(lab, "launch", job, "--json")
    run = json.loads(read_until(launcher, "attempt 1 begins at 0"))["run"]
    wait_until(lambda: states(lab, run).get("step-20") == "safe", "step-20 has its copies")
    break_node(lab, names[1], "power")
    line = read_until(launcher, "attempt 2 begins at")
    rest = launcher.communicate()[0]
    wait_until(lambda: running_processes(lab) == {}, "the run ends")
    heal_node(lab, names[1])

    assert "attempt 2 begins at 20" in line
    begun = cctl(lab, "logs", run, "--node", names[3]).out.splitlines()[-1]
    assert begun.endswith("attempt 2 begins at 20"), rest
    kept = lab.nodes[0].run(["sh", "-c", f"cat ~/.clusterctl/runs/{run}/*/events.jsonl"]).stdout
    assert [entry["method"] for entry in map(json.loads, kept.splitlines()) if entry["event"] == "warm"] == [
        "fork"
    ] * 2
    ended = document(lab, run)
    assert (ended["state"], ended["attempt"], ended["resumed"]) == ("SUCCEEDED", 2, "step-20"), ended
    assert leftovers(lab) == {}


def document(lab: Lab, run: str) -> dict[str, Any]:
    """Return what `status` shows of the run."""
    status: dict[str, Any] = json.loads(cctl(lab, "status", run, "--json").out)["run"]
    return status


def states(lab: Lab, run: str) -> dict[str, str]:
    """Return how far the checkpoints are, by name."""
    return {one["name"]: one["state"] for one in document(lab, run).get("checkpoints") or ()}
