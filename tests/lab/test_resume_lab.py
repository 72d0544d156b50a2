"""A node without power takes its checkpoints with it, and the run goes on from the copies of its neighbour."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from driving import cctl, leftovers, make_project, read_until, running_processes, start_cctl
from waiting import wait_until

from clusterctl.lab.labs import Lab, break_node, heal_node

# Every rank writes a file of its own, and the first one `done` when all have; a later attempt needs the files of all.
COUNTING = """
import os, pathlib, sys, time
import torch, torch.distributed as dist

dist.init_process_group("gloo")
attempt, rank, world = int(os.environ["CLUSTERCTL_ATTEMPT"]), dist.get_rank(), dist.get_world_size()
out, resume = pathlib.Path(os.environ["CLUSTERCTL_OUTPUT_DIR"]), sys.argv[1]
assert os.environ["CLUSTERCTL_RESUME"] == resume
count = 0
if resume:
    counts = [int(torch.load(f"{resume}/{other}.pt")) for other in range(world)]
    assert len(set(counts)) == 1, counts
    count = counts[0]
print("attempt", attempt, "begins at", count, flush=True)
while count < 40:
    dist.all_reduce(torch.ones(1))
    count += 1
    if count % 10 == 0:
        folder = out / f"step-{count}"
        folder.mkdir(parents=True, exist_ok=True)
        torch.save(torch.tensor(count), folder / f"{rank}.pt")
        dist.barrier()
        if rank == 0:
            (folder / "done").touch()
    while attempt == 1 and rank == 0 and count == 25:
        time.sleep(0.1)  # until a node has no power; the other ranks wait for it in the next all_reduce
dist.destroy_process_group()
"""
CHECKPOINTS = {"path": "${output_dir}/step-*", "complete": "done"}


def test_a_node_has_no_power_and_a_spare_goes_on_from_its_checkpoint(
    make_lab: Callable[..., Lab], tmp_path: Path
) -> None:
    """All ranks go on at the same step, forked from warm nodes; the spare has never had a file of the run."""
    lab = make_lab(n=4)
    names = [node.name for node in lab.nodes]
    short = make_project(tmp_path / "warm", "import torch", nodes=4, alone="ok", keep_warm="2m")
    assert cctl(lab, "launch", short).code == 0
    wait_until(lambda: len(json.loads(cctl(lab, "ps", "--json").out)["warm"]) == 4, "all nodes are warm")
    job = make_project(
        tmp_path,
        COUNTING,
        nodes=3,
        start="fork",
        args=["${resume}"],
        restart={"spares": 1},
        checkpoints=CHECKPOINTS,
    )
    launcher = start_cctl(lab, "launch", job, "--json")
    run = json.loads(read_until(launcher, "attempt 1 begins at 0"))["run"]
    wait_until(lambda: states(lab, run).get("step-20") == "safe", "step-20 has its copies")
    break_node(lab, names[1], "power")
    line = read_until(launcher, "attempt 2 begins at")
    rest = launcher.communicate()[0]
    wait_until(lambda: running_processes(lab) == {}, "the run ends")
    heal_node(lab, names[1])

    assert "attempt 2 begins at 20" in line
    begun = cctl(lab, "logs", run, "--node", names[3]).out.splitlines()[-1]
    assert begun.endswith("attempt 2 begins at 20"), rest
    kept = lab.nodes[0].run(["sh", "-c", f"cat ~/.clusterctl/runs/{run}/*/events.jsonl"]).stdout
    assert [entry["method"] for entry in map(json.loads, kept.splitlines()) if entry["event"] == "warm"] == [
        "fork"
    ] * 2
    ended = document(lab, run)
    assert (ended["state"], ended["attempt"], ended["resumed"]) == ("SUCCEEDED", 2, "step-20"), ended
    assert leftovers(lab) == {}


def document(lab: Lab, run: str) -> dict[str, Any]:
    """Return what `status` shows of the run."""
    status: dict[str, Any] = json.loads(cctl(lab, "status", run, "--json").out)["run"]
    return status


def states(lab: Lab, run: str) -> dict[str, str]:
    """Return how far the checkpoints are, by name."""
    return {one["name"]: one["state"] for one in document(lab, run).get("checkpoints") or ()}


# Each node saves a file of a megabyte, and the first one `done`; a later attempt, and a run that is to be quick, end.
SAVING = """
import os, pathlib, sys, time

