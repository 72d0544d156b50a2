"""Runs under a real Ray, on two nodes. The suite has no Ray: set CLUSTERCTL_RAY_PYTHON to a Python that has it."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from driving import cctl, leftovers, make_project, read_until, said, start_cctl
from variants import VARIANT
from waiting import HANG, wait_until

from clusterctl.lab.labs import Lab, break_node
from clusterctl.protocol.run_paths import short_id

OWN = sys.executable if importlib.util.find_spec("ray") is not None else ""
PYTHON = os.environ.get("CLUSTERCTL_RAY_PYTHON", OWN)
pytestmark = [
    VARIANT,
    pytest.mark.skipif(not PYTHON, reason="no Ray: set CLUSTERCTL_RAY_PYTHON to a Python that has it"),
]

SPREAD = """
import os
import ray
from helper import double
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

ray.init(logging_level="ERROR")

@ray.remote
def work(number):
    {body}
    return double(number), ray.util.get_node_ip_address(), os.environ["GLOO_SOCKET_IFNAME"], os.environ["RANK_DIR"]

nodes = sorted(ray.nodes(), key=lambda node: node["NodeManagerAddress"])
print("up", os.environ["RAY_ADDRESS"], len(nodes), flush=True)
tasks = [work.options(scheduling_strategy=On(node["NodeID"], soft=False)).remote(n) for n, node in enumerate(nodes)]
for line in ray.get(tasks):
    print(*line, flush=True)
"""


def make_ray_job(folder: Path, body: str = "pass", **changes: Any) -> Path:
    """Make a job with a task on each node, and a module of its own beside the script."""
    script = SPREAD.format(body=body)
    job = make_project(
        folder, script, launcher="ray", python=PYTHON, nodes=2, env={"RANK_DIR": "${node_rank}"}, **changes
    )
    (folder / "helper.py").write_text("def double(number):\n    return 2 * number\n", encoding="utf-8")
    return job


def kill_raylet(lab: Lab, node: str, run: str) -> None:
    """Kill the raylet of a run on a node."""
    found = "for p in /proc/[0-9]*; do grep -qz '/raylet/raylet$' $p/cmdline && "
    found += (
        f"grep -qz '^CLUSTERCTL_RUN_ID={run}$' $p/environ && kill -9 ${{p#/proc/}}; done 2>/dev/null; true"
    )
    lab.ssh(node, found)


def ray_directories(lab: Lab) -> list[str]:
    """List what Ray has left in /tmp of the nodes."""
    return [line for node in lab.nodes for line in lab.ssh(node.name, "ls /tmp").split() if "cc-run" in line]


def test_every_node_works_for_node_0_and_an_exception_names_its_node(cluster: Lab, tmp_path: Path) -> None:
    """Each has its own address, NIC, variables and code; nothing is left of a run, however it ended."""
    result = cctl(cluster, "launch", make_ray_job(tmp_path / "well"), "--json")
    body = "if number: raise ValueError('loss is nan')"
    failed = cctl(cluster, "launch", make_ray_job(tmp_path / "failed", body), "--ignore-checks")

    assert result.code == 0, result.err
    lines = [line.split() for line in said(result.json_lines()) if line[:2] in ("0 ", "2 ")]
    assert [line[0] for line in lines] == ["0", "2"]
    assert (
        len({line[1] for line in lines})
        == len({line[2] for line in lines})
        == len({line[3] for line in lines})
        == 2
    )
    assert failed.code == 1
    assert "ValueError: loss is nan" in failed.err
    assert "in ray::work() on gpu02" in failed.err
    assert leftovers(cluster) == {}
    assert ray_directories(cluster) == []


def test_two_runs_at_once_do_not_meet_and_each_ends_by_itself(cluster: Lab, tmp_path: Path) -> None:
    """One is stopped, the other goes on until its raylet is killed: that node is named, and nothing is left."""
    body = "import time; time.sleep(600)"
    jobs = [make_ray_job(tmp_path / name, body, name=name) for name in ("a", "b")]
    first, second = (start_cctl(cluster, "launch", job, "--ignore-checks") for job in jobs)
    up = [read_until(process, "| up ").split() for process in (first, second)]
    runs = {run.partition("-")[0]: run for run in json_runs(cluster)}
    join = f"import ray; ray.init(address='{up[0][-2]}')"
    stranger = cluster.ssh("gpu02", f'{PYTHON} -c "{join}" 2>&1 || true')
    stopped = cctl(cluster, "stop", short_id(runs["a"]))
    ended = first.communicate(timeout=HANG)
    alive = second.poll() is None
    kill_raylet(cluster, "gpu02", runs["b"])
    out, err = second.communicate(timeout=HANG)

    assert [words[-1] for words in up] == ["2", "2"], "two nodes each"
    assert up[0][-2] != up[1][-2]
    assert "AuthenticationError" in stranger, "no program joins without the run's token"
    assert (stopped.code, first.returncode) == (0, 1), ended
    assert alive, "the other run's Ray is not ended"
    assert second.returncode == 1
    assert "rank 1 on gpu02" in out + err
    assert "clusterctl: Ray ended with exit code 1 on gpu02" in out + err
    assert "CC-JOB-066" in out + err
    assert leftovers(cluster) == {}
    assert ray_directories(cluster) == []


def json_runs(lab: Lab) -> list[str]:
    """Name the runs that live."""
    runs = json.loads(cctl(lab, "ps", "--json").out)["runs"]
    return [run["run"] for run in runs if run["state"] == "RUNNING"]


def test_a_run_whose_agent_is_killed_leaves_nothing(cluster: Lab, tmp_path: Path) -> None:
    """The guardian ends Ray and removes its directory in the agent's place."""
    job = make_ray_job(tmp_path, "import time; time.sleep(600)")
    process = start_cctl(cluster, "launch", job, "--ignore-checks")
    read_until(process, "| up ")
    state = json.loads(
        cluster.ssh("gpu01", f"cat ~/.clusterctl/runs/{json_runs(cluster)[0]}/*-gpu01/state.json")
    )
    cluster.ssh("gpu01", f"kill -9 {state['agent']['pid']}")
    process.communicate(timeout=HANG)

    assert process.returncode == 1
    assert leftovers(cluster) == {}
    assert ray_directories(cluster) == []


