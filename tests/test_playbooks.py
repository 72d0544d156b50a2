"""Every playbook is complete and readable, readers of data refuse what is broken, and digits-ddp really trains."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from servers import free_port
from variants import VARIANT

from clusterctl.specs.inventory.parse import parse_inventory
from clusterctl.specs.job.parse import parse_job

ROOT = Path(__file__).parent.parent
PLAYBOOKS = sorted(file.parent for file in (ROOT / "playbooks").rglob("job.yaml"))
DIGITS = ROOT / "playbooks" / "digits-ddp"
CHINESE, NAMES = re.compile(r"[\u4e00-\u9fff]"), re.compile(r"[A-Z]{2,}[A-Z0-9_-]*|\d[\w.:-]*")
BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
SAMPLES, TESTED = 2005, 401  # odd numbers: two ranks get unequal shares


@pytest.mark.parametrize("folder", PLAYBOOKS, ids=lambda folder: folder.name)
def test_a_playbook_is_complete(folder: Path) -> None:
    """Its job files are right, what they start is there, and they are named after the folder."""
    files = [file for file in sorted(folder.glob("*.yaml")) if file.name != "inventory.yaml"]
    names = {}
    for file in files:
        job = parse_job(file.read_text(encoding="utf-8"), str(file))
        names[file.name] = job.name

        source = folder / job.sync.source
        programs = [word for word in (job.script, *job.command) if word and (source / word).is_file()]
        is_installed, is_cloned = bool(job.module and job.setup), (job.sync.source in clones(folder))
        assert programs or is_installed or is_cloned
        assert all(os.access(source / word, os.X_OK) for word in programs if word.startswith("./"))
        assert job.setup is None or (folder / job.setup.lock).is_file()
    assert names["job.yaml"] == folder.name
    assert all(name.startswith(folder.name) for name in names.values())
    assert len(set(names.values())) == len(files)


def clones(folder: Path) -> list[str]:
    """List the folders beside the job into which its page clones code of others."""
    page = (folder / "README.md").read_text(encoding="utf-8")
    return re.findall(rf"^git clone \S+ playbooks/stacks/{folder.name}/(\S+)$", page, re.MULTILINE)


def assert_alike(english: str, chinese: str) -> None:
    """Lines of both pages are equal, or the Chinese one has the same numbers, names and codes."""
    pairs = list(zip(english.splitlines(), chinese.splitlines(), strict=True))
    for ours, theirs in pairs:
        if CHINESE.search(theirs):
            assert NAMES.findall(theirs) == NAMES.findall(ours), theirs
        else:
            assert theirs == ours


@pytest.mark.parametrize("folder", PLAYBOOKS, ids=lambda folder: folder.name)
def test_a_playbook_shows_what_it_is_for_in_both_languages(folder: Path) -> None:
    """Both texts have the same commands, examples, headings and rows."""
    english, chinese = ((folder / name).read_text("utf-8") for name in ("README.md", "README.zh-CN.md"))

    assert english.startswith(f"# {folder.name}\n")
    assert chinese.startswith(f"# {folder.name}\n")
    for one, other in zip(BLOCK.findall(english), BLOCK.findall(chinese), strict=True):
        assert_alike(one, other)
    for mark in ("\n#", "\n|", "\n- "):
        assert chinese.count(mark) == english.count(mark), mark


def test_the_inventory_of_rented_machines_is_right() -> None:
    """Two NICs each, under other names."""
    file = ROOT / "playbooks" / "private-network" / "inventory.yaml"
    inventory = parse_inventory(file.read_text(encoding="utf-8"), str(file))

    assert [node.nic for node in inventory.nodes] == [("meth919", "meth920"), ("meth917", "meth918")]


# What torchrun shows a process, but for its rank; no GPU of this machine is used.
OF_TORCHRUN = {"MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo", "CUDA_VISIBLE_DEVICES": ""}

# Imports torch once, which takes longer than a training, and forks the ranks of each training.
FORKING = """
import json, os, runpy, sys, tempfile, traceback
import torch, torch._dynamo
def train(rank, ranks, port):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_PORT=str(port))
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
    return 0
for line in sys.stdin:
    ranks, port, sys.argv = json.loads(line)
    with tempfile.TemporaryFile("w+") as output:
        forks = []
        for rank in range(ranks):
            forks.append(os.fork())
            if forks[-1] == 0:
                os.dup2(output.fileno(), 1)
                os.dup2(output.fileno(), 2)
                os._exit(train(rank, ranks, port))
        failed = any([os.waitpid(fork, 0)[1] for fork in forks])
        output.seek(0)
        print(json.dumps([failed, output.read()]), flush=True)
