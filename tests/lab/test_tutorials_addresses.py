"""Scripts of tutorials with an address of their own, lost names of torch, or GPUs that are not there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import Bed
from tutorials import begin, change_job, checked, launch, paste_into_job
from variants import VARIANT

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
