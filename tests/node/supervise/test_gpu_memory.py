"""GPU memory after the end of a run, with a SIMULATED nvidia-smi: waited for, named, and never for long."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from noderun import NodeRun
from waiting import wait_until

Make = Callable[..., NodeRun]
GPU = {"index": 3, "id": "GPU-simulated-3", "used": 4}
BRIEF = "print('done', flush=True)"

# SIMULATED: one GPU whose memory is what the file `used` says; the file `app` holds the pid that has it.
NVIDIA_SMI = """#!/bin/sh
echo "$1" >> {folder}/asked
case $1 in
  --query-gpu=uuid*) {delay}; echo "GPU-simulated-3, $(cat {folder}/used)";;
  --query-compute-apps=*) echo "GPU-simulated-3, $(cat {folder}/app), 69000";;
esac
"""


def simulate(run: NodeRun, used: int, delay: str = ":") -> Path:
    """Put a simulated nvidia-smi where the run's agent finds it."""
    folder = run.root / "smi"
    folder.mkdir()
    (folder / "nvidia-smi").write_text(NVIDIA_SMI.format(folder=folder, delay=delay))
    (folder / "nvidia-smi").chmod(0o755)
    (folder / "used").write_text(str(used))
    (folder / "app").write_text(str(os.getpid()))
    return folder


def go(run: NodeRun, folder: Path) -> NodeRun:
    """Start with the simulation on the path, and give GO."""
    run.use_stub().start(env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"})
    run.hear("ready")
    assert run.session is not None
    run.session.send({"do": "go", "master_port": run.port})
    run.hear("end")
    return run


def memory_events(run: NodeRun) -> list[dict[str, Any]]:
    """List what was recorded of the memory."""
    return [event for event in run.events() if event["event"] == "gpu_memory"]


def test_free_memory_costs_one_question(node: Make) -> None:
    """Nothing is recorded, and the run ends as ever."""
    run = node(BRIEF, gpus=[GPU])
    folder = simulate(run, used=300)

    assert go(run, folder).ended()["state"] == "SUCCEEDED"
    assert memory_events(run) == []
    assert len((folder / "asked").read_text().splitlines()) == 1


def test_memory_that_is_held_keeps_the_lock_until_it_is_free(node: Make) -> None:
    """The end is told at once and names who holds it; the agent stays with its lock, and goes when it is free."""
    run = node(BRIEF, gpus=[GPU])
    folder = simulate(run, used=70000)
    go(run, folder)
    state = wait_until(lambda: found if (found := run.state())["state"] == "SUCCEEDED" else None, "the end")
    held = "@clusterctl/gpu/GPU-simulated-3" in Path("/proc/net/unix").read_text()
    (folder / "used").write_text("10")
    stopped = run.verb("stop", grace=1, reason="over")

    (entry,) = state["gpu_memory"]
    assert (entry["gpu"], entry["used"], entry["by"][0]["pid"]) == (3, 70000, os.getpid())
    assert Path(sys.executable).name in entry["by"][0]["command"]
    assert (held, state["releasing"]) == (True, True)
    (answer,) = [header["stopped"] for header, _ in stopped if "stopped" in header]
    assert (answer["left"], answer["state"]["gpu_memory"]) == ([], [])
    assert [event["held"] for event in memory_events(run)][-1] == []
    wait_until(lambda: not run.is_alive(), "nothing left")
    assert "GPU-simulated-3" not in Path("/proc/net/unix").read_text()


def test_what_was_in_use_before_does_not_count(node: Make) -> None:
    """Somebody else's memory, there before the run, is not waited for."""
    run = node(BRIEF, gpus=[{**GPU, "used": 69900}])

    go(run, simulate(run, used=70000)).ended()
    assert memory_events(run) == []


@pytest.mark.parametrize(("delay", "used"), [("sleep 3600", 70000), ("exit 9", 70000)])
def test_an_nvidia_smi_that_hangs_or_fails_keeps_nobody(node: Make, delay: str, used: int) -> None:
    """No answer counts as free: the end is told although nvidia-smi never answers."""
    run = node(BRIEF, gpus=[GPU])
    state = go(run, simulate(run, used=used, delay=delay)).ended()

    assert state["state"] == "SUCCEEDED"
    assert json.dumps(state).count("gpu_memory") == 0
