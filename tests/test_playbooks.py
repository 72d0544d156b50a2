"""Every playbook is a job that clusterctl reads, and digits-ddp really trains."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from clusterctl.specs.job import parse_job

ROOT = Path(__file__).parent.parent
PLAYBOOKS = sorted(folder for folder in (ROOT / "playbooks").iterdir() if folder.is_dir())
DIGITS = ROOT / "playbooks" / "digits-ddp"
SAMPLES, TESTED = 2005, 401  # odd numbers: two ranks get unequal shares


@pytest.mark.parametrize("folder", PLAYBOOKS, ids=lambda folder: folder.name)
def test_a_playbook_is_complete(folder: Path) -> None:
    """Its job file is right, what it starts is there, and a README says what it is for."""
    job = parse_job((folder / "job.yaml").read_text(encoding="utf-8"), str(folder / "job.yaml"))

    assert job.name == folder.name
    assert job.script is not None
    assert (folder / job.sync.source / job.script).is_file()
    assert (folder / "README.md").read_text(encoding="utf-8").startswith(f"# {folder.name}\n")


def train(output: Path, *options: str) -> str:
    """Run digits-ddp on two processes of this machine, with the arguments of its job file and these."""
    job = parse_job((DIGITS / "job.yaml").read_text(encoding="utf-8"), "job.yaml")
    args = [word.replace("${output_dir}", str(output)) for word in job.args]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    here = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--local-addr", "127.0.0.1"]
    done = subprocess.run(
        [*torchrun, *here, DIGITS / "train.py", *args, "--samples", str(SAMPLES), *options],
        env={**os.environ, **job.env, "GLOO_SOCKET_IFNAME": "lo", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """One short training: its output folder and what it printed."""
    output = tmp_path_factory.mktemp("digits") / "not yet there"
    return output, train(output, "--epochs", "2", "--lr", "4e-3")


def test_every_rank_introduces_itself(trained: tuple[Path, str]) -> None:
    """Rank, world size and the NIC variable that it was given."""
    for rank in (0, 1):
        assert f"rank {rank} of 2, local rank {rank}, cpu, gloo, GLOO_SOCKET_IFNAME=lo" in trained[1]


def test_the_loss_falls(trained: tuple[Path, str]) -> None:
    """Rank 0 prints one line per epoch."""
    losses = [float(loss) for loss in re.findall(r"^epoch \d/2  loss ([\d.]+)", trained[1], re.MULTILINE)]

    assert len(losses) == 2
    assert losses[1] < losses[0] - 0.2  # without learning they differ by rounding only


def test_no_test_image_counts_twice(trained: tuple[Path, str]) -> None:
    """The accuracy is a whole number of images out of all of them, though the shares differ in length."""
    for percent in re.findall(r"accuracy ([\d.]+)%", trained[1]):
        right = float(percent) / 100 * TESTED

        assert right == pytest.approx(round(right), abs=0.006 / 100 * TESTED)


def test_all_ranks_end_with_the_same_parameters(trained: tuple[Path, str]) -> None:
    """This is what DDP is for."""
    hashes = re.findall(r"leaves with the parameters (\w+)", trained[1])

    assert len(hashes) == 2
    assert len(set(hashes)) == 1


def test_a_checkpoint_is_resumed(trained: tuple[Path, str]) -> None:
    """Training goes on where it stopped, and no file written aside is left over."""
    output, _ = trained
    text = train(output, "--epochs", "3", "--resume")

    assert f"resumed after epoch 2 from {output}/checkpoint.pt" in text
    assert re.findall(r"^epoch (\d)/3", text, re.MULTILINE) == ["3"]
    assert [file.name for file in output.iterdir()] == ["checkpoint.pt"]
