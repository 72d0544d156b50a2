"""Scripts with the habits of tutorials, from `init` to a run on two nodes: one obstacle, its fix on the screen."""

from __future__ import annotations

import re
from pathlib import Path

from conftest import Bed
from driving import cctl
from ruamel.yaml import YAML
from tutorials import begin, change_job, checked, launch, paste_into_job

# What a tutorial trains; elsewhere it is enough that the ranks meet.
TRAIN = """
import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

def train(rank):
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
    sampler = DistributedSampler(data)
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for inputs, targets in DataLoader(data, batch_size=8, sampler=sampler):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
    total = torch.tensor([float(rank + 1)])
    torch.distributed.all_reduce(total)
    if rank == 0:
        print("ranks add up to", int(total), flush=True)
    torch.distributed.destroy_process_group()
"""

LOCAL_RANK = """
import argparse, torch.distributed as dist
from shared import train

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int)
args = parser.parse_args()
local_rank = int(args.local_rank)
dist.init_process_group("gloo", init_method="env://")
train(dist.get_rank())
"""

GROUP_TOO_LATE = """
import os, torch.distributed as dist
from shared import train

local_rank = int(os.environ["LOCAL_RANK"])
world_size = dist.get_world_size()
dist.init_process_group("gloo")
train(dist.get_rank())
"""

SPAWN = """
import os
import torch.distributed as dist, torch.multiprocessing as mp
from shared import train

def demo(rank, world_size):
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    train(rank)

if __name__ == "__main__":
    mp.spawn(demo, args=(2,), nprocs=2, join=True)
"""


def test_a_script_with_local_rank(cluster: Bed, tmp_path: Path) -> None:
    """`init` passes the argument; a job that does not gets the line from `check`, and the cause of its failure."""
    begin(cluster, tmp_path, LOCAL_RANK, TRAIN)
    job = YAML(typ="safe").load((tmp_path / "job.yaml").read_text())
    assert job["args"] == ["--local_rank=${local_rank}"]

    change_job(tmp_path, args=None)
    fixes = checked(tmp_path)
    failed = launch(cluster, tmp_path)

    assert fixes.keys() == {"CC-CODE-001"}
    assert "warning CC-CODE-001" in failed.err
    assert (failed.code, "CC-JOB-073" in failed.err) == (1, True)
    paste_into_job(tmp_path, fixes["CC-CODE-001"])
    assert YAML(typ="safe").load((tmp_path / "job.yaml").read_text()) == job
    trained = launch(cluster, tmp_path)
    assert (trained.code, "ranks add up to 3" in trained.out) == (0, True), trained.err


def test_the_world_size_before_the_process_group(cluster: Bed, tmp_path: Path) -> None:
    """The cause names the line, and the advice is where to move it."""
    begin(cluster, tmp_path, GROUP_TOO_LATE)
    failed = launch(cluster, tmp_path)

    assert failed.code == 1
    assert "train.py:6" in failed.err
    assert "CC-JOB-070" in failed.err
    first, second = re.findall(r"^.*(?:get_world_size|init_process_group).*\n", GROUP_TOO_LATE, re.M)
    (tmp_path / "train.py").write_text(GROUP_TOO_LATE.replace(first + second, second + first))
    assert "ranks add up to 3" in launch(cluster, tmp_path).out


def test_workers_of_each_node_by_themselves_are_warned_of(cluster: Bed, tmp_path: Path) -> None:
    """`init` starts the script once a node; what lacks in the script is a warning before the start, to be pasted."""
    begin(cluster, tmp_path, SPAWN)
    fixes = checked(tmp_path)
    planned = cctl(None, "launch", "job.yaml", "--dry-run", cwd=tmp_path)

    assert fixes.keys() == {"CC-RUN-050"}
    assert "warning CC-RUN-050" in planned.err
    line = fixes["CC-RUN-050"].partition(": ")[2]
    start = "def demo(rank, world_size):\n"
    (tmp_path / "train.py").write_text(SPAWN.replace(start, f"{start}    {line}\n"))
    assert checked(tmp_path) == {}
    together = launch(cluster, tmp_path)
    assert together.out.count("ranks add up to 10") == 1, together.err


def test_spawn_in_a_job_of_torchrun(cluster: Bed, tmp_path: Path) -> None:
    """Two launchers of workers are named before the start; the line for the job makes it one."""
    begin(cluster, tmp_path, SPAWN)
    change_job(tmp_path, launcher=None)
    fixes = checked(tmp_path)
    assert fixes.keys() == {"CC-CODE-002"}
    paste_into_job(tmp_path, fixes["CC-CODE-002"].partition("\n")[0])
    assert checked(tmp_path).keys() == {"CC-RUN-050"}
