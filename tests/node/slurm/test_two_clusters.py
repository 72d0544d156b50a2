"""Two Slurm clusters that share one work directory: numbers of their jobs repeat, and each is judged by its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from slurm_jobs import NUMBER, make_job

from clusterctl.node.runtime.stream import VerbError
from clusterctl.node.slurm import clean, states
from clusterctl.node.slurm.commands import QueuedJob, Settings
from clusterctl.node.slurm.states import SlurmJob, find_jobs, query_jobs, states_of
from clusterctl.node.verbs import slurm

OURS, THEIRS = "a-20261123T070000-abcd", "b-20261123T070000-abcd"


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    """A work directory with a run of each cluster, whose jobs have the same number."""
    for run, cluster in ((OURS, "here"), (THEIRS, "there")):
        make_job(tmp_path, run, cluster=cluster)
    return tmp_path


def ask(
    workdir: Path, monkeypatch: pytest.MonkeyPatch, queue: Any, cluster: str = "here"
) -> dict[str, SlurmJob]:
    """Look at both from a login node whose Slurm gives this answer."""
    monkeypatch.setattr(states, "query_queue", lambda _: queue)
    monkeypatch.setattr(states, "query_settings", lambda: Settings(None, cluster))
    return {job.files.run_id: job for job in query_jobs(list(find_jobs(str(workdir), None)))}


def queued(state: str, name: str = OURS) -> dict[str, QueuedJob]:
    """Give an answer of squeue about the number."""
    return {NUMBER: QueuedJob(NUMBER, state, name=name)}


def test_a_job_of_the_same_number_is_not_taken_for_ours(
    workdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of the other cluster waits or runs there, whatever this one has under its number, or does not know."""
    for answer in (queued("CANCELLED"), {}):
        jobs = ask(workdir, monkeypatch, answer)
        assert jobs[OURS].over and not jobs[THEIRS].over
        (state,) = states_of(jobs[THEIRS])
        assert state["state"] == "SUBMITTED" and "cluster there" in state["reason"]
    assert not Path(jobs[OURS].files.secrets).exists() and Path(jobs[THEIRS].files.secrets).exists()


def test_nothing_is_judged_while_it_is_not_known_whose_login_node_this_is(
    workdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where Slurm does not answer at all."""
    jobs = ask(workdir, monkeypatch, {}, cluster="")
    assert not any(job.over or job.elsewhere for job in jobs.values())


def test_a_job_that_was_renamed_is_still_ours(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the cluster is the same, the number counts."""
    assert ask(workdir, monkeypatch, queued("RUNNING", "other"))[OURS].queued is not None


def test_no_job_of_another_cluster_is_cancelled_or_removed(
    workdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number may be that of another job here."""
    jobs, called = ask(workdir, monkeypatch, queued("RUNNING")), list[Any]()
    monkeypatch.setattr(slurm, "run_program", called.append)
    request = {"workdir": str(workdir), "run": THEIRS, "timeout": 0.0}
    with pytest.raises(VerbError, match="cluster there") as refused:
        slurm.cancel(request, cast("Any", None))
    assert refused.value.code == "CC-SLURM-010" and not called
    monkeypatch.setattr(clean, "query_numbers", lambda _: {})
    found = clean.find_jobs_of_runs(str(workdir))
    assert "cluster there" in clean.describe_obstacle(found[jobs[THEIRS].files.folder])
