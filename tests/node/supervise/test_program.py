"""Jobs that start their workers themselves: one program per node, through the same agent and gate."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from programs import Make, go, program
from waiting import wait_until


def test_a_script_runs_once_as_a_worker_would(node: Make) -> None:
    """Its own session, its files, the code as working directory, nothing of ours inherited; exit 0 is success."""
    script = """
import json, os, signal, sys
fds = sorted(os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd") if int(n) < 3)
print(json.dumps({"argv": sys.argv, "cwd": os.getcwd(), "fds": fds, "own": os.getsid(0) == os.getpid(),
      "count": len(os.listdir("/proc/self/fd")), "env": dict(os.environ),
      "default": signal.getsignal(signal.SIGTERM) == signal.SIG_DFL}))
print("to stderr", file=sys.stderr)
"""
    argv = [sys.executable, "train.py", "--rank", "1", ["tcp://127.0.0.1:", {"fill": "master_port"}]]
    env = {"MASTER_PORT": [{"fill": "master_port"}], "NODE_RANK": "1"}
    run = program(node, argv, script, env=env, nproc=2, world_size=4, node_rank=1, nnodes=2)
    state = go(run, port=23456).ended()
    seen = json.loads(run.output(1))

    assert (state["state"], state["reason"], state["world_size_seen"]) == ("SUCCEEDED", "", None)
    assert list(state["ranks"]) == ["1"], "the process counts as the rank of its node"
    assert seen["argv"][1:] == ["--rank", "1", "tcp://127.0.0.1:23456"]
    assert seen["cwd"] == str(run.code)
    assert seen["own"] and seen["default"]
    assert seen["count"] == 6, (
        "stdin, stdout, stderr, the listing itself, and the two by which it can be asked"
    )
    assert [name.rpartition("/")[2] for name in seen["fds"]] == ["null", "stderr.log", "stdout.log"]
    assert seen["env"]["MASTER_PORT"] == "23456"
    assert seen["env"]["CLUSTERCTL_RUN"] == run.tag
    assert "RANK" not in seen["env"] and "WORLD_SIZE" not in seen["env"]
    assert run.output(1, "stderr") == "to stderr\n"


def test_the_port_is_free_for_the_program(node: Make) -> None:
    """At GO nobody holds the port any more, also for a server that shares it with nobody."""
    script = (
        "import os, socket; s = socket.socket(); s.bind(('', int(os.environ['MASTER_PORT']))); s.listen()"
    )
    env = {"MASTER_PORT": [{"fill": "master_port"}]}
    run = go(program(node, [sys.executable, "train.py"], script, env=env))

    assert run.ended()["state"] == "SUCCEEDED"


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (["sh", "-c", "echo bad >&2; exit 7"], 7, "bad"),
        (["./no-such.sh"], 127, "cannot start ./no-such.sh: [Errno 2] No such file or directory"),
        (["./train.py"], 127, "cannot start ./train.py: [Errno 13] Permission denied"),
    ],
)
def test_a_program_that_fails(node: Make, argv: list[str], code: int, said: str) -> None:
    """The reason is the program's own end, and its stderr says the rest."""
    run = go(program(node, argv))
    state = run.ended()

    assert (state["state"], state["reason"]) == ("FAILED", f"rank 0 exited with {code}")
    assert state["torchrun"]["exit"] == code
    assert run.output(0, "stderr").strip() == said


def test_a_program_that_is_killed(node: Make) -> None:
    """The signal is told, and what it left is ended."""
    run = go(program(node, ["sh", "-c", "sleep 600 & kill -9 $$"]))
    state = run.ended()

    assert (state["state"], state["reason"]) == ("FAILED", "rank 0 was killed by SIGKILL")


def test_stop_gives_the_whole_session_its_grace(node: Make) -> None:
    """A shell dies of TERM at once; what it was waiting for has the time of the job's grace to save its work."""
    script = """
import signal, sys, time
def save(*_):
    time.sleep(1.5)
    print("saved", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("up", flush=True)
time.sleep(600)
"""
    run = go(program(node, ["sh", "-c", f"{sys.executable} train.py; true"], script))
    wait_until(lambda: run.state()["ranks"] and "up" in run.output(0), "the script")
    run.verb("stop", grace=3600, reason="stopped by a test")
    state = run.ended()

    assert state["state"] == "STOPPED"
    assert run.output(0).splitlines() == ["up", "saved"]


def test_a_program_that_ignores_the_request_is_killed_at_the_end_of_grace(node: Make) -> None:
    """With its children, also one in a session of its own."""
    run = go(program(node, ["sh", "-c", "trap '' TERM; setsid sleep 600 & sleep 600"]))
    wait_until(
        lambda: sum("sleep 600" in one for one in run.left().values()) == 3, "the program and its children"
    )
    run.verb("stop", grace=0.5, reason="stopped by a test")
    state = run.ended()

    assert (state["state"], state["left"]) == ("STOPPED", [])
    assert state["ranks"]["0"]["signal"] == signal.SIGKILL


def test_programs_beside_the_python_are_found_last(node: Make, tmp_path: Path) -> None:
    """`command: [accelerate, launch]` needs no `activate`, nor do the commands around it; PATH comes first."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "python3").symlink_to(sys.executable)
    for name in ("accelerate", "ls"):
        (folder / name).write_text(f"#!/bin/sh\necho {name} of the environment\n")
        (folder / name).chmod(0o755)
    step = {
        "programs": ["sh"],
        "arguments": ["-c", "accelerate > $CLUSTERCTL_NODE.$CLUSTERCTL_STATE"],
        "shown": "accelerate",
    }
    around = {name: {"steps": [step], "time_limit": 60.0} for name in ("before", "after")}
    argv = ["sh", "-c", "accelerate; ls -d /"]
    run = program(node, argv, python=str(folder / "python3"), env={"CLUSTERCTL_STATE": "begun"}, **around)
    run.start()
    run.hear("port")
    assert run.session is not None
    run.session.send({"do": "before"})
    run.hear("ready")
    run.session.send({"do": "go", "master_port": run.port})
    run.hear("end")
    run.session.close()
    assert run.ended()["state"] == "SUCCEEDED"
    assert run.output(0) == "accelerate of the environment\n/\n"
    told = {path.name: path.read_text() for path in run.code.glob("gpu01.*")}
    assert told == dict.fromkeys(("gpu01.begun", "gpu01.SUCCEEDED"), "accelerate of the environment\n")


WORKER = """
import os, time
while not os.path.exists("enough"):
    time.sleep(0.02)
"""


@pytest.mark.parametrize(("size", "told"), [(2, [(2, 4)]), (4, [])])
def test_the_world_of_workers_that_a_program_starts_is_seen(node: Make, size: int, told: list[Any]) -> None:
    """While they run, from the environment that their launcher gives them; said at once if it is not the plan."""
    worker = f"WORLD_SIZE={size} {sys.executable} train.py"
    start = f"RANK=0 {worker} & RANK=1 {worker}; wait"
    run = go(program(node, ["sh", "-c", start], WORKER, nproc=4, world_size=4))
    wait_until(lambda: run.state()["world_size_seen"] == size, "the workers' WORLD_SIZE")
    (run.code / "enough").touch()
    state = run.ended()
    events = [(one["seen"], one["planned"]) for one in run.events() if one["event"] == "world_size"]
    assert (state["state"], state["world_size_seen"], events) == ("SUCCEEDED", size, told)


def test_what_the_job_itself_sets_is_no_workers_world(node: Make) -> None:
    """A number of nodes in `env:`, as some scripts want it, is passed on to all; a shell is no worker either."""
    start = f"{sys.executable} train.py & RANK=0 WORLD_SIZE=9 sh -c 'while ! test -e enough; do sleep 0.1; done' & "
    start += f"RANK=0 WORLD_SIZE=4 {sys.executable} train.py; wait"
    env = {"WORLD_SIZE": "2", "RANK": "0"}
    run = program(node, ["sh", "-c", start], WORKER, nproc=4, world_size=4, env=env, unset=[])
    go(run)
    wait_until(lambda: run.state()["world_size_seen"] == 4, "the only worker")
    (run.code / "enough").touch()
    assert run.ended()["world_size_seen"] == 4
    assert "world_size" not in [one["event"] for one in run.events()]