node_rank, resume = os.environ["NODE_RANK"], os.environ["CLUSTERCTL_RESUME"]
folder = pathlib.Path(os.environ["CLUSTERCTL_OUTPUT_DIR"], "step-1")
print("begins from", [resume], flush=True)
if not resume and "quick" not in sys.argv:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / node_rank).write_bytes(os.urandom(1 << 20))
    if node_rank == "0":
        (folder / "done").touch()
    time.sleep(600)
"""


@pytest.fixture
def hold_keeper(cluster: Lab) -> Iterator[Callable[[], None]]:
    """Yield what slows the files that the first node gives to 10 kB/s, and nothing else of it."""
    node = cluster.nodes[0]
    tc = f"tc {{}} dev {node.plan.training_nic} "
    classes = [("1", "10gbit"), ("2", "80kbit")]

    def hold() -> None:
        (pid,) = (one.pid for one in node.list_processes() if " keeper " in one.command)
        sockets = node.run(["ss", "-ltnp"]).stdout.splitlines()
        (port,) = {line.split()[3].rpartition(":")[2] for line in sockets if f"pid={pid}," in line}
        steps = [f"{tc.format('qdisc add')} root handle 1: htb default 1"]
        steps += [f"{tc.format('class add')} parent 1: classid 1:{n} htb rate {rate}" for n, rate in classes]
        steps += [
            f"{tc.format('filter add')} parent 1: protocol ip u32 match ip sport {port} 0xffff flowid 1:2"
        ]
        done = node.run(["sh", "-c", " && ".join(steps)], check=False)
        if done.returncode:
            pytest.skip(f"tc cannot slow a port here: {done.stderr.strip()}")

    yield hold
    node.run(["sh", "-c", tc.format("qdisc del") + " root"], check=False)


@pytest.mark.parametrize("end", ["STOPPED", pytest.param("TIMEOUT", marks=pytest.mark.variant)])
def test_a_run_that_ends_while_a_checkpoint_is_fetched(
    cluster: Lab, tmp_path: Path, hold_keeper: Callable[[], None], end: str
) -> None:
    """By `stop`, or by its time limit: that is the verdict, nothing of it is left, and the next launch runs."""
    job = make_project(
        tmp_path,
        SAVING,
        name=f"fetch-{end.lower()}",
        launcher="python",
        nodes=2,
        restart={"spares": 1},
        time_limit="40s" if end == "TIMEOUT" else None,
        checkpoints={"path": "${output_dir}/step-*", "complete": "done"},
    )
    launcher = start_cctl(cluster, "launch", job, "--json")
    run = json.loads(read_until(launcher, "begins from ['']"))["run"]
    wait_until(lambda: states(cluster, run).get("step-1") == "safe", "step-1 has its copies")
    hold_keeper()
    written = cluster.ssh("gpu02", f"cat ~/.clusterctl/runs/{run}/*-gpu02/state.json")
    cluster.ssh("gpu02", f"kill -9 {json.loads(written)['agent']['pid']}")
    wait_until(lambda: document(cluster, run)["attempt"] == 2, "the next attempt fetches its files")
    if end == "STOPPED":
        lost = cluster.nodes[1]  # answers, but later than the others
        sshd = str(lost.read_state().sshd)
        lost.run(["kill", "-STOP", sshd])
        try:
            stopping = start_cctl(cluster, "stop", run, "-y")
            wait_until(lambda: running_processes(cluster) == {}, "the other nodes have stopped")
        finally:
            lost.run(["kill", "-CONT", sshd])
        said = stopping.communicate()
        assert stopping.returncode == 0, said
    out, notices = launcher.communicate()
    verdict = json.loads(out.splitlines()[-1])["verdict"]

    assert (verdict["state"], verdict["attempt"]) == (end, 2), (verdict, notices)
    assert "begins from ['/" not in out, "no rank of the second attempt has begun"
    assert leftovers(cluster) == {}
    parts = "find ~/.clusterctl/outputs -name '.clusterctl-*'"
    assert [node.run(["sh", "-c", parts], check=False).stdout for node in cluster.nodes] == [""] * 3
    again = cctl(cluster, "launch", job, "--json", "--", "quick")
    assert again.code == 0 and "begins from ['']" in again.out, again.err
