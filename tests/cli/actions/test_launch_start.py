"""What `launch` writes to stderr: before anything starts, and when the start is interrupted."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from clusterctl.cli.actions import attach, launch
from clusterctl.cli.context.code import read_job_code
from clusterctl.client.local.hooks import has_hooks
from clusterctl.client.sync.scan import scan_source
from clusterctl.interrupts import INTERRUPTS
from clusterctl.plans.launch.placement import plan_placement
from clusterctl.plans.launch.script import JobCode
from clusterctl.protocol.run_id import RunId
from clusterctl.specs.inventory.parse import parse_inventory
from clusterctl.specs.job.model import Job, OnEnd


def interrupt(*_: object) -> NoReturn:
    """Stand for Ctrl-C."""
    raise KeyboardInterrupt


class LeftBeforeGo(launch.Launch):
    """A launch whose user presses Ctrl-C while GO is sent."""

    def _start_run(self, *_: object) -> int:
        cluster: Any = None
        plan: Any = SimpleNamespace(run_id=RunId("a-20261123T140026-66ec"))
        self._start_workers(cluster, plan, {})
        return 0


@pytest.fixture
def left_before_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Run such a launch."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(launch.prepare, "send_go", interrupt)
    (tmp_path / "train.py").write_text("print(1)")
    job = Job(name="a", file=str(tmp_path / "job.yaml"), launcher="python", script="train.py")
    inventory = parse_inventory("cluster: c\nnodes: [{host: gpu01}]", "-")
    options = launch.LaunchOptions(detach=False, ignore_checks=True, as_json=True)
    cluster: Any = SimpleNamespace(steps=None)
    begun = LeftBeforeGo(inventory, job, plan_placement(inventory, job), options)
    return lambda: begun.run(cluster)


@pytest.mark.parametrize(
    ("unstopped", "end"),
    [
        ({}, "the run was stopped on all nodes; see clusterctl status 66ec"),
        ({"gpu02": None}, "the run could not be stopped on gpu02; to make sure: clusterctl stop 66ec"),
    ],
)
def test_a_start_that_is_interrupted_is_called_that(
    unstopped: dict[str, object],
    end: str,
    left_before_go: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Ctrl-C between ready and go is no failure of a node; where the run may still be, is said."""
    monkeypatch.setattr(launch.prepare, "stop_started", lambda *_: unstopped)
    assert left_before_go() == 130
    printed = capsys.readouterr()
    assert f"interrupted before all nodes had started; {end}\n" in printed.err
    assert '"state": "STOPPED"' in printed.out


