"""A run that hangs on real nodes, forked and exec'ed: who is named, and a rank that does not exit after its failure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from driving import STUBBED, cctl, leftovers, make_project, run_id, said
from waiting import wait_until

from clusterctl.lab.labs import Lab

HANGS = """
import sys, time, torch, torch.distributed as dist

def load_batch():
    time.sleep(1000)

dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1000))
print("up", flush=True)
if dist.get_rank() == 1:
    load_batch()
dist.all_reduce(torch.ones(1000))
"""
ZOMBIE = """
import os, threading, time

if os.environ.get("RANK", os.environ.get("NODE_RANK")) == "1":
    threading.Thread(target=time.sleep, args=(1000,)).start()
    raise RuntimeError("no more batches")
time.sleep(1000)
"""


@pytest.mark.parametrize("start", ["fork", pytest.param("exec", marks=pytest.mark.variant)])
def test_the_rank_that_the_others_wait_for_is_named(cluster: Lab, tmp_path: Path, start: str) -> None:
    """Its line too, and nothing is stopped by the question; the files have the stacks.

    After the job's `stall` the run is STALLED in every list, and that it was stays known after a user has stopped it.
    """
    job = make_project(tmp_path, HANGS, start=start, stall={"after": "2s"})
    launched = cctl(cluster, "launch", "-d", job)
    assert launched.code == 0, launched.err

    def found() -> dict[str, Any] | None:
        answer = cctl(cluster, "diagnose", "--json", "--save", tmp_path / "kept")
        assert answer.code == 0, answer.err
        document: dict[str, Any] = json.loads(answer.out)
        hangs = document["code"] == "CC-HANG-004" and len(document["waiting"]) == 2
        return document if hangs else None

    document = wait_until(found, "the wait is longer than usual")
    assert (document["suspects"], document["waiting"], document["hangs"]) == ([1], [0, 2], True)
    assert "rank 1 (gpu02) has not entered all_reduce #2 of group default_pg" in document["sentence"]
    assert (
        "it is at train.py:5 in load_batch(): time.sleep(1000); 2 ranks have waited for it at train.py:12"
        in document["sentence"]
    )
    assert "in load_batch" in (tmp_path / "kept/rank-1.gpu02.stacks.txt").read_text()
    assert json.loads((tmp_path / "kept/diagnosis.json").read_text())["suspects"] == [1]
    state = json.loads(cctl(cluster, "status", "--json").out)
    assert {node["state"] for node in state["nodes"]} == {"RUNNING"}

    def newest() -> dict[str, Any]:
        run: dict[str, Any] = json.loads(cctl(cluster, "ps", "--json").out)["runs"][0]
        return run

    wait_until(lambda: newest()["state"] == "STALLED", "the stall")
    stalled = newest()
    assert stalled["stalled_since"] is not None and stalled["cause"].startswith("no progress for ")
    head = cctl(cluster, "status").out.splitlines()[0]
    assert "STALLED" in head and "no progress for" in head
    assert cctl(cluster, "stop", "-y", run_id(launched.err + launched.out)).code == 0
    stopped = newest()
    assert stopped["state"] == "STOPPED" and stopped["cause"].endswith("; it had stalled")
    assert leftovers(cluster) == {}


@pytest.mark.parametrize("launcher", ["torchrun", "python"])
def test_a_rank_that_does_not_exit_after_its_traceback_ends_the_run(
    cluster: Lab, tmp_path: Path, launcher: str
) -> None:
    """It counts as failed, with its exception as the cause; also one that is a process without RANK, as with JAX."""
    job = make_project(tmp_path, ZOMBIE, zombie_after="1s", env=STUBBED, launcher=launcher)
    done = cctl(cluster, "launch", "--json", job)
    assert done.code == 1, done.err
    verdict = done.verdict()
    assert (verdict["state"], verdict["cause"]["rank"]) == ("FAILED", 1)
    assert verdict["cause"]["exception"] == "RuntimeError: no more batches"
    assert said(done.json_lines(), "stderr")
    assert leftovers(cluster) == {}


def test_a_run_without_progress_is_ended_and_says_where_its_ranks_were(cluster: Lab, tmp_path: Path) -> None:
    """The nodes find it by themselves, keep where each rank is, and end the run because the job wants that."""
    job = make_project(
        tmp_path, HANGS, nodes=2, start="fork", stall={"after": "2s", "then": "stop"}, grace="1s"
    )
    done = cctl(cluster, "launch", "--json", job)
    assert done.code == 1, done.err
    verdict = done.verdict()
    assert (verdict["state"], verdict["cause"]) == ("FAILED", None)
    assert any("no rank made progress for" in reason for reason in verdict["reasons"].values())
    assert (verdict["hang"]["why"], verdict["hang"]["suspects"]) == ("stall", [1])
    assert "rank 1 (gpu02) was at train.py:5 in load_batch()" in verdict["hang"]["summary"]
    assert json.loads(cctl(cluster, "status", "--json").out)["hang"] == verdict["hang"]
    assert cctl(cluster, "report", "-o", tmp_path / "run.html").code == 0
    page = (tmp_path / "run.html").read_text()
    assert verdict["hang"]["summary"] in page and 'class="stall"' in page
    assert "File &quot;train.py&quot;, line 5 in load_batch" in page.partition("Where the ranks were")[2]
    assert leftovers(cluster) == {}
