"""Ctrl-C between the submission of a Slurm job and its first look at the queue."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from clusterctl.cli.actions.launch import LaunchOptions
from clusterctl.cli.slurm import follow, launch
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
        return {}


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
    monkeypatch.setattr(follow, "wait_for_nodes", lambda _: begun)
    monkeypatch.setattr(follow, "find_runs", interrupt)
    login: Any = SimpleNamespace(cluster=None, node=None)
    output = follow.RunOutput(as_json=True, command="clusterctl")
    following = follow.Following(login, RunId("a-20261123T140026-66ec"), 1, output, (), 0.0)
    assert follow.follow_from_queue(following) == 130
    printed = capsys.readouterr()
    assert '"state": "RUNNING"' in printed.out
    assert "detached; the run continues" in printed.err