def test_ctrl_c_twice_while_go_is_sent_claims_no_end(
    left_before_go: Callable[[], int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second one cuts short the stop of what had begun; the command for what may be left is there."""
    monkeypatch.setattr(launch.prepare, "stop_started", interrupt)
    assert left_before_go() == 130
    printed = capsys.readouterr()
    assert '"run": "a-20261123T140026-66ec", "verdict": {"state": "RUNNING"' in printed.out
    assert "detached while the run was being stopped; to make sure: clusterctl stop 66ec" in printed.err
    assert "stopped on all nodes" not in printed.err and "continues" not in printed.err


def read(folder: Path, **keys: Any) -> JobCode:
    """Read the code of a job in a folder, as `launch` does."""
    job = Job(**{"name": "a", "file": str(folder / "job.yaml"), "script": "train.py", **keys})
    return read_job_code(job, 2, scan_source(folder))


def test_the_script_and_its_own_modules_are_read(tmp_path: Path) -> None:
    """What it imports counts, however the imports lead in a circle; other files of the code do not."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "train.py").write_text("import data\nprint(1)")
    (tmp_path / "data.py").write_text("from lib import old\nimport train")
    (tmp_path / "lib" / "old.py").write_text("import torch\ntorch._six.inf")
    (tmp_path / "other.py").write_text("import torch._six")
    code = read(tmp_path)
    assert [line.file for line in code.use.six] == ["lib/old.py"]
    assert code.texts == {"train.py": "import data\nprint(1)"}


def test_what_is_too_large_or_no_python_is_not_parsed(tmp_path: Path) -> None:
    """A shell script's words count, its syntax does not; 256 KiB is the limit of a file."""
    (tmp_path / "train.sh").write_text("import torch._six")
    (tmp_path / "train.py").write_text("import torch._six\n" + "#" * (256 << 10))
    assert read(tmp_path).use.six == []
    assert read(tmp_path, script="train.sh").use.six == []
    assert read(tmp_path, script="train.sh").texts == {"train.sh": "import torch._six"}


class LeftAfterGo(launch.Launch):
    """A launch whose user presses Ctrl-C when the workers have started and nothing is shown yet."""

    def _start_run(self, *_: object) -> int:
        INTERRUPTS.set_leaving(partial(self._announce_started, RunId("a-20261123T140026-66ec")))
        raise KeyboardInterrupt


def test_ctrl_c_right_after_go_shows_that_the_run_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is not cancelled, on the screen and in JSON; the commands for it are there."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "train.py").write_text("print(1)")
    job = Job(name="a", file=str(tmp_path / "job.yaml"), launcher="python", script="train.py")
    inventory = parse_inventory("cluster: c\nnodes: [{host: gpu01}]", "-")
    options = launch.LaunchOptions(detach=False, ignore_checks=True, as_json=True)
    cluster: Any = SimpleNamespace(steps=None)
    assert LeftAfterGo(inventory, job, plan_placement(inventory, job), options).run(cluster) == 130
    printed = capsys.readouterr()
    assert '"run": "a-20261123T140026-66ec", "verdict": {"state": "RUNNING"' in printed.out
    assert "detached; the run continues" in printed.err and "attach 66ec" in printed.err


class LeftAfterItsEnd(launch.Launch):
    """A launch whose user presses Ctrl-C when the end of the run is on the screen."""

    def _start_run(self, *_: object) -> int:
        run_id = RunId("a-20261123T140026-66ec")
        INTERRUPTS.set_leaving(partial(self._announce_started, run_id))
        plan: Any = SimpleNamespace(run_id=run_id, all_nodes=(), world_size=1)
        nothing: Any = SimpleNamespace(offsets={})
        return self._follow(nothing, plan, nothing, {})


def test_ctrl_c_after_the_end_starts_nothing_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run neither continues nor was cancelled, and its `on_end`, which has run, is not kept for another time."""

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    ended = SimpleNamespace(
        watch=lambda: SimpleNamespace(run_id="a", cause=None), explain=interrupt, stopping=False
    )
    monkeypatch.setattr(attach, "RunMonitor", lambda *_, **__: ended)
    monkeypatch.setattr(attach, "verdict_to_json", interrupt)
    (tmp_path / "train.py").write_text("print(1)")
    job = Job(
        name="a",
        file=str(tmp_path / "job.yaml"),
        launcher="python",
        script="train.py",
        on_end=OnEnd(command=("true",)),
    )
    inventory = parse_inventory("cluster: c\nnodes: [{host: gpu01}]", "-")
    options = launch.LaunchOptions(detach=False, ignore_checks=True, as_json=True)
    cluster: Any = SimpleNamespace(steps=None)
    assert LeftAfterItsEnd(inventory, job, plan_placement(inventory, job), options).run(cluster) == 130
    printed = capsys.readouterr()
    assert printed.out == "" and "continues" not in printed.err
    assert not has_hooks(tmp_path / "clusterctl" / "ends", RunId("a-20261123T140026-66ec"))


def test_a_launch_loads_only_what_each_launch_uses() -> None:
    """What sends notifications, prints findings or computes medians takes a tenth of a second that all would wait."""
    code = (
        "import sys\n"
        "import clusterctl.cli.actions.launch, clusterctl.client.local.hooks\n"
        "heavy = {'http.client', 'pydantic', 'rich.table'}\n"
        "print(*(heavy | {'statistics'}) & set(sys.modules), 'paramiko' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"]
