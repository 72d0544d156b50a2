"""A list of runs from a login node: its names go into commands, so that only those of nodes and jobs are kept."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any, cast

import pytest

from clusterctl.client.rpc import tasks
from clusterctl.client.rpc.session import Interpreter, _bootstrap
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.inventory.model import Allocation, Node

RUN = "j-20261123T070000-abcd"
LOGIN = Node(name="login", index=0, host="login", allocation=Allocation(connection="login"))


@pytest.mark.parametrize(
    ("node", "job", "kept"),
    [
        ("gpu01", "4711", True),
        ("slurm-4711", "4711", True),  # in the place of a run's nodes while it waits
        ("gpu01\n: evil", "4711", False),
        ("gpu01\n", "4711", False),
        ("gpü01", "4711", False),
        ("--overlap", "4711", False),
        ("../gpu01", "4711", False),
        ("$(id)", "4711", False),
        ("g" * 129, "4711", False),
        ("", "4711", False),
        ("gpu01", "", False),  # it would run on the login node
        ("gpu01", "4711\n", False),
        ("gpu01", "٤٧١١", False),
        ("gpu01", "1;id", False),
    ],
)
def test_only_nodes_and_jobs_are_kept(node: str, job: str, kept: bool) -> None:
    """What is kept can be sent; a node that is reached directly has its name from the inventory."""
    header = Untrusted({"runs": [{"run": RUN, "node": node, "slurm_job": job}]})
    runs, dropped = tasks.read_listing(LOGIN, header, 10)

    assert (len(runs), dropped) == (int(kept), int(not kept))
    assert len(tasks.read_listing(replace(LOGIN, allocation=None), header, 10)[0]) == 1
    for run in runs:
        reached = replace(LOGIN, name=run.node, allocation=Allocation(connection="login", job=run.slurm_job))
        interpreter = tasks.on_node(reached, Interpreter("python3"))
        assert f"--nodelist={node}" in shlex.split(interpreter.step)
        _bootstrap(cast("Any", {}), b"", interpreter)
