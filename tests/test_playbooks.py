"""Every playbook is complete and readable, readers of data refuse what is broken, and digits-ddp really trains."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
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
        assert programs
        assert all(os.access(source / word, os.X_OK) for word in programs if word.startswith("./"))
        assert job.setup is None or (folder / job.setup.lock).is_file()
    assert names["job.yaml"] == folder.name
    assert all(name.startswith(folder.name) for name in names.values())
    assert len(set(names.values())) == len(files)


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


TORCHRUN = (
    *("-m", "torch.distributed.run", "--nproc-per-node", "2"),
    *("--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--local-addr", "127.0.0.1"),
)
# What torchrun shows a process that is alone, for the tests in which a second one would only cost time.
ALONE = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
OF_HERE = {"GLOO_SOCKET_IFNAME": "lo", "CUDA_VISIBLE_DEVICES": ""}


def train(output: Path, *options: str, alone: bool = False) -> str:
    """Run digits-ddp on two processes of this machine or one, with the arguments of its job file and these."""
    job = parse_job((DIGITS / "job.yaml").read_text(encoding="utf-8"), "job.yaml")
    values = {"${output_dir}": str(output), "${run_id}": "digits-1", "${attempt}": "1"}
    args = [values.get(word, word) for word in job.args]
    launcher, told = ((), ALONE) if alone else (TORCHRUN, {})
    done = subprocess.run(
        [sys.executable, *launcher, DIGITS / "train.py", *args, "--samples", str(SAMPLES), *options],
        env={**os.environ, **job.env, **told, **OF_HERE},
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


def test_a_checkpoint_is_resumed(trained: tuple[Path, str]) -> None:
    """Training goes on where it stopped, and no file written aside is left over."""
    output, _ = trained
    text = train(output, "--epochs", "3", "--resume", alone=True)

    assert f"resumed after epoch 2 from {output}/checkpoint.pt" in text
    assert re.findall(r"^epoch (\d)/3", text, re.MULTILINE) == ["3"]
    assert [file.name for file in output.iterdir()] == ["checkpoint.pt"]


@VARIANT
def test_a_run_that_is_started_again_goes_on_where_it_was(trained: tuple[Path, str]) -> None:
    """By itself from its own checkpoint; that of another run is none of its business."""
    output, _ = trained
    own = train(output, "--epochs", "4", "--samples", "400", "--attempt", "2", alone=True)
    another = ("--run-id", "digits-2", "--attempt", "2")
    other = train(output, "--epochs", "1", "--samples", "400", *another, alone=True)

    assert "resumed after epoch " in own
    assert "resumed" not in other


# Runs a script once for each list of arguments, importing torch once.
TIMES = """
import json, runpy, sys
for sys.argv in json.loads(sys.argv[1]):
    runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_a_resumed_training_goes_on_as_if_it_had_run_through(tmp_path: Path) -> None:
    """torchrun-ddp prints the same loss after its checkpoint, and what no_sync adds up is the gradient of all."""
    few, through, cut = (
        ("--points", "300"),
        ("--output", str(tmp_path / "a")),
        ("--output", str(tmp_path / "b")),
    )
    script = str(ROOT / "playbooks" / "torchrun-ddp" / "train.py")
    runs = [(*through, "--epochs", "3"), (*cut, "--epochs", "2"), (*cut, "--epochs", "3", "--resume")]
    done = subprocess.run(
        [sys.executable, "-c", TIMES, json.dumps([[script, *few, *options] for options in runs])],
        env={**os.environ, **ALONE, **OF_HERE, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    epochs = re.findall(r"^epoch (\d/\d)  (loss .*)$", done.stdout, re.MULTILINE)
    assert [epoch for epoch, _ in epochs] == ["1/3", "2/3", "3/3", "1/2", "2/2", "3/3"]
    assert [values for _, values in epochs[:3]] == [values for _, values in epochs[3:]]
    assert done.stdout.count("resumed after epoch 2\n") == 1
    differences = re.findall(r"no_sync .* difference (\S+)$", done.stdout, re.MULTILINE)
    assert len(differences) == 3
    assert max(map(float, differences)) < 1e-6
