"""Runs on a real Slurm: submitted, followed and stopped over the login node alone."""

from __future__ import annotations

import json
import platform
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Bed
from driving import STUBBED, Result, cctl, make_project, read_until, start_cctl
from one_end import ask_all, find_differences
from page_client import press, stream
from variants import VARIANT
from waiting import HANG, wait_until

import clusterctl
from clusterctl.lab.labs import break_node, heal_node
from clusterctl.lab.layout import DEFAULT_NICS, SLURM_INVENTORY

NICS = {f"gpu0{place}": f"={nic}" for place, nic in enumerate(DEFAULT_NICS[:3], 1)}
# A rank that fails leaves a child that holds its output: srun alone would wait for it.
SCRIPT = """
import json, os, socket, subprocess, sys, time

rank = os.environ["NODE_RANK"]
names = {"host": socket.gethostname(), "nic": os.environ["NCCL_SOCKET_IFNAME"], "secret": os.environ.get("SECRET")}
print(json.dumps(names), flush=True)
if "fail" in sys.argv and rank == "1":
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    raise ValueError("no such sample")
if len(sys.argv) > 1:
    time.sleep(600)
"""


class SlurmBed:
    """A lab with a real Slurm, and the inventory by which jobs go there."""

    def __init__(self, bed: Bed) -> None:
        self.bed, self.inventory = bed, str(bed.directory / SLURM_INVENTORY)

    def run(self, *args: str | Path, **env: str) -> Result:
        """Run a verb of clusterctl."""
        return cctl(None, "-i", self.inventory, *args, **env)

    def json(self, verb: str, *args: str | Path) -> Any:
        """Run a verb that answers in JSON."""
        result = self.run(verb, "--json", *args)
        assert result.code == 0, result.err
        return json.loads(result.out)

    def slurm(self, command: str) -> str:
        """Run one of Slurm's own programs on the login node."""
        return self.bed.ssh("gpu01", command)

    def states(self, run: str) -> dict[str, str]:
        """Give the state of each node's part."""
        return {node["node"]: node["state"] for node in self.json("status", run)["nodes"]}


@pytest.fixture
def slurm(make_lab: Callable[..., Bed]) -> SlurmBed:
    """Three nodes with a real Slurm; skips the test, with the reason, where there is none."""
    if shutil.which("slurmctld", path="/usr/sbin:/sbin") is None:
        pytest.skip("slurmctld is not installed: apt-get install --no-install-recommends slurm-wlm")
    return SlurmBed(make_lab(n=3, slurm=True))


def test_a_run_on_slurm_from_the_queue_to_its_end(slurm: SlurmBed, tmp_path: Path) -> None:
    """Three interfaces with different names; the cause is ours, not 143; a run in the queue is listed and cancelled."""
    job = make_project(tmp_path, SCRIPT, launcher="python", nodes=3, secrets=["SECRET"])

    done = slurm.run("launch", job, "--json", SECRET="hidden-value")
    assert done.code == 0, done.out + done.err
    assert "check   3/3 nodes" in done.err
    lines = [entry["line"] for entry in done.json_lines() if entry.get("stream") == "stdout"]
    found = [json.loads(line.replace("***", "x")) for line in lines if '"host"' in line]
    assert {one["host"]: one["nic"] for one in found} == NICS
    assert "hidden-value" not in done.out
    shown = slurm.slurm("scontrol show job -o 1; cat ~/.clusterctl/runs/*/0-.slurm/[bt]*")
    assert "batch.sh" in shown and "hidden-value" not in shown
    assert "secrets.json" not in slurm.slurm("ls ~/.clusterctl/runs/*/0-.slurm")

    failed = slurm.run("launch", job, "--json", "--", "fail", SECRET="s")
    assert failed.code == 1, failed.out + failed.err
    verdict = failed.verdict()
    assert (verdict["state"], verdict["cause"]["rank"], verdict["cause"]["node"]) == ("FAILED", 1, "gpu02")
    assert "no such sample" in json.dumps(verdict["cause"])
    wait_until(lambda: "sleep 600" not in slurm.bed.ssh("gpu02", "ps ax"), "the left child is ended")

    slurm.slurm("sbatch -N3 --exclusive --wrap 'srun sleep 600'")
    run = slurm.run("launch", "-d", job, SECRET="s").out.strip()
    (pending, *_) = slurm.json("ps")["runs"]
    assert (pending["run"], pending["state"]) == (run, "SUBMITTED")
    assert slurm.run("logs", run).code == 2
    assert slurm.run("stop", run, "-y").code == 0
    assert list(slurm.states(run).values()) == ["STOPPED"]
    assert find_differences(ask_all(slurm.run, run, None), "STOPPED", 1) == []

    waits = slurm.run("launch", "-d", job, SECRET="s").out.strip()
    cleaned = slurm.json("clean", "-y", "--keep", "0")
    assert run in [one["run"] for one in cleaned["runs"]] and cleaned["stays"] == []
    assert slurm.slurm("ls ~/.clusterctl/runs").split() == [waits]
    assert "secrets.json" in slurm.slurm("ls ~/.clusterctl/runs/*/0-.slurm")
    slurm.slurm("scancel $(squeue -h -o %i)")
    assert find_differences(ask_all(slurm.run, waits, None), "STOPPED", 1) == []
    slurm.json("clean", "--dry-run")
    assert "secrets.json" not in slurm.slurm("ls ~/.clusterctl/runs/*/0-.slurm")


