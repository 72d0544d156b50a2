"""A project that comes from a tutorial: what its script trains, and the commands from `init` to the result."""

from __future__ import annotations

import json
from pathlib import Path

from conftest import Bed
from driving import Result, cctl, leftovers
from ruamel.yaml import YAML

# What all of them train: ranks prove that they are of one group by the sum of their ranks.
MEET = """
import torch

def train(rank):
    total = torch.tensor([float(rank + 1)])
    torch.distributed.all_reduce(total)
    if rank == 0:
        print("ranks add up to", int(total), flush=True)
    torch.distributed.destroy_process_group()
"""


def begin(lab: Bed, folder: Path, script: str, train: str = MEET) -> None:
    """Lay down a script and have `init` write the job for two nodes."""
    (folder / "shared.py").write_text(train)
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
