"""Ctrl-C between the submission of a Slurm job and its first look at the queue; whether a next attempt is followed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import pytest

from clusterctl.cli.actions.launch import LaunchOptions
from clusterctl.cli.slurm import launch
from clusterctl.errors import ConnectionLost, NodeError
from clusterctl.protocol.run_id import RunId
from clusterctl.specs.inventory.parse import parse_inventory
from clusterctl.specs.job.model import Job


def interrupt(*_: object, **__: object) -> NoReturn:
    """Be the user who presses Ctrl-C here."""
    raise KeyboardInterrupt


class WithoutCode(launch.SlurmLaunch):
    """A launch that begins with its submission."""

    def _send_code(self, *_: object) -> None:
        pass

    def _plan_check(self) -> Any:
        return {"only": False}


def test_a_submitted_job_is_not_called_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It stays in the queue: that is shown, and the commands to stop or attach to it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(launch, "submit_job", lambda *_: "77")
    monkeypatch.setattr(launch, "remember_hooks", interrupt)
    (tmp_path / "train.py").write_text("print(1)")
    job = Job(
        name="a",
        file=str(tmp_path / "job.yaml"),
        launcher="python",
        script="train.py",
        nodes=1,
        nproc_per_node=1,
    )
    inventory = parse_inventory("cluster: c\nslurm: {login: {host: login}}", "-")
    assert inventory.slurm is not None
    options = LaunchOptions(detach=False, ignore_checks=True, as_json=True)
    cluster: Any = SimpleNamespace(steps=None)
    started = WithoutCode(inventory, inventory.slurm, job, (None, None), options)
    assert started.run(cluster) == 130
    printed = capsys.readouterr()
    assert '"state": "RUNNING"' in printed.out and "CANCELLED" not in printed.out
    assert "detached; the run continues" in printed.err


def test_ctrl_c_while_the_nodes_of_a_job_are_found_detaches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Slurm has just started it: it continues, too."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    begun = {"requeue": False, "begun": True, "job": "77", "nodes": "n1"}
    monkeypatch.setattr(launch, "wait_for_nodes", lambda _: begun)
    monkeypatch.setattr(launch, "find_runs", interrupt)
    login: Any = SimpleNamespace(cluster=None, node=None)
    output = launch.RunOutput(as_json=True, command="clusterctl")
    following = launch.Following(login, RunId("a-20261123T140026-66ec"), 1, output, (), 0.0)
    assert launch.follow_from_queue(following) == 130
    printed = capsys.readouterr()
    assert '"state": "RUNNING"' in printed.out
    assert "detached; the run continues" in printed.err


@pytest.mark.parametrize(
    "error", [NodeError("CC-RUN-003", node="login", verb="slurm", status=9), ConnectionLost("CC-SSH-014")]
)
def test_an_end_is_shown_although_the_login_node_fails_afterwards(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Else the verdict of a run that has failed would be lost, and with it its messages."""

    def watch_queue(*_: object) -> Iterator[Any]:
        raise error
        yield

    monkeypatch.setattr(launch, "watch_queue", watch_queue)
    following = SimpleNamespace(login=None, run_id="j", count=1, requeues=True)
    assert (
        launch.resume_requeued(cast("Any", following), cast("Any", SimpleNamespace(state="FAILED"))) is None
    )


def test_an_end_that_slurm_cannot_undo_is_shown_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A question to the login node starts a Python and squeue there, and would come between the end and its user."""
    asked: list[object] = []
    monkeypatch.setattr(launch, "watch_queue", lambda *found: asked.append(found) or iter(()))
    for state, requeues in (("FAILED", False), ("SUCCEEDED", True), ("FAILED", True)):
        following = SimpleNamespace(login=None, run_id="j", count=1, requeues=requeues)
        verdict = SimpleNamespace(state=state)
        assert launch.resume_requeued(cast("Any", following), cast("Any", verdict)) is None
    assert len(asked) == 1