def test_a_run_is_stopped_cancelled_by_slurm_and_loses_a_node(slurm: SlurmBed, tmp_path: Path) -> None:
    """All is recorded by the nodes themselves; a login node that is away for a while ends nothing."""
    job = make_project(tmp_path, SCRIPT, launcher="python", nodes=3)
    before = job.read_bytes()
    over_ssh = cctl(slurm.bed, "launch", job)
    assert over_ssh.code == 0, over_ssh.err

    def launch() -> str:
        run = slurm.run("launch", "-d", job, "--", "sleep").out.strip()
        wait_until(lambda: set(slurm.states(run).values()) == {"RUNNING"}, "all nodes run")
        return run

    run = launch()
    answers = slurm.json("exec", "--", "hostname")
    assert "gpu03" in json.dumps(answers)
    diagnosis = json.dumps(slurm.json("diagnose", run)["nodes"])
    assert all(node in diagnosis for node in NICS)
    assert slurm.run("ssh", "gpu02", run, "--", "hostname").out.strip() == "gpu02"
    assert [node["name"] for node in slurm.json("top", run)["nodes"]] == list(NICS)
    page = tmp_path / "run.html"
    assert slurm.run("report", run, "-o", page).code == 0
    assert all(node in page.read_text() for node in NICS)
    pulled = slurm.run("pull", run, tmp_path / "here", "--logs")
    assert pulled.code == 0, pulled.err
    assert (tmp_path / "here" / "gpu02").is_dir()
    stopped = slurm.run("stop", run, "-y")
    assert stopped.code == 0, stopped.out + stopped.err
    # by the order, or by the nodes that had it first
    assert all(f"{node}: stopped" in stopped.out for node in NICS)
    assert slurm.states(run) == dict.fromkeys(NICS, "STOPPED")
    assert slurm.run("diagnose", run).code == 2

    run = launch()
    follower = start_cctl(slurm.bed, "-i", slurm.inventory, "attach", run, "--json")
    read_until(follower, "secret")  # it follows; without a connection it would end
    break_node(slurm.bed, "gpu01", "sshd")
    assert slurm.run("ps").code == 4
    heal_node(slurm.bed, "gpu01")
    slurm.slurm("scancel $(squeue -h -o %i)")
    out, _ = follower.communicate(timeout=60)
    assert json.loads(out.splitlines()[-1])["verdict"]["state"] == "STOPPED"
    assert find_differences(ask_all(slurm.run, run, tmp_path / "end.html"), "STOPPED", 1) == []
    assert "stopped by Slurm" in json.dumps(slurm.json("status", run))
    wait_until(lambda: slurm.slurm("squeue -h") == "", "Slurm's queue is empty")
    assert job.read_bytes() == before  # the same file for SSH and for Slurm

    run = launch()
    break_node(slurm.bed, "gpu03", "power")
    lost = slurm.run("attach", run, "--json")
    assert lost.code == 1, lost.out + lost.err
    verdict = lost.verdict()
    assert (verdict["state"], verdict["cause"]["node"]) == ("LOST", "gpu03")
    assert find_differences(ask_all(slurm.run, run, None), "LOST", 1) == []
    wait_until(lambda: "train.py" not in slurm.bed.ssh("gpu02", "ps ax"), "the other nodes have stopped")


