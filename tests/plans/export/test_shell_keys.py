"""What a script carries of a job: each key of the job file, or its reason in the table below."""

from __future__ import annotations

import pytest
from exporting import INVENTORY, make_export

from clusterctl.plans.export.bash import render_bash
from clusterctl.plans.export.slurm import render_slurm
from clusterctl.specs.fields import keys_of
from clusterctl.specs.job.model import Job

# For each key that a script carries, or names among what it leaves out: a job with the key, and one without.
CARRIED = {
    "module": ("module: pkg.train", ""),
    "args": ("args: [--lr, 1e-3]", ""),
    "nproc_per_node": ("nproc_per_node: 3", ""),
    "nodes": ("nodes: 1", ""),
    "gpus": ("gpus: [1]", ""),
    "exclusive": ("nproc_per_node: 2, exclusive: true", "nproc_per_node: 2"),
    "launcher": ("launcher: python", ""),
    "use_env": ("launcher: launch, use_env: true", "launcher: launch"),
    "no_python": ("no_python: true", ""),
    "start": ("start: fork", ""),
    "keep_warm": ("keep_warm: 1h", ""),
    "backend": ("nproc_per_node: 2, backend: gloo", "nproc_per_node: 2"),
    "env": ("env: {A: b}", ""),
    "secrets": ("secrets: [TOKEN]", ""),
    "sync": ("sync: {exclude: [data/]}", ""),
    "stage": ("stage: [{from: ./data}]", ""),
    "before": ("before: {run: make}", ""),
    "after": ("after: {run: make}", ""),
    "grace": ("grace: 2m", ""),
    "time_limit": ("time_limit: 1h", ""),
    "log_limit": ("log_limit: 1GB", ""),
    "restart": ("restart: {max: 1}", ""),
    "checkpoints": ("restart: {}, checkpoints: {path: '/data/step-*'}", "restart: {}"),
    "on_end": ("on_end: {command: [x]}", ""),
    "notify": ("notify: [{to: slack, url_from: URL}]", ""),
    "python": ("python: /opt/python", ""),
    "activate": ("activate: source env", ""),
}
NOT_IN_THE_TEXT = {
    **dict.fromkeys(("name", "script", "command"), "every script shows them: test_slurm, test_bash"),
    "setup": "the caller plans it, with the files that it needs",
    "min_nodes": "Slurm starts the job again with all its nodes, and a script for bash never does",
    "preload": "a part of `start`, which is named",
    "ends_with": "the script ends with the first node that fails, and with the last that succeeds",
    **dict.fromkeys(
        ("zombie_after", "alone", "stall", "diagnose", "debug", "metrics"), "the agents act on it"
    ),
    "waive": "`check` acts on it, and no check is made",
}


def test_every_key_has_its_place() -> None:
    """A new key is carried, named or explained here before it is in no script."""
    assert sorted([*CARRIED, *NOT_IN_THE_TEXT]) == sorted(keys_of(Job))


@pytest.mark.parametrize("key", CARRIED)
def test_a_key_of_the_job_changes_a_script(key: str) -> None:
    """What is not carried is a note."""
    with_key, without = (
        render_slurm(make_export(job, "slurm", INVENTORY)).text
        + render_bash(make_export(job, "bash", INVENTORY)).text
        for job in CARRIED[key]
    )
    assert with_key != without
