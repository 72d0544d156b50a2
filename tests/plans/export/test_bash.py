"""The script for bare SSH: how it reaches each node, and what each node gets."""

from __future__ import annotations

import pytest
from exporting import INVENTORY, make_export

from clusterctl.errors import UsageError
from clusterctl.plans.export.bash import render_bash
from clusterctl.plans.export.shell import render_node_settings


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