# Each node saves a file on its own disk; the directory that all see shows the first node when all have.
SAVING = """
import os, pathlib, sys, time

attempt, node_rank, resume = os.environ["CLUSTERCTL_ATTEMPT"], os.environ["NODE_RANK"], os.environ["CLUSTERCTL_RESUME"]
folder, seen_by_all = pathlib.Path("/tmp/saved/step-10"), pathlib.Path(os.environ["CLUSTERCTL_OUTPUT_DIR"])
print("attempt", attempt, *sys.argv[1:], os.environ["NNODES"], resume, flush=True)
if resume:
    print("found", sorted(os.listdir(resume)), flush=True)
else:
    folder.mkdir(parents=True)
    (folder / node_rank).write_text("part")
    (seen_by_all / f"saved{node_rank}").touch()
    while node_rank == "0" and len(list(seen_by_all.glob("saved*"))) < 3:
        time.sleep(0.05)
    if node_rank == "0":
        (folder / "done").touch()
    time.sleep(600)
"""


@VARIANT
def test_an_allocation_that_loses_a_node_goes_on_with_the_others(slurm: SlurmBed, tmp_path: Path) -> None:
    """The nodes restart the run inside the allocation, from the checkpoint of all; Slurm does not end or requeue it."""
    job = make_project(
        tmp_path,
        SAVING,
        launcher="python",
        nodes=3,
        min_nodes=2,
        nproc_per_node=2,
        restart={"max": 2},
        args=["${node_rank}/${world_size}"],
        checkpoints={"path": "/tmp/saved/step-*", "complete": "done"},
    )
    launcher = start_cctl(slurm.bed, "-i", slurm.inventory, "launch", job, "--json")
    run = json.loads(read_until(launcher, "attempt 1 2/6 3"))["run"]
    wait_until(lambda: '"safe"' in slurm.run("status", run, "--json").out, "the checkpoint has its copies")
    break_node(slurm.bed, "gpu03", "power")
    out, notices = launcher.communicate()
    verdict = json.loads(out.splitlines()[-1])["verdict"]
    assert (verdict["state"], verdict["smaller"]) == ("SUCCEEDED", {"nodes": 2, "of": 3}), (verdict, notices)
    printed = [line.partition("| ")[2] for line in slurm.run("logs", run).out.splitlines()]
    resumed = "/tmp/saved/step-10"
    assert {f"attempt 2 0/4 2 {resumed}", f"attempt 2 1/4 2 {resumed}"} <= set(printed), printed
    assert printed.count("found ['0', '1', '2', 'done']") == 2, printed
    wait_until(lambda: slurm.slurm("squeue -h") == "", "Slurm's queue is empty")
    assert slurm.json("status", run)["run"]["state"] == "SUCCEEDED"


def test_runs_and_functions_from_python(slurm: SlurmBed, tmp_path: Path) -> None:
    """A job is submitted, followed, and its cause named; a function returns from each rank what it does there."""
    job = make_project(tmp_path, SCRIPT, launcher="python", nodes=2)

    run = clusterctl.launch(job, inventory=slurm.inventory, args=["fail"])
    with pytest.raises(clusterctl.RunFailed, match="no such sample") as raised:
        run.wait(10 * HANG, check=True)
    keys = {"nodes": 2, "nproc_per_node": 1, "backend": "gloo", "env": STUBBED}
    names = clusterctl.run(platform.node, inventory=slurm.inventory, **keys)  # type: ignore[arg-type]  # keys of a job

    assert raised.value.cause == run.cause
    assert run.cause is not None and (run.cause.node, run.cause.rank) == ("gpu02", 1)
    assert sum('"host"' in line["line"] for line in run.logs(stream="stdout")) == 2
    assert [node["state"] for node in run.status()["nodes"]][1] == "FAILED"
    assert names == clusterctl.attach("node", inventory=slurm.inventory).results() == ["gpu01", "gpu02"]