# A task on each node saves a file there, and the driver `done` when all have; a later attempt lists what it finds.
SAVING = """
import os, pathlib, sys, time
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

ray.init(logging_level="ERROR")
folder = pathlib.Path(os.environ["CLUSTERCTL_OUTPUT_DIR"], "step-10")
assert sys.argv[1] == os.environ["CLUSTERCTL_RESUME"]

@ray.remote
def save(number):
    resume = os.environ["CLUSTERCTL_RESUME"]
    if not resume:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / str(number)).write_text("part")
    return sorted(os.listdir(resume)) if resume else []

nodes = sorted(ray.nodes(), key=lambda node: node["NodeManagerAddress"])
tasks = [save.options(scheduling_strategy=On(node["NodeID"], soft=False)).remote(n) for n, node in enumerate(nodes)]
print("found", *ray.get(tasks), flush=True)
if not sys.argv[1]:
    (folder / "done").touch()
    time.sleep(600)
"""


def test_a_lost_node_leaves_a_smaller_ray(make_lab: Callable[..., Lab], tmp_path: Path) -> None:
    """With min_nodes the next attempt waits for the nodes that are left; each has the checkpoint of all."""
    lab = make_lab(n=3)
    job = make_project(
        tmp_path,
        SAVING,
        launcher="ray",
        python=PYTHON,
        nodes=3,
        min_nodes=2,
        restart={"max": 2},
        args=["${resume}"],
        checkpoints={"path": "${output_dir}/step-*", "complete": "done"},
    )
    launcher = start_cctl(lab, "launch", job, "--json")
    read_until(launcher, "Ray has 3 nodes")
    run = json.loads(read_until(launcher, "found [] [] []"))["run"]
    wait_until(lambda: '"safe"' in cctl(lab, "status", run, "--json").out, "the checkpoint has its copies")
    break_node(lab, lab.nodes[2].name, "power")
    read_until(launcher, "Ray has 2 nodes")
    read_until(launcher, "found ['0', '1', '2', 'done'] ['0', '1', '2', 'done']")
    out, notices = launcher.communicate(timeout=HANG)
    verdict = json.loads(out.splitlines()[-1])["verdict"]
    assert (verdict["state"], verdict["smaller"]) == ("SUCCEEDED", {"nodes": 2, "of": 3}), (verdict, notices)
