"""The script for bare SSH: how it reaches each node, and what each node gets."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from exporting import INVENTORY, make_export
from waiting import HANG

from clusterctl.errors import SpecError, UsageError
from clusterctl.plans.export.bash import render_bash
from clusterctl.plans.export.shell import Export, render_node_settings
from clusterctl.plans.launch.setup import plan_setup
from clusterctl.plans.sync.manifest import Manifest


def test_every_node_is_reached_as_the_inventory_says() -> None:
    """Options that all nodes share stand once; spares are left out; the ports are the first node's."""
    text = render_bash(make_export("nproc_per_node: 1", "bash", INVENTORY)).text

    assert "ssh+=(-l me)\n" in text
    assert [line.strip() for line in text.splitlines() if ") ssh+=(" in line] == [
        *("0) ssh+=(-- 192.168.10.235) ;;", "1) ssh+=(-- 192.168.10.236) ;;"),
        "2) ssh+=(-- gpu03.example) ;;",
    ]
    assert "names=(gpu01 gpu02 gpu03)" in text
    assert "master_port=${MASTER_PORT:-$((20000 + RANDOM % 101))}" in text


def test_what_the_inventory_says_of_a_node_is_set_there() -> None:
    """Common values stand once; a `~` is left to the node's shell."""
    lines = render_node_settings(make_export("nproc_per_node: gpu", "bash", INVENTORY))

    assert [line.strip() for line in lines[1:-1]] == [
        "python=python3 nic='' network='' address='' nproc_per_node=gpu",
        "case $1 in",
        "gpu01) nic=meth919,meth920 nproc_per_node=4 ;;",
        "gpu02) python=~/torch/bin/python nic=meth917 nproc_per_node=4 ;;",
        "gpu03) network=10.20.0.0/16 nproc_per_node=2 ;;",
        "esac",
    ]


def test_patterns_of_gitignore_become_those_of_tar() -> None:
    """A pattern with a slash is anchored; one that brings files back is a note."""
    script = render_bash(make_export("sync: {exclude: [data/, '*.pt', /runs/**, '!x']}", "bash", INVENTORY))

    assert "--exclude=data --exclude='*.pt' --exclude='./runs/*' --exclude-vcs-ignores" in script.text
    assert [note.partition(":")[0] for note in script.notes] == [
        *("GPUs are not locked", "sync.exclude"),
    ]


def test_a_script_for_ssh_has_no_more_nodes_than_the_inventory() -> None:
    """Slurm has nodes of its own, ssh has not."""
    with pytest.raises(UsageError, match="4"):
        make_export("nodes: 4", "bash", INVENTORY)
    assert make_export("nodes: 4", "slurm", INVENTORY).nodes.count == 4


# Takes what is sent to a node, and runs none of it: what then runs, runs here.
SSH = """#!/bin/sh\ncase $* in *"'guard'"*) ;; *) cat >/dev/null ;; esac\n"""
BAIT = "touch RAN"
# how a value may stand in the job, with the bait in place of VALUE
KEYS = {
    "args": "args: [VALUE]",
    "env": "env: {A: VALUE}",
    "before": "before: {run: [VALUE]}",
    "after": "after: {run: [VALUE]}",
    "activate": "activate: VALUE",
    "setup.run": "setup: {run: [VALUE]}",
    "command": "script: null, launcher: command, command: [VALUE]",
    "script": "script: VALUE",
    "sync.exclude": "sync: {exclude: [VALUE]}",
    "sync.source": "sync: {source: VALUE}",
}


def export_with_setup(job: str) -> Export:
    """Plan the script of a job, with the steps of its setup."""
    export = make_export(f"nproc_per_node: 1, {job}", "bash", INVENTORY)
    setup = export.job.setup
    return replace(
        export,
        source=export.job.sync.source,
        setup=plan_setup(setup, Manifest(()), "", {}) if setup else None,
    )


def frame_lines() -> list[str]:
    """List the distinct lines of a script that is not hostile."""
    jobs = (
        "args: [a], before: {run: [b]}, after: {run: [c]}, activate: d",
        "setup: {run: [e]}, time_limit: 1h",
    )
    lines = {line.strip() for job in jobs for line in render_bash(export_with_setup(job)).text.splitlines()}
    return [*sorted(lines - {""}), "END OF NODE SCRIPT", ")", "}", "'", '"', "`", "EOF", "\\"]


@pytest.mark.process
@pytest.mark.parametrize("key", KEYS)
def test_no_value_of_a_job_is_a_command_on_this_machine(key: str, tmp_path: Path) -> None:
    """Each line of the script's own frame stands in the value, followed by a command in every state of quoting."""
    ssh = tmp_path / "ssh"
    ssh.write_text(SSH)
    ssh.chmod(0o755)
    for quote, closing in itertools.product(("", "'", '"'), ("", ")\n", "}\n", "esac\n")):
        hostile = "".join(f"{quote}\n{line}\n{closing}{BAIT}\n: {quote}" for line in frame_lines())
        if key in ("args", "env", "command"):
            hostile = hostile.replace("$", "$$")  # no placeholders
        try:
            export = export_with_setup(KEYS[key].replace("VALUE", json.dumps(hostile)))
        except SpecError:
            continue  # no such text is taken for this key
        (tmp_path / "job.sh").write_text(render_bash(export).text)
        subprocess.run(
            ["bash", "job.sh"],
            cwd=tmp_path,
            env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "MASTER_ADDR": "127.0.0.1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=HANG,
            check=False,
        )
        assert not (tmp_path / "RAN").exists()