@VARIANT
def test_the_check_and_the_setup_are_in_the_allocation(slurm: SlurmBed, tmp_path: Path) -> None:
    """With the findings, errors and exit codes of a launch over SSH; a job of `check` leaves nothing."""
    job = make_project(tmp_path, SCRIPT, launcher="python", nodes=2)
    alone = slurm.json("check", job)
    assert [node["name"] for node in alone["nodes"]] == ["gpu01", "gpu02"]
    assert slurm.slurm("squeue -h -t R,PD") == "" and "check-" not in slurm.slurm("ls ~/.clusterctl/runs")

    measured = slurm.json("check", "--deep", job)
    assert measured["deep"]["found"]["ok"], measured["deep"]
    assert [one["kind"] for one in measured["deep"]["rounds"]] == ["all"]
    wait_until(lambda: slurm.slurm("squeue -h") == "", "the job of the test is over")
    assert "deep-check-" not in slurm.slurm("ls ~/.clusterctl/runs")

    torch = ("--set", "launcher=torchrun", "--set", "python=/usr/bin/python3")
    failed = slurm.run("launch", job, "--json", *torch)
    assert failed.code == 3 and "CC-TORCH-001" in failed.err
    assert failed.json_lines()[-1]["verdict"]["state"] == "FAILED_SETUP"

    broken = slurm.run("launch", job, "--set", "setup.run=['touch made; echo no such index; exit 3']")
    assert broken.code == 1 and "CC-SETUP-001" in broken.err and "no such index" in broken.err


@VARIANT
def test_a_requeued_job_is_the_next_attempt_of_the_run(slurm: SlurmBed, tmp_path: Path) -> None:
    """Who follows it goes on following; the logs of both attempts are there."""
    job = make_project(tmp_path, SCRIPT, launcher="python", nodes=2, restart={"max": 1}, secrets=["SECRET"])
    follower = start_cctl(
        slurm.bed, "-i", slurm.inventory, "launch", job, "--json", "--", "sleep", SECRET="s"
    )

    def listed() -> tuple[str, int]:
        runs = slurm.json("ps")["runs"]
        return (runs[0]["state"], runs[0]["attempt"]) if runs else ("", 0)

    wait_until(lambda: listed() == ("RUNNING", 1), "all nodes run")
    number = slurm.slurm("squeue -h -o %i")
    slurm.slurm(f"scontrol requeue {number}")
    wait_until(lambda: listed() == ("SUBMITTED", 2), "the job is in the queue again")
    wait_until(lambda: "PD" in slurm.slurm("squeue -h -o %t"), "Slurm has ended the first start")
    slurm.slurm(f"scontrol update JobId={number} StartTime=now")
    wait_until(lambda: listed() == ("RUNNING", 2), "the next attempt runs")
    (run,) = [entry["run"] for entry in slurm.json("ps")["runs"]]
    assert '"host"' in slurm.run("logs", run, "--attempt", "1").out
    assert slurm.run("stop", run, "-y").code == 0
    out, _ = follower.communicate(timeout=60)
    verdict = json.loads(out.splitlines()[-1])["verdict"]
    assert (verdict["state"], verdict["attempt"]) == ("STOPPED", 2)
    assert [one["reason"] for one in verdict["attempts"]] == ["requeued"]


@VARIANT
def test_files_and_the_page_reach_a_run_over_its_login_node(slurm: SlurmBed, tmp_path: Path) -> None:
    """`cp` reads and writes the directory that the nodes share, once; the page lists, follows and stops."""
    job = make_project(tmp_path, SCRIPT, launcher="python", nodes=2)
    run = slurm.run("launch", "-d", job, "--", "sleep").out.strip()
    wait_until(lambda: set(slurm.states(run).values()) == {"RUNNING"}, "all nodes run")
    fetched = slurm.run("cp", "--run", run, "all:train.py", tmp_path / "copy.py")
    assert fetched.code == 0 and (tmp_path / "copy.py").read_text() == (tmp_path / "train.py").read_text()
    assert slurm.run("cp", "--run", run, job, "gpu02:notes.yaml").code == 0
    assert slurm.run("cp", "--run", run, "gpu01:notes.yaml", "gpu02:again.yaml").code == 0
    assert slurm.slurm(f"cat ~/.clusterctl/runs/{run}/0-.slurm/code/again.yaml") == job.read_text().strip()

    page = start_cctl(slurm.bed, "-i", slurm.inventory, "ui", "--no-open")
    try:
        url = read_until(page, "http://").strip()
        with stream(url, "") as runs:
            assert run in runs.read_part("runs", "RUNNING")
        with stream(url, run) as events:
            assert "gpu02" in events.read_part("nodes", "gpu02")
            lines: list[str] = []
            while len(lines) < 2:
                lines += [row[4] for row in events.read("lines") if '"host"' in row[4]]
            status, answer = press(url, "stop", run)
            assert status == 200 and f"{run}: stopped" in answer, answer
            events.read_part("summary", "STOPPED")
    finally:
        page.kill()
        page.communicate()
    assert slurm.states(run) == {"gpu01": "STOPPED", "gpu02": "STOPPED"}
