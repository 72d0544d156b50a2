"""Forked workers in a run of an agent, and what becomes of them when a process in between is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from gates import Gate, Start
from noderun import NodeRun
from variants import VARIANT
from waiting import wait_until

Make = Callable[..., NodeRun]

WAITING = "import sys, time\nprint('up', file=sys.stderr)\ntime.sleep(600)"


def children(pid: int) -> list[int]:
    """List a process's children."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def test_a_run_with_forked_workers(node: Make) -> None:
    """They are torchrun's own children, carry the run's tag, and a stop ends them; the journal has the method."""
    run = node(WAITING, nproc=2, world_size=2, start={"preload": ["decimal"]}).go().running()
    wait_until(lambda: all("up" in run.output(rank, "stderr") for rank in (0, 1)), "the script")
    torchrun, workers = run.pid("torchrun"), [run.pid("0"), run.pid("1")]
    variables = Path(f"/proc/{workers[1]}/environ").read_text().split("\0")
    held = children(torchrun)
    run.verb("stop", grace=60, reason="stopped by a test")
    state = run.ended()

    assert f"CLUSTERCTL_RUN={run.tag}" in variables
    assert sorted(held) == sorted(workers), "no server is left beside the workers"
    assert (state["state"], state["left"], state["world_size_seen"]) == ("STOPPED", [], 2)
    assert [rank["signal"] for rank in state["ranks"].values()] == [signal.SIGTERM] * 2
    assert (run.event("start_method")["method"], run.event("start_method")["text"]) == ("fork", "")


def test_a_gate_that_is_killed_leaves_no_server(gate: Start) -> None:
    """The server ends with the connection to the gate, and has nothing of the gate's open."""
    started = gate("fork")
    started.read_report("ready")
    (server,) = children(started.process.pid)
    pipes = [str(path.readlink()) for path in Path(f"/proc/{server}/fd").iterdir() if path.exists()]
    threads = list(Path(f"/proc/{server}/task").iterdir())
    started.process.kill()
    started.process.wait()
    wait_until(lambda: not Path(f"/proc/{server}").exists(), "the end of the server")

    assert not [name for name in pipes if name.startswith("pipe:")]
    assert len(threads) == 1, "what forks workers has no other thread"


@VARIANT
def test_workers_are_started_without_a_server_that_was_killed(gate: Start) -> None:
    """They get a new interpreter, and the reason is reported once."""
    started = gate("fork", workers=2)
    (started.code / "train.py").write_text("print('up')")
    started.read_report("ready")
    (server,) = children(started.process.pid)
    os.kill(server, signal.SIGKILL)
    ended = started.go(["train.py"]).ended()

    assert [(worker.code, worker.stdout) for worker in ended.values()] == [(0, "up\n")] * 2
    assert [entry["start"] for entry in started.reports if "start" in entry] == ["exec"]
    assert started.method[1] != ""


@VARIANT
def test_a_torchrun_that_is_killed(node: Make) -> None:
    """The agent ends the workers, which have become its children, and knows how they ended."""
    run = node(WAITING, nproc=2, world_size=2, start={"preload": []}).go().running()
    os.kill(run.pid("torchrun"), signal.SIGKILL)
    state = run.ended()

    assert (state["state"], state["torchrun"]["signal"], state["left"]) == ("FAILED", signal.SIGKILL, [])
    assert [rank["signal"] for rank in state["ranks"].values()] == [signal.SIGTERM] * 2


@VARIANT
def test_a_launch_that_is_cancelled_before_go(node: Make) -> None:
    """The gate and the server it has forked are ended."""
    run = node(WAITING, start={"preload": []})
    run.start()
    run.hear("ready")
    assert run.session is not None
    run.session.close()

    assert run.ended()["state"] == "STOPPED"


@VARIANT
def test_a_run_that_starts_again(node: Make) -> None:
    """Its next attempt has the gate that was started beside the ranks of the first; the next one ends with the run."""
    script = (
        "import os, signal\nif os.environ['CLUSTERCTL_ATTEMPT'] == '1': os.kill(os.getpid(), signal.SIGKILL)"
    )
    again = {"max": 1, "on": ["worker_killed"], "progress": None, "pause": 0.1}
    slot = {"slot": 0, "node": "gpu01", "node_rank": 0}
    gang = {"hub": "gpu01", "slot": 0, "slots": 1, "spare": False, "roster": [slot], "gang": False}
    run = node(script, start={"preload": []}, restart=again, **gang)
    run.go()
    state = run.ended()

    assert (state["state"], state["attempt"]) == ("SUCCEEDED", 2)
    assert [event["method"] for event in run.events() if event["event"] == "start_method"] == ["fork", "fork"]
    assert run.event("warm")["method"] == "fork"


@VARIANT
def test_a_forked_worker_that_is_killed(node: Make) -> None:
    """Its signal is the cause, and the other worker is ended."""
    run = node(WAITING, nproc=2, world_size=2, start={"preload": []}).go().running()
    os.kill(run.pid("1"), signal.SIGKILL)
    state = run.ended()

    assert (state["state"], state["reason"]) == ("FAILED", "rank 1 was killed by SIGKILL")
    assert state["ranks"]["0"]["signal"] == signal.SIGTERM


@VARIANT
@pytest.mark.parametrize(
    ("options", "files", "env", "reason"),
    [
        ({"preload": ["no_such_module"]}, {}, {}, "preload: no_such_module: ModuleNotFoundError"),
        ({}, {"random.py": ""}, {}, "random in {code} has the name of a module that is imported already"),
        ({}, {}, {"LD_LIBRARY_PATH": "/x"}, "LD_LIBRARY_PATH differs from its value when torch was imported"),
        ({}, {}, {"PYTHON_EXEC": "/bin/true"}, "the workers are started by /bin/true"),
        ({"env": {"PYTHONPATH": ":/x"}}, {}, {}, "PYTHONPATH has entries that are relative to the code"),
        ({"env": {"PYTHONDEVMODE": "1"}}, {}, {}, "PYTHONDEVMODE is set"),
        ({"module": "torch.distributed.launch"}, {}, {}, "the launcher is not torchrun"),
    ],
)
def test_where_a_fork_would_differ_the_workers_are_execed(
    gate: Start, options: dict[str, object], files: dict[str, str], env: dict[str, str], reason: str
) -> None:
    """The reason is reported and stands in torchrun's log."""
    started: Gate = gate("fork", **options)
    for name, text in {"train.py": "print('up')", **files}.items():
        (started.code / name).write_text(text)
    started.read_report("ready")
    started.go(["train.py"], env).ended()

    method, text = started.method
    assert (method, text.startswith(reason.format(code=started.code))) == ("exec", True), text
    assert f"workers are not forked: {text}" in started.log()


def test_a_run_that_took_a_gate_which_cannot_fork(gate: Start) -> None:
    """Its obstacle was found once the run had taken it: it becomes a new interpreter and does not end."""
    started = gate("waiting", env={"PYTHONMALLOC": "malloc"})
    (started.code / "train.py").write_text("print('up')", encoding="utf-8")
    started.read_report("ready")
    (rank,) = started.go(["train.py"]).ended().values()

    assert (rank.code, rank.stdout) == (0, "up\n"), started.log()
    assert [report["text"] for report in started.reports if report.get("warm") == "exec"] == [
        "PYTHONMALLOC is set"
    ]
    assert started.method == ("exec", "PYTHONMALLOC is set")
