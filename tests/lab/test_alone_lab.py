"""Ranks that ran alone are no success: real torch and torchrun with Gloo on a lab."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from driving import Result, cctl, leftovers, make_project, run_id
from variants import VARIANT

from clusterctl.lab.labs import Lab

TRAINS = "import sys, torch, torch.distributed as dist, torch.multiprocessing as mp\n"
ALONE = TRAINS + "print('not enough GPUs')\n"
JOINS = "dist.init_process_group('gloo')\nx = torch.ones(1)\ndist.all_reduce(x)\nprint(int(x), dist.get_world_size())\n"
LEAVES = JOINS + "dist.destroy_process_group()\n"
PAIRS = """
import datetime, os
rank = int(os.environ["RANK"])
host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
store = dist.TCPStore(host, port, None, False, datetime.timedelta(seconds=60))
dist.init_process_group("gloo", store=dist.PrefixStore(str(rank // 2), store), rank=rank % 2, world_size=2)
dist.barrier()
"""
SPAWNS = """
def work(_, rank, address):
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    dist.barrier()
    print("together", flush=True)
if __name__ == "__main__":
    address = "tcp://%s:%s" % tuple(sys.argv[2:4])
    mp.start_processes(work, (int(sys.argv[1]), address), nprocs=1, start_method=sys.argv[4])
"""
BY_NODE = """
import tempfile
def work(rank, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    dist.barrier()
    END
if __name__ == "__main__":
    mp.start_processes(work, (tempfile.mkdtemp(),), nprocs=2, start_method="START")
"""
PLACE = ["${node_rank}", "${master_addr}", "${master_port}"]
FORK: dict[str, Any] = {"start": "fork"}
PYTHON: dict[str, Any] = {"launcher": "python", "nproc_per_node": 1}


def launch(lab: Lab, folder: Path, source: str, job: dict[str, Any]) -> Result:
    """Launch a script on two nodes with one rank each."""
    wish = {"nodes": 2, "nproc_per_node": 1, "backend": "gloo", **job}
    return cctl(lab, "launch", make_project(folder, source, **wish))


CASES = [
    pytest.param(ALONE, {}, 1, "2 ranks ran alone: ", marks=VARIANT, id="alone-exec"),
    pytest.param(ALONE, {**FORK, "alone": "ok"}, 0, "", marks=VARIANT, id="alone-ok"),
    pytest.param(TRAINS + JOINS, FORK, 0, "", marks=VARIANT, id="together"),
    pytest.param(TRAINS + LEAVES, FORK, 0, "", marks=VARIANT, id="left"),
    pytest.param(
        TRAINS + PAIRS,
        {"nproc_per_node": 2},
        1,
        "the 4 ranks formed process groups of 2, 4 were planned",
        marks=VARIANT,
        id="pairs",
    ),
    pytest.param(ALONE, PYTHON, 1, "2 ranks ran alone: ", marks=VARIANT, id="alone-python"),
    pytest.param(
        # forked, so that torch is imported once on a node
        TRAINS + BY_NODE.replace("END", "pass").replace("START", "fork"),
        PYTHON,
        1,
        "the 4 ranks formed process groups of 2, 4 were planned",
        id="groups-of-each-node",
    ),
    pytest.param(ALONE, {"diagnose": False}, 0, "", marks=VARIANT, id="not-prepared"),
    pytest.param(TRAINS + SPAWNS, {**PYTHON, "args": [*PLACE, "spawn"]}, 0, "", marks=VARIANT, id="spawned"),
    pytest.param(TRAINS + SPAWNS, {**PYTHON, "args": [*PLACE, "fork"]}, 0, "", marks=VARIANT, id="forked"),
    pytest.param("import os\nprint(os.environ['RANK'])\n", {}, 0, "", marks=VARIANT, id="no-torch"),
]


@pytest.mark.parametrize(("source", "job", "code", "said"), CASES)
def test_how_a_run_ends_by_its_groups(
    cluster: Lab, tmp_path: Path, source: str, job: dict[str, Any], code: int, said: str
) -> None:
    """Exit code 1 and the sentence where it is certain that no group of all ranks was there; else success."""
    done = launch(cluster, tmp_path, source, job)

    assert done.code == code, done.err
    assert ("CC-RUN-053" in done.err) == bool(said)
    assert said in done.err
    assert ("✓ SUCCEEDED" in done.err) == (code == 0)


def test_every_verb_says_the_same(cluster: Lab, tmp_path: Path) -> None:
    """launch, attach, status and ps; with the remedy, and the node's own words in its row."""
    done = launch(cluster, tmp_path, ALONE, FORK)
    run = run_id(done.err)
    with ThreadPoolExecutor() as pool:
        verbs = [("attach", run), ("status", run), ("status", run, "--json"), ("ps", "--json")]
        attached, status, as_json, listed = pool.map(lambda words: cctl(cluster, *words), verbs)
    parsed = json.loads(as_json.out)

    for shown in (done.err, attached.err, status.out):
        assert "2 ranks ran alone: " in shown
        assert "`alone: ok`" in shown
    assert (done.code, attached.code) == (1, 1)
    assert "ran alone: no process group of 2 was formed" in " ".join(status.out.split())
    assert parsed["run"]["state"] == "FAILED"
    assert parsed["alone"] == {"ranks": 2, "largest": 1, "planned": 2, "code": "CC-RUN-053"}
    assert [one["state"] for one in json.loads(listed.out)["runs"] if one["run"] == run] == ["FAILED"]
    assert not leftovers(cluster)


def test_groups_that_were_destroyed_are_a_warning_where_nothing_distinguishes_the_nodes(
    cluster: Lab, tmp_path: Path
) -> None:
    """The check suspects it before the start; the result repeats it, in every verb, and is a success."""
    left = TRAINS + BY_NODE.replace("END", "dist.destroy_process_group()").replace("START", "spawn")
    done = launch(cluster, tmp_path, left, PYTHON)
    run = run_id(done.err)
    with ThreadPoolExecutor() as pool:
        verbs = [("attach", run), ("status", run), ("attach", run, "--json")]
        attached, status, as_json = pool.map(lambda words: cctl(cluster, *words), verbs)
    verdict = json.loads(as_json.out.splitlines()[-1])["verdict"]

    assert (done.code, attached.code, verdict["state"]) == (0, 0, "SUCCEEDED"), done.err
    before, after = done.err.split(" SUCCEEDED ")
    assert "warning CC-RUN-050" in before
    for shown in (after, attached.err, status.out):
        assert "warning: the ranks of the 2 nodes may have run alone: " in " ".join(shown.split())
    assert verdict["alone"] == {"ranks": 2, "largest": 0, "planned": 2, "code": "CC-RUN-050"}