"""
Train = Callable[..., str]


@pytest.fixture(scope="module")
def train() -> Iterator[Train]:
    """Run a script of training on one process of this machine or several; returns what it printed."""
    with subprocess.Popen(
        [sys.executable, "-c", FORKING],
        env={**os.environ, **OF_TORCHRUN, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as trainer:

        def run(script: Path, *args: str, ranks: int = 1) -> str:
            assert trainer.stdin is not None
            assert trainer.stdout is not None
            request = [ranks, free_port() if ranks > 1 else 0, [str(script), *args]]
            trainer.stdin.write(json.dumps(request) + "\n")
            trainer.stdin.flush()
            failed, output = json.loads(trainer.stdout.readline())
            assert not failed, output
            return str(output)

        yield run


def digits_arguments(output: Path, *options: str) -> list[str]:
    """Fill in the arguments of the job file of digits-ddp, and add these; the later ones count."""
    job = parse_job((DIGITS / "job.yaml").read_text(encoding="utf-8"), "job.yaml")
    assert job.env == {"OMP_NUM_THREADS": "1"}
    values = {"${output_dir}": str(output), "${run_id}": "digits-1", "${attempt}": "1"}
    args = [values.get(word, word) for word in job.args]
    return [*args, "--samples", str(SAMPLES), *options]


@pytest.fixture(scope="module")
def trained(train: Train, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """One short training: its output folder and what it printed."""
    output = tmp_path_factory.mktemp("digits") / "not yet there"
    options = digits_arguments(output, "--epochs", "2", "--lr", "4e-3")
    return output, train(DIGITS / "train.py", *options, ranks=2)


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
    hashes = re.findall(r"done, parameter hash (\w+)", trained[1])

    assert len(hashes) == 2
    assert len(set(hashes)) == 1


def test_a_checkpoint_is_resumed(train: Train, trained: tuple[Path, str]) -> None:
    """Training goes on where it stopped, and no file written aside is left over."""
    output, _ = trained
    text = train(DIGITS / "train.py", *digits_arguments(output, "--epochs", "3", "--resume"))

    assert f"resumed after epoch 2 from {output}/checkpoint.pt" in text
    assert re.findall(r"^epoch (\d)/3", text, re.MULTILINE) == ["3"]
    assert [file.name for file in output.iterdir()] == ["checkpoint.pt"]


@VARIANT
def test_a_run_that_is_started_again_goes_on_where_it_was(train: Train, trained: tuple[Path, str]) -> None:
    """By itself from its own checkpoint; that of another run is none of its business."""
    output, _ = trained
    again = ("--samples", "400", "--attempt", "2")
    own = train(DIGITS / "train.py", *digits_arguments(output, "--epochs", "4", *again))
    another = digits_arguments(output, "--epochs", "1", *again, "--run-id", "digits-2")
    other = train(DIGITS / "train.py", *another)

    assert "resumed after epoch " in own
    assert "resumed" not in other


def test_a_resumed_training_goes_on_as_if_it_had_run_through(train: Train, tmp_path: Path) -> None:
    """torchrun-ddp prints the same loss after its checkpoint, and what no_sync adds up is the gradient of all."""
    few, through, cut = (
        ("--points", "300"),
        ("--output", str(tmp_path / "a")),
        ("--output", str(tmp_path / "b")),
    )
    script = ROOT / "playbooks" / "torchrun-ddp" / "train.py"
    runs = [(*through, "--epochs", "3"), (*cut, "--epochs", "2"), (*cut, "--epochs", "3", "--resume")]
    output = "".join(train(script, *few, *options) for options in runs)
    epochs = re.findall(r"^epoch (\d/\d)  (loss .*)$", output, re.MULTILINE)
    assert [epoch for epoch, _ in epochs] == ["1/3", "2/3", "3/3", "1/2", "2/2", "3/3"]
    assert [values for _, values in epochs[:3]] == [values for _, values in epochs[3:]]
    assert output.count("resumed after epoch 2\n") == 1
    differences = re.findall(r"no_sync .* difference (\S+)$", output, re.MULTILINE)
    assert len(differences) == 3
    assert max(map(float, differences)) < 1e-6
