"""A warm server of a real gate: what it forks, what it refuses, and when it ends."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from noderun import NodeRun
from variants import VARIANT
from waiting import wait_until

from clusterctl.node.fork.obstacles import NEWEST_PYTHON

pytestmark = pytest.mark.skipif(sys.version_info[:2] > NEWEST_PYTHON, reason="this Python is never forked")

FINAL = ("SUCCEEDED", "FAILED", "FAILED_SETUP", "STOPPED")
SCRIPT = """
import os, sys, torch, torch.distributed as dist
paths = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd") if int(name) > 2]
held = [os.readlink(path) for path in paths if os.path.exists(path)]
held = [name for name in held if name.startswith(("socket:", "pipe:"))]
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
print(int(total), os.environ["CLUSTERCTL_RUN"], os.getcwd(), os.environ.get("TOKEN"), sys.argv[0], held, sep="\\n")
dist.destroy_process_group()
"""


def start(**changes: Any) -> dict[str, Any]:
    """How a job that keeps its nodes warm starts its workers."""
    return {"mode": "fork", "preload": [], "keep_warm": 60.0, **changes}


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., NodeRun]]:
    """Make runs that share a work directory; what they leave is ended after the test."""
    runs: list[NodeRun] = []

    def make_run(script: str = SCRIPT, **changes: Any) -> NodeRun:
        runs.append(NodeRun(tmp_path, script, **{"start": start(), **changes}))
        return runs[-1]

    yield make_run
    for run in runs:
        run.clean()


def finish(run: NodeRun) -> dict[str, Any]:
    """Wait until a run has ended and its guardian has left; a warm server may stay."""
    wait_until(lambda: run.state()["state"] in FINAL, "a final state")
    guardian = run.pid("guardian")
    wait_until(lambda: not Path(f"/proc/{guardian}").exists(), "the end of the guardian")
    return run.state()


def described(run: NodeRun) -> list[dict[str, Any]]:
    """Ask the node for its warm server."""
    (frame,) = [header for header, _ in run.verb("warm", end=False) if "servers" in header]
    servers: list[dict[str, Any]] = frame["servers"]
    return servers


def warm_event(run: NodeRun) -> tuple[str, str]:
    """How a run's gate was started."""
    event = run.event("warm")
    return event["method"], event["text"]


@VARIANT
def test_the_next_run_is_forked_from_the_server_of_the_last(make: Callable[..., NodeRun]) -> None:
    """It has its own tag, directory and secrets; the server has nothing of either run, and ends when asked to."""
    first = make()
    first.start({"TOKEN": "of-the-first"})
    first.hear("ready")
    assert first.session is not None
    first.session.send({"do": "go", "master_port": first.port})
    ended = finish(first)
    server = ended["warm"]["pid"]
    (facts,) = described(first)
    folder = Path(f"/proc/{server}")
    variables, memory = (folder / "environ").read_bytes(), (folder / "cwd").readlink()
    held = [str(path.readlink()) for path in (folder / "fd").iterdir()]
    # the server; a guardian and an agent that wait, with a server of theirs; a gate, with the server of its workers
    wait_until(lambda: len(first.left()) == 6, "six processes that wait")
    waiting = first.left()
    second = make().go()
    finish(second)
    gate = second.state()["torchrun"]["pid"]

    assert first.output(0).splitlines()[1:] == [first.tag, str(first.code), "of-the-first", "train.py", "[]"]
    assert second.output(0).splitlines() == ["1", second.tag, str(second.code), "None", "train.py", "[]"]
    assert warm_event(second) == ("fork", "")
    assert second.event("start_method")["method"] == "fork"
    assert facts["pid"] == server
    assert (variables, memory) == (b"", Path("/"))
    assert not [name for name in held if str(first.rundir) in name]
    assert gate != server
    assert second.pid("guardian") in waiting
    assert second.pid("agent") in waiting
    assert gate in waiting
    assert server in second.left(), "the first server was renewed"
    assert [header["ended"] for header, _ in second.verb("warm", end=True) if "ended" in header] == [[server]]
    wait_until(lambda: not second.left(), "the end of the server")
