"""Secrets and folders of jobs that fail, wait or are cancelled: nothing of them stays."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, cast

import pytest
from slurm_jobs import NUMBER, RUN, FakeStream, make_job

from clusterctl.node.runtime.stream import VerbError
from clusterctl.node.slurm import queue, states, task
from clusterctl.node.slurm.commands import Finished, QueuedJob, Settings
from clusterctl.node.slurm.job_files import PART, read_object
from clusterctl.node.verbs import slurm
from clusterctl.plans.slurm.submission import render_script
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.job.model import Job

SCRIPT = render_script(Job(name="j", file="", script="t.py"), Node(name="login", index=0, host="login"))
TIMEOUT = VerbError("CC-SLURM-004", "sbatch did not end within 60 s")


def run_submit(
    workdir: Path, monkeypatch: pytest.MonkeyPatch, outcome: Any, called: list[list[str]] | None = None
) -> FakeStream:
    """Submit a job to an sbatch that ends in a given way; `called` gets the commands."""

    def run_program(argv: list[str], _limit: float = 0.0) -> Finished:
        if called is not None:
            called.append(argv[:2])
        if isinstance(outcome, BaseException):
            raise outcome
        return cast("Finished", outcome)

    monkeypatch.setattr(queue, "run_program", run_program)
    monkeypatch.setattr(queue, "query_settings", lambda: Settings(30.0, "hpc"))
    monkeypatch.setattr(queue, "ensure_payload", lambda *_: "payload")
    monkeypatch.setattr(queue, "with_byte_code", lambda payload: payload)
    request = {
        "workdir": str(workdir),
        "payload": {"sha256": "", "size": 0},
        "judge": None,
        "template": {"spec": {"run": RUN}},
        "secrets": {},
        "token": "t",
        "script": SCRIPT,
        "options": [],
    }
    stream = FakeStream()
    queue.submit(cast("Any", request), cast("Any", stream))
    return stream


@pytest.mark.parametrize("outcome", [TIMEOUT, KeyboardInterrupt(), Finished(1, "", "no such partition")])
def test_a_submission_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: Any
) -> None:
    """Slurm may have taken the job: its script finds no folder, and after a timeout it is cancelled by its name."""
    called: list[list[str]] = []
    with pytest.raises((VerbError, KeyboardInterrupt)):
        run_submit(tmp_path, monkeypatch, outcome, called)
    assert not list((tmp_path / "runs").iterdir())
    cancelled = [["scancel", f"--name={RUN}"]] if outcome is TIMEOUT else []
    assert called == [["sbatch", "--parsable"], *cancelled]


def test_a_submission_has_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By which the run is found."""
    stream = run_submit(tmp_path, monkeypatch, Finished(0, "4711\n", ""))
    assert stream.answers == [{"submitted": {"job": "4711"}}]
    job = states.find_job(str(tmp_path), RUN)
    assert (job.number, job.cluster) == ("4711", "hpc")


def run_script(folder: Path, srun: str) -> int:
    """Run the batch script with an srun that is a line of sh; gives the exit code."""
    programs = folder.parents[2] / "bin"
    programs.mkdir()
    (programs / "srun").write_text(f"#!/bin/sh\n{srun}\n")
    (programs / "srun").chmod(0o755)
    env = {"PATH": f"{programs}:/usr/bin:/bin", "SLURM_JOB_ID": "4711", "SLURM_CLUSTER_NAME": "hpc"}
    argv = ["bash", "-c", SCRIPT, "batch.sh", str(folder), "payload"]
    return subprocess.run(argv, env=env, check=False, capture_output=True).returncode


def test_a_script_without_its_folder_ends_at_once(tmp_path: Path) -> None:
    """The launch reported a failure and removed it."""
    runs = tmp_path / "runs"
    runs.mkdir()
    assert run_script(runs / RUN / PART, f"touch {tmp_path}/started") == 1
    assert not (tmp_path / "started").exists() and not list(runs.iterdir())


def test_a_script_writes_its_number_and_removes_the_secrets(tmp_path: Path) -> None:
    """The launch may have been killed before it did; a start that failed has left the secrets."""
    files = make_job(tmp_path)
    Path(files.job).unlink()

    assert run_script(Path(files.folder), "exit 3") == 3
    job = states.read_job(files)
    assert (job.number, job.cluster) == ("4711", "hpc")
    assert read_object(files.ended).integer("status") == 3
    left = ["ended.json", "exchange", "job.json", "template.json"]
    assert sorted(path.name for path in Path(files.folder).iterdir()) == left


@pytest.mark.parametrize(
    ("state", "kept"), [("PENDING", True), ("RUNNING", True), ("CANCELLED", False), ("TIMEOUT", False)]
)
def test_a_query_removes_the_secrets_of_a_job_that_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, kept: bool
) -> None:
    """Also of one that never left the queue."""
    files = make_job(tmp_path)
    monkeypatch.setattr(states, "query_queue", lambda _: {"4711": QueuedJob("4711", state)})
    states.query_jobs(list(states.find_jobs(str(tmp_path), None)))
    assert Path(files.secrets).exists() is kept


def test_a_cancelled_job_has_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No task will read them."""
    files, stream = make_job(tmp_path), FakeStream()
    monkeypatch.setattr(states, "query_queue", lambda _: {"4711": QueuedJob("4711", "PENDING")})
    monkeypatch.setattr(slurm, "run_program", lambda _: Finished(0, "", ""))
    slurm.cancel({"workdir": str(tmp_path), "run": RUN, "timeout": 0.0}, cast("Any", stream))
    assert stream.answers == [{"cancelled": {"job": "4711"}}]
    assert not Path(files.secrets).exists()


@pytest.mark.parametrize("requeue", [True, False])
def test_a_task_that_fails_removes_the_secrets_unless_slurm_may_start_the_job_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, requeue: bool
) -> None:
    """Then no other node starts; or the next start reads them, as when node 0 is lost while the others start."""
    files = make_job(tmp_path, requeue=requeue)
    variables = {
        "SLURM_PROCID": "0",
        "SLURM_STEP_NUM_TASKS": "1",
        "SLURM_JOB_ID": NUMBER,
        "SLURMD_NODENAME": "gpu01",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(task, "run_part", lambda *_: (_ for _ in ()).throw(task.SlurmError("node 0 is lost")))
    with pytest.raises(SystemExit):
        task.main([files.folder])
    assert Path(files.secrets).exists() is requeue
    assert "node 0 is lost" in states.first_failure(files)


@pytest.mark.parametrize(
    ("requeue", "called", "number"), [(True, ["scancel", "4711"], "4711"), (False, [], "")]
)
def test_a_job_that_is_about_to_go_back_into_the_queue_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, requeue: bool, called: list[str], number: str
) -> None:
    """Slurm ends its processes as those of one that has ended; after a `stop` it must not begin again."""
    make_job(tmp_path, requeue=requeue)
    stream, commands = FakeStream(), list[str]()
    monkeypatch.setattr(states, "query_queue", lambda _: {"4711": QueuedJob("4711", "COMPLETING")})
    already = Finished(1, "", "scancel: error: Kill job error on job id 4711: Job/step already completing")
    monkeypatch.setattr(slurm, "run_program", lambda argv: (commands.extend(argv), already)[1])
    slurm.cancel({"workdir": str(tmp_path), "run": RUN, "timeout": 0.0}, cast("Any", stream))
    assert commands == called
    assert stream.answers == [{"cancelled": {"job": number}}]
