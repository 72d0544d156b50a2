"""The next run of a node that was kept warm, with real processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from noderun import NodeRun
from variants import VARIANT
from waiting import wait_until

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
    return {"preload": [], "keep_warm": 60.0, **changes}


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
    """Wait until a run has ended and its guardian has left; what waits for the next run may stay."""
    wait_until(lambda: run.state()["state"] in FINAL, "a final state")
    guardian = run.pid("guardian")
    wait_until(lambda: not Path(f"/proc/{guardian}").exists(), "the end of the guardian")
    return run.state()


def described(run: NodeRun) -> list[dict[str, Any]]:
    """Ask the node for what waits on it."""
    (frame,) = [header for header, _ in run.verb("warm", end=False) if "servers" in header]
    servers: list[dict[str, Any]] = frame["servers"]
    return servers


def wait_until_warm(run: NodeRun) -> dict[str, Any]:
    """Wait until what waits on the node has torch imported, and return what it says of itself."""
    wait_until(lambda: [facts for facts in described(run) if facts["torch"]], "a gate that waits")
    return described(run)[0]


def warm_event(run: NodeRun) -> tuple[str, str]:
    """How a run's gate was started."""
    event = run.event("warm")
    return event["method"], event["text"]


def test_the_next_run_is_that_of_the_processes_that_wait(make: Callable[..., NodeRun]) -> None:
    """It has its own tag, directory and secrets; what waits has nothing of either run, and ends when asked to."""
    first = make()
    first.start({"TOKEN": "of-the-first"})
    first.hear("ready")
    assert first.session is not None
    first.session.send({"do": "go", "master_port": first.port})
    finish(first)
    facts = wait_until_warm(first)
    folder = Path(f"/proc/{facts['pid']}")
    variables, directory = (folder / "environ").read_bytes(), (folder / "cwd").readlink()
    held = [str(path.readlink()) for path in (folder / "fd").iterdir()]
    waiting = first.left()
    second = make().go()
    finish(second)

    assert first.output(0).splitlines()[1:] == [first.tag, str(first.code), "of-the-first", "train.py", "[]"]
    assert second.output(0).splitlines() == ["1", second.tag, str(second.code), "None", "train.py", "[]"]
    assert warm_event(second) == ("fork", "")
    assert second.event("start_method")["method"] == "fork"
    assert directory == Path("/")
    assert not {b"of-the-first", b"CLUSTERCTL_RUN"} & set(variables.replace(b"=", b"\0").split(b"\0"))
    assert not [name for name in held if str(first.rundir) in name]
    pids = {second.pid("guardian"), second.pid("agent"), second.state()["torchrun"]["pid"]}
    assert pids == set(waiting), "the standby, the process beside it, and its gate"
    third = wait_until_warm(second)["pid"]
    assert third not in waiting
    assert [header["ended"] for header, _ in second.verb("warm", end=True) if "ended" in header] == [[third]]
    wait_until(lambda: not second.left(), "the end of what waits")


@VARIANT
def test_a_run_that_would_import_something_else(make: Callable[..., NodeRun]) -> None:
    """Its gate becomes a new interpreter in the same process, with the variables of the run."""
    first = make().go()
    finish(first)
    wait_until_warm(first)
    second = make(env={"SEED": "7"}).go()
    finish(second)

    assert second.output(0).splitlines()[0] == "1"
    assert warm_event(second) == ("exec", "SEED differs from its value when torch was imported")
    assert second.event("start_method")["method"] == "fork"


@VARIANT
def test_what_waits_ends_with_any_of_its_processes(make: Callable[..., NodeRun]) -> None:
    """Whichever is killed."""
    for place in range(3):
        run = make().go()
        finish(run)
        wait_until_warm(run)
        os.kill(sorted(run.left())[place], signal.SIGKILL)
        wait_until(lambda run=run: not run.left(), "the end of what waits")  # type: ignore[misc]  # a default binds it
