"""What crashed runs leave: found by tag, distinguished from what is watched over, ended by pid and start time."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from noderun import NodeRun
from session import Session
from waiting import wait_until

Make = Callable[..., NodeRun]
SLEEP = "import time; print('settled', flush=True); time.sleep(3600)"
DEAF = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(3600)"


@pytest.fixture
def mark() -> Iterator[str]:
    """Name a run of our own; what bears it is ended after the test."""
    run = f"crashed-20261121T100000-{secrets.token_hex(4)}"
    yield run


def start_tagged(tag: str, source: str) -> subprocess.Popen[bytes]:
    """Start a process that bears a tag and says when it is ready."""
    process = subprocess.Popen(
        [sys.executable, "-c", source], env={**os.environ, "CLUSTERCTL_RUN": tag}, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def ask(workdir: Path, node: str, end: Any = None) -> dict[str, Any]:
    """Run the verb and give its last frame before the end."""
    with Session("orphans", {"workdir": str(workdir), "node": node, "end": end}) as session:
        return [header for header, _ in session.frames() if "end" not in header][-1]


def test_a_crashed_runs_processes_are_listed_and_ended(node: Make) -> None:
    """After kill -9 of guardian, agent and torchrun at once its worker is an orphan; no live run's is."""
    began = time.monotonic()
    run = node(SLEEP, node="crash-test").use_stub().go().running()
    worker = run.pid("0")

    assert [one for one in ask(run.workdir, "crash-test")["orphans"] if one["run"] == run.spec["run"]] == []
    supervisors = [run.pid(name) for name in ("guardian", "agent", "torchrun")]
    for number in (signal.SIGSTOP, signal.SIGKILL):  # none of them sees another die
        for pid in supervisors:
            os.kill(pid, number)
    wait_until(lambda: ask(run.workdir, "crash-test")["orphans"], "an orphan")
    (orphan,) = ask(run.workdir, "crash-test")["orphans"]
    kept = {key: orphan[key] for key in ("run", "pid", "known", "launched_by", "job")}
    told_ended = ask(run.workdir, "crash-test", [[orphan["pid"], orphan["starttime"]]])

    expected = {"run": run.spec["run"], "pid": worker, "known": True, "launched_by": "alice@laptop"}
    assert kept == {**expected, "job": "job"}
    assert "train.py" in orphan["command"]
    assert 0 <= orphan["age"] <= time.monotonic() - began + 1
    assert ([entry["pid"] for entry in told_ended["ended"]], told_ended["left"]) == ([worker], [])
    wait_until(lambda: not run.is_alive(), "nothing left")


UNTAGGED = f"""import os, sys
os.execve(sys.executable, [sys.executable, "-c", {SLEEP!r}], {{}})"""


def test_a_worker_on_record_needs_no_tag(node: Make) -> None:
    """One that is forked from a process that was there before the run has none."""
    run = node(UNTAGGED, node="crash-test").use_stub().go().running()
    worker = run.pid("0")
    wait_until(lambda: not Path(f"/proc/{worker}/environ").read_bytes(), "a worker without variables")
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for name in ("guardian", "agent", "torchrun"):
            os.kill(run.pid(name), number)
    wait_until(lambda: ask(run.workdir, "crash-test")["orphans"], "an orphan")
    (orphan,) = ask(run.workdir, "crash-test")["orphans"]
    ended = ask(run.workdir, "crash-test", [[orphan["pid"], orphan["starttime"]]])

    assert (orphan["run"], orphan["pid"]) == (run.spec["run"], worker)
    assert [entry["pid"] for entry in ended["ended"]] == [worker]


def test_only_what_is_named_and_still_an_orphan_is_ended(node: Make, mark: str) -> None:
    """Neither a pid with another start time, nor a live run's worker, nor a run of another work directory."""
    live = node(SLEEP, node="crash-test").use_stub().go().running()
    stranger = start_tagged(f"{mark}/crash-test/1", SLEEP)
    try:
        listed = {one["pid"]: one for one in ask(live.workdir, "crash-test")["orphans"]}
        assert listed[stranger.pid]["known"] is False
        assert live.pid("0") not in listed
        worker = live.state()["ranks"]["0"]
        named = [[stranger.pid, listed[stranger.pid]["starttime"]], [worker["pid"], worker["starttime"]]]
        assert ask(live.workdir, "crash-test", named) == {"ended": [], "left": []}
        assert stranger.poll() is None
        assert live.state()["state"] == "RUNNING"
        assert ask(live.workdir, "another")["orphans"] == []
    finally:
        stranger.kill()
        stranger.communicate()


def test_one_that_ignores_term_is_killed(node: Make, mark: str) -> None:
    """KILL follows TERM after five seconds."""
    past = node(SLEEP, node="crash-test", run=mark).use_stub().go().running()
    past.verb("stop", grace=0, reason="over")
    deaf = start_tagged(f"{mark}/crash-test/1", DEAF)
    try:
        (orphan,) = [one for one in ask(past.workdir, "crash-test")["orphans"] if one["run"] == mark]
        began = time.monotonic()
        kept = ask(past.workdir, "crash-test", [[orphan["pid"], orphan["starttime"]]])
    finally:
        deaf.kill()
        deaf.communicate()

    assert [entry["pid"] for entry in kept["ended"]] == [deaf.pid]
    assert time.monotonic() - began > 4.5
    assert deaf.returncode == -signal.SIGKILL
