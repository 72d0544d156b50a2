"""`lab up --gpus`: nodes that seem to have GPUs, for check and top; and GPUs that seem to be lost or too hot."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from driving import STUBBED, cctl
from variants import VARIANT

from clusterctl.errors import LabError
from clusterctl.lab import labs
from clusterctl.lab.build import LabOptions, up
from clusterctl.lab.labs import Lab
from clusterctl.lab.simulated_gpus import MODE_FILE, render_smi
from clusterctl.specs.job.parse import parse_job


@pytest.fixture
def simulated(place: Path, namespaces: None) -> Iterator[Lab]:  # noqa: ARG001 - skips where there can be none
    """Two nodes with two simulated GPUs each."""
    yield up(place / "lab", LabOptions(count=2, gpus=2, bound=True))
    labs.down(place / "lab")


def test_nodes_seem_to_have_gpus(simulated: Lab) -> None:
    """check and top see them; one that is lost or too hot is named."""
    for node, mode in zip(simulated.nodes, ("hot", "lost"), strict=True):
        node.run(["sh", "-c", f"echo {mode} > ~/{MODE_FILE}"])

    told = json.loads(cctl(simulated, "check", "--json").out)
    found = {finding["code"]: finding for finding in told["findings"]}
    assert [node["facts"]["gpus"]["count"] for node in told["nodes"]] == [2, 1]
    assert found["CC-GPU-023"]["evidence"] == "gpu01: GPU 1: too hot"
    assert found["CC-GPU-009"]["nodes"] == ["gpu02"] and "GPU is lost" in found["CC-GPU-009"]["evidence"]

    shown = cctl(simulated, "top", "--once")
    assert shown.code == 0 and "3 GPUs" in shown.out and "GPU is lost" in shown.out


@pytest.mark.parametrize("torch", [False, pytest.param(True, marks=VARIANT)], ids=["stub", "torch"])
def test_such_a_lab_passes_check_and_runs_a_playbook(simulated: Lab, tmp_path: Path, torch: bool) -> None:
    """Nothing is found in a lab that is as it should be, and the first playbook runs on it as it stands.

    Without torch it is the playbook's job with another script; its own runs in test_hello_ranks.
    """
    found = cctl(simulated, "check", "--json")
    assert found.code == 0 and json.loads(found.out)["findings"] == []
    assert "2 x Simulated GPU" in cctl(simulated, "check").out

    job = Path(__file__).parents[2] / "playbooks" / "hello-ranks" / "job.yaml"
    changes = [] if torch else [f"env.{name}={value}" for name, value in STUBBED.items()]
    if not torch:
        job = shutil.copytree(job.parent, tmp_path / "playbook") / job.name
        (job.parent / parse_job(job.read_text(), str(job)).script).write_text("print('hello')")
    launched = cctl(simulated, "launch", job, *(word for one in changes for word in ("--set", one)))
    assert launched.code == 0, launched.err

    asking = cctl(simulated, "launch", job, "--set", "nproc_per_node=gpu")
    said = " ".join(asking.err.split())
    assert asking.code == 3 and "the GPUs are simulated" in said and "backend: gloo" in said


def test_the_number_of_gpus_has_bounds(place: Path) -> None:
    """A number that cannot be is refused before anything is built."""
    with pytest.raises(LabError, match="0 to 16 GPUs, not 99"):
        up(place / "lab", LabOptions(gpus=99))


def test_the_program_says_that_it_is_simulated(tmp_path: Path) -> None:
    """A person who calls it sees that at once."""
    path = tmp_path / "nvidia-smi"
    path.write_text(render_smi("gpu07", 3))
    shown = subprocess.run(["sh", path], capture_output=True, text=True, check=True).stdout
    assert shown.startswith("SIMULATED: 3 GPUs\n") and shown.count("Simulated GPU") == 3
