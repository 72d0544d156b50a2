"""Scripts with the habits of tutorials, from `init` to a run on two nodes: one obstacle, its fix on the screen."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from conftest import Bed
from driving import Result, cctl, leftovers
from ruamel.yaml import YAML
from variants import VARIANT

# What all of them train: ranks prove that they are of one group by the sum of their ranks.
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

BY_ADDRESS = """
import argparse, torch.distributed as dist
from files import open_file
from shared import train

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--tcp", default="tcp://192.168.10.235:23456")
parser.add_argument("--rank", type=int, default=0)
args = parser.parse_args()
with open_file(__file__) as source:
    source.read()
dist.init_process_group(init_method=args.tcp, backend="gloo", rank=args.rank, world_size=2)
train(args.rank)
"""

OLD_FILES = """
import gzip
import torch

def open_file(path):
    if not isinstance(path, torch._six.string_classes):
        return path
    return gzip.open(path) if path.endswith(".gz") else open(path, "rb")
"""

DEVICE_COUNT = """
import os
import torch, torch.distributed as dist
from shared import train

rank = int(os.environ["RANK"])
local_rank = rank % torch.cuda.device_count()
dist.init_process_group("gloo")
train(rank)
"""


def begin(lab: Bed, folder: Path, script: str) -> None:
    """Lay down a script and have `init` write the job for two nodes."""
    (folder / "shared.py").write_text(TRAIN)
    (folder / "train.py").write_text(script)
    words = ["--ssh-config", str(lab.ssh_config), "--python", lab.plan.python, "--script", "train.py"]
    made = cctl(None, "init", "gpu[01-02]", "--name", "tutorial", *words, cwd=folder)
    assert made.code == 0, made.err


def launch(lab: Bed, folder: Path) -> Result:
    """Launch the job that `init` has written, or that was changed since; forked where possible: it is faster."""
    job = YAML(typ="safe").load((folder / "job.yaml").read_text())
    fork = ("--set", "start=fork") if job.get("launcher", "torchrun") == "torchrun" else ()
    result = cctl(None, "launch", "job.yaml", "--set", "grace=2s", *fork, cwd=folder)
    assert leftovers(lab) == {}
    return result


def checked(folder: Path) -> dict[str, str]:
    """Check the job: the fix of each finding about its code."""
    answer = cctl(None, "check", "job.yaml", "--json", cwd=folder)
    assert answer.code == 0, answer.err
    found = {one["code"]: one["fix"] for one in json.loads(answer.out)["findings"]}
    return {code: fix for code, fix in found.items() if code.startswith(("CC-CODE", "CC-RUN"))}


def change_job(folder: Path, **keys: object) -> None:
    """Write keys into the job; None removes one."""
    job = YAML(typ="safe").load((folder / "job.yaml").read_text())
    job = {key: value for key, value in {**job, **keys}.items() if value is not None}
    (folder / "job.yaml").write_text(json.dumps(job))


def paste_into_job(folder: Path, fix: str) -> None:
    """Take the lines of a fix for the job as they stand on the screen."""
    lines = fix.replace("in the job: ", "").replace("and: ", "")
    change_job(folder, **YAML(typ="safe").load(lines))


def test_a_script_with_local_rank(cluster: Bed, tmp_path: Path) -> None:
    """`init` passes the argument; a job that does not gets the line from `check`, and the cause of its failure."""
    begin(cluster, tmp_path, LOCAL_RANK)
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


def test_a_script_that_is_started_by_hand_with_an_address(cluster: Bed, tmp_path: Path) -> None:
    """`init` gives it address and rank; the names that torch has lost are found in the file that it imports."""
    (tmp_path / "files.py").write_text(OLD_FILES)
    begin(cluster, tmp_path, BY_ADDRESS)
    fixes = checked(tmp_path)
    assert fixes.keys() == {"CC-CODE-005"}
    old, new = re.findall(r"write (\w+) for ([\w.]+)", fixes["CC-CODE-005"])[0][::-1]
    (tmp_path / "files.py").write_text(OLD_FILES.replace(old, new))
    trained = launch(cluster, tmp_path)
    assert (trained.code, "ranks add up to 3" in trained.out) == (0, True), trained.err


def test_an_address_of_another_cluster_or_without_a_scheme(cluster: Bed, tmp_path: Path) -> None:
    """What the job lacks is a warning before the start, with the line for it."""
    begin(cluster, tmp_path, BY_ADDRESS.replace("from files import open_file", "open_file = open"))
    change_job(tmp_path, args=None, launcher=None)
    fixes = checked(tmp_path)
    assert fixes.keys() == {"CC-CODE-003", "CC-CODE-006"}
    paste_into_job(tmp_path, fixes["CC-CODE-006"])
    change_job(tmp_path, args=["--tcp", "${master_addr}:${master_port}", "--rank", "${node_rank}"])
    fixes, failed = checked(tmp_path), launch(cluster, tmp_path)
    assert fixes.keys() == {"CC-CODE-004"}
    assert (failed.code, "CC-JOB-071" in failed.err) == (1, True)
    paste_into_job(tmp_path, fixes["CC-CODE-004"])
    assert launch(cluster, tmp_path).code == 0


def test_a_division_by_the_number_of_gpus_on_nodes_without(rented: Bed, tmp_path: Path) -> None:
    """Two NICs with other names on each node; the line that the advice shows takes the place of the division."""
    begin(rented, tmp_path, DEVICE_COUNT)
    failed = launch(rented, tmp_path)

    assert (failed.code, "CC-JOB-074" in failed.err) == (1, True), failed.err
    (line,) = re.findall(r"`(local_rank = .*?)`", " ".join(failed.err.split()))
    (tmp_path / "train.py").write_text(
        DEVICE_COUNT.replace("local_rank = rank % torch.cuda.device_count()", line)
    )
    assert "ranks add up to 3" in launch(rented, tmp_path).out


@pytest.mark.parametrize(
    ("script", "code"),
    [
        pytest.param(
            'import torch.distributed as d; d.init_process_group("nccl")', "CC-JOB-069", marks=VARIANT
        ),
        pytest.param("import torch; torch._six.inf", "CC-JOB-063", marks=VARIANT),
        pytest.param("from torch._six import inf", "CC-JOB-063", marks=VARIANT),
        (
            'import torch, torch.distributed as d; d.init_process_group("gloo")\n'
            "net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))\n"
            "net = torch.nn.SyncBatchNorm.convert_sync_batchnorm(net)\n"
            "torch.nn.parallel.DistributedDataParallel(net)",
            "CC-JOB-072",
        ),
    ],
)
def test_other_errors_of_such_scripts_are_known(cluster: Bed, tmp_path: Path, script: str, code: str) -> None:
    """As this torch words them."""
    begin(cluster, tmp_path, script)
    failed = launch(cluster, tmp_path)
    assert (failed.code, code in failed.err) == (1, True), failed.err
