"""Setups on real nodes: wheels go along, the environment is made, used, found again, and cleaned away."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from driving import (
    STUBBED,
    cctl,
    leftovers,
    make_project,
    start_cctl,
    tagged,
    wait_until_gone,
)
from variants import first
from waiting import HANG, wait_until
from wheels import make_wheel

from clusterctl.lab.labs import Lab

# Nodes see the machine's own /etc: what pip is configured to there is none of our tests' business.
SHUT_OUT = {"PIP_CONFIG_FILE": "/dev/null"}
SAYS = "import os, sys, tool; print(tool.VERSION, sys.prefix, sys.prefix + '/bin' == os.environ['PATH'].split(':')[0])"


def make_job(folder: Path, **job: object) -> Path:
    """Write a project with a wheelhouse of one wheel, for two nodes."""
    make_wheel(folder / "wheels", "tool", "1.5")
    (folder / "requirements.txt").write_text("tool==1.5\n")
    return make_project(folder, SAYS, **{"nodes": 2, "env": {**STUBBED, **SHUT_OUT}, **job})


def test_wheels_go_along(cluster: Lab, tmp_path: Path) -> None:
    """Two nodes whose Python has no torch make the same venv from wheels that are sent, without a network.

    What check reports of torch before and after it; the next launch finds it there; commands run around both.
    """
    stub = tmp_path / "stub"
    shutil.copytree(STUBBED["PYTHONPATH"], stub, ignore=shutil.ignore_patterns("__pycache__"))
    (stub / "torch" / "version.py").write_text("__version__ = '9.9.0'\ncuda = None\n")
    make_wheel(tmp_path / "job" / "wheels", "torch", "9.9.0", tree=stub)
    around = {"before": {"run": "echo begin"}, "after": {"run": ["echo $CLUSTERCTL_STATE", "exit 3"]}}
    made_of = {"venv": "requirements.txt", "wheelhouse": "wheels"}
    bare = str(Path(sys.base_prefix, "bin", "python3"))
    job = make_job(tmp_path / "job", env=SHUT_OUT, python=bare, setup=made_of, **around)
    (tmp_path / "job" / "requirements.txt").write_text("tool==1.5\ntorch==9.9.0\n")
    plan = cctl(cluster, "launch", job, "--dry-run")
    checks = [cctl(cluster, "check", job, "--json", "--only", "TORCH,SETUP")]
    first = cctl(cluster, "launch", job)
    checks.append(cctl(cluster, "check", job, "--json", "--only", "TORCH,SETUP"))
    second = cctl(cluster, "launch", job)
    before, after = (json.loads(one.out) for one in checks)

    assert "<environment>/bin/python -m pip install" in plan.out
    assert "--no-index --find-links wheels -r requirements.txt" in plan.out
    assert "# after each attempt, on each node: exit 3" in plan.out
    assert [one["code"] for one in before["findings"]] == ["CC-SETUP-010"]
    assert (checks[0].code, first.code, second.code) == (0, 0, 0), first.err
    assert [line.split(" | ")[1].split()[::2] for line in sorted(first.out.splitlines())] == [
        ["1.5", "True"]
    ] * 2
    assert "all ok" in first.err
    assert "built on gpu[01-02]; " in first.err
    assert "already there" in second.err
    assert "note: gpu[01-02]: after: `exit 3` exited with 3" in second.err
    assert after["nodes"][0]["facts"]["torch"]["version"] == "9.9.0"
    assert "CC-SETUP-010" not in [one["code"] for one in after["findings"]]
    assert not leftovers(cluster)


def test_a_setup_that_fails_on_one_node(cluster: Lab, tmp_path: Path) -> None:
    """The node, the command and its last words are named; nothing runs anywhere, nothing half made is there."""
    steps = ["test $CLUSTERCTL_NODE = gpu01 || { echo no room here >&2; exit 9; }", "sleep 1000"]
    job = make_job(tmp_path, setup={"run": steps})
    failed = cctl(cluster, "launch", job)
    listed, shown = cctl(cluster, "ps"), cctl(cluster, "logs")
    half = "cd ~/.clusterctl/envs && for each in *; do [ -e $each/made.json ] || find $each -mindepth 1 -type d; done"

    assert failed.code == 1
    assert "error CC-SETUP-001: gpu02: setup: `test $CLUSTERCTL_NODE = gpu01" in failed.err
    assert "exited with 9" in failed.err
    assert "no room here" in failed.err
    assert "/setup && PATH=$PWD/try/bin:$PATH && " in failed.err
    assert "gpu02 -  ! no room here" in shown.out
    assert "FAILED_SETUP" in listed.out.splitlines()[1]
    wait_until(  # the other node ends its part when it gets the failure, not when we do
        lambda: [node.run(["sh", "-c", half], check=False).stdout for node in cluster.nodes[:2]] == ["", ""],
        "nothing half made",
    )
    wait_until_gone(cluster)


@pytest.mark.parametrize("order", ["node 0 first", "the other first"])
def test_a_setup_that_fails_on_node_0(cluster: Lab, tmp_path: Path, order: str) -> None:
    """Its own failure is shown, not the connection that the other node loses by it, whichever is reported first."""
    steps = [
        "test $CLUSTERCTL_NODE = gpu02 || { while [ ! -e /tmp/go ]; do sleep 0.05; done; echo no room; exit 9; }",
        "sleep 1000",
    ]
    job = make_job(tmp_path, setup={"run": steps})
    launch = start_cctl(cluster, "launch", job)
    wait_until(lambda: sum(len(found) for found in tagged(cluster).values()) >= 4, "the steps on both nodes")
    relays = [str(one.pid) for one in cluster.nodes[0].list_processes() if one.command.startswith("sshd: ")]
    if order == "the other first":
        cluster.nodes[0].run(["kill", "-STOP", *relays])
    cluster.nodes[0].run(["touch", "/tmp/go"])
    if order == "the other first":
        wait_until(
            lambda: cluster.nodes[1].name not in tagged(cluster), "the other node has reported and ended"
        )
        cluster.nodes[0].run(["kill", "-CONT", *relays])
    _, err = launch.communicate(timeout=HANG)
    cluster.nodes[0].run(["rm", "-f", "/tmp/go"])

    assert launch.returncode == 1
    assert "error CC-SETUP-001: gpu01: setup: " in err
    assert "no room" in err
    assert "CC-NET-022" not in err
    wait_until_gone(cluster)


@pytest.mark.parametrize("how", first(1, ["interrupt", "kill"]))
def test_a_launch_that_is_left_during_its_setup(cluster: Lab, tmp_path: Path, how: str) -> None:
    """Ctrl-C, or kill -9 of the client: the steps end on all nodes."""
    job = make_job(tmp_path, setup={"run": "trap '' TERM; setsid sleep 1000 & sleep 1000"})
    process = start_cctl(cluster, "launch", job)
    wait_until(lambda: sum(len(found) for found in tagged(cluster).values()) >= 6, "the steps on both nodes")
    if how == "kill":
        process.kill()
    else:
        process.send_signal(2)
    process.wait(HANG)
    wait_until_gone(cluster)
    assert process.returncode == (130 if how == "interrupt" else -9)


def test_a_setup_file_that_is_not_there(cluster: Lab, tmp_path: Path) -> None:
    """It is reported before any node is asked."""
    job = make_job(tmp_path, setup={"venv": "requirement.txt"})
    found = cctl(cluster, "launch", job)

    assert found.code == 2
    assert "CC-SETUP-003" in found.err
    assert "requirement.txt: No such file or directory" in found.err
    assert "check" not in found.err.split("CC-SETUP-003")[0].splitlines()[-1]
