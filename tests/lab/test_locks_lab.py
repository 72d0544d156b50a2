"""Launches that want the same GPUs: one gets them, the other hears who has them, or waits."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from driving import cctl, kill_leftovers, leftovers, make_project, read_until, run_id, start_cctl, tagged
from variants import VARIANT
from waiting import HANG, wait_until

from clusterctl.lab.labs import Lab

SIM = "/tmp/sim"
# Stands for nvidia-smi on a node without a GPU: SIMULATED, two GPUs, each with as much in use as /tmp/sim/used says.
NVIDIA_SMI = """#!/bin/sh
used=$(cat /tmp/sim/used 2>/dev/null || echo 4)
case $1 in --query-compute-apps=*) cat /tmp/sim/apps 2>/dev/null; exit 0;; esac
fields=$(echo "${1#*=}" | tr , ' ')
for i in 0 1; do
  line=
  for field in $fields; do
    case $field in
      index) value=$i;; uuid) value=GPU-SIMULATED-$i;; name) value='Simulated GPU';; driver_version) value=560.35;;
      memory.total) value=80000;; memory.used) value=$used;; compute_mode) value=Default;;
      mig.mode.current) value=Disabled;; *) value=0;;
    esac
    line="$line, $value"
  done
  echo "${line#, }"
done
"""
HOLDING = "import time; print('holding', flush=True); time.sleep(3600)"
DONE = "print('done', flush=True)"


@pytest.fixture
def gpus(cluster: Lab) -> Iterator[Lab]:
    """Give the nodes two simulated GPUs each."""
    for node in cluster.nodes:
        node.run(
            ["sh", "-c", f"mkdir -p {SIM} && cat > {SIM}/nvidia-smi && chmod 755 {SIM}/nvidia-smi"],
            input=NVIDIA_SMI,
        )
    yield cluster
    for node in cluster.nodes:
        node.run(["rm", "-rf", SIM])
    kill_leftovers(cluster)


@pytest.fixture
def project(tmp_path: Path) -> Callable[..., Path]:
    """Make jobs that start one process per node and see the simulated GPUs."""

    def make(name: str, source: str, **job: Any) -> Path:
        more = {"launcher": "python", "activate": f"export PATH={SIM}:$PATH", "gpus": [0], **job}
        return make_project(tmp_path / name, source, name=name, **more)

    return make


def only(lab: Lab, run: str) -> bool:
    """Tell whether no other run has a process on any node."""
    return all(process.run_id.startswith(run) for found in tagged(lab).values() for process in found)


def test_of_two_launches_at_once_one_gets_the_gpus(gpus: Lab, project: Callable[..., Path]) -> None:
    """The other ends with 3, names run, person and nodes, and leaves nothing; with other GPUs it goes on beside."""
    rivals = [
        start_cctl(gpus, "launch", "--ignore-checks", "-d", project(name, HOLDING)) for name in ("one", "two")
    ]
    said = [rival.communicate(timeout=HANG) for rival in rivals]
    codes = [rival.returncode for rival in rivals]
    assert sorted(codes) == [0, 3], said
    winner, error = said[codes.index(0)][0].strip(), said[codes.index(3)][1]

    assert "CC-RUN-040" in error
    assert f"GPU 0: run {winner} of " in error
    assert "since " in error
    assert "nothing was started" in error
    loser = ("one", "two")[codes.index(3)]
    assert f"{loser}-" not in cctl(gpus, "ps", "-v").out  # it was refused, and never was a run
    wait_until(lambda: only(gpus, winner), "the other run's agents have left")

    beside = cctl(gpus, "launch", "--ignore-checks", project("beside", DONE, gpus=[1]))
    assert beside.code == 0, beside.err
    checked = cctl(gpus, "check", project("other", DONE))
    assert "CC-GPU-019" in checked.out + checked.err
    assert winner in checked.out + checked.err
    assert cctl(gpus, "stop", winner).code == 0
    assert leftovers(gpus) == {}


def test_a_launch_may_wait(gpus: Lab, project: Callable[..., Path]) -> None:
    """It says for whom, is listed as WAITING, goes on by itself; Ctrl-C cancels the wait and leaves nothing."""
    first = cctl(gpus, "launch", "--ignore-checks", "-d", project("first", HOLDING))
    assert first.code == 0, first.err
    waiting = start_cctl(gpus, "launch", "--ignore-checks", "--wait", project("waits", DONE))
    weary = start_cctl(gpus, "launch", "--ignore-checks", "--wait", project("weary", DONE))
    for process in (waiting, weary):
        assert process.stderr is not None
        line = next(line for line in process.stderr if "waiting" in line)
        assert f"run {first.out.strip()} of " in line
    assert cctl(gpus, "ps").out.count("WAITING") == 2
    weary.send_signal(signal.SIGINT)
    _, err = weary.communicate(timeout=HANG)
    assert (weary.returncode, "nothing was started" in err) == (130, True), err
    wait_until(lambda: not tagged(gpus, "weary"), "its agents have left")

    assert cctl(gpus, "stop", first.out.strip()).code == 0
    out, err = waiting.communicate(timeout=HANG)
    assert waiting.returncode == 0, err
    assert out.count("done") == len(gpus.nodes)
    assert leftovers(gpus) == {}


def test_memory_that_stays_in_use_is_told(gpus: Lab, project: Callable[..., Path]) -> None:
    """The verdict and `stop` name who holds it; the next launch finds the lock held until it is free."""
    first, *_ = gpus.nodes
    stays = project("stays", f"open('{SIM}/used', 'w').write('70000')", nodes=1)
    first.run(["sh", "-c", f"echo 'GPU-SIMULATED-0, 1, 69000' > {SIM}/apps"])
    ended = cctl(gpus, "launch", "--ignore-checks", stays)
    late = cctl(gpus, "launch", "--ignore-checks", project("late", DONE, nodes=1))
    first.run(["sh", "-c", f"echo 4 > {SIM}/used"])
    stopped = cctl(gpus, "stop", run_id(ended.err))

    assert (ended.code, late.code, stopped.code) == (0, 3, 0), (ended, late, stopped)
    assert f"still in use on {first.name}: GPU 0: 70000 MiB, by pid 1 of " in ended.err
    assert f"run {run_id(ended.err)} of " in late.err
    assert leftovers(gpus) == {}


@VARIANT
def test_a_job_may_want_its_nodes_alone(gpus: Lab, project: Callable[..., Path]) -> None:
    """`exclusive: true` keeps out also runs that use no GPU."""
    alone = start_cctl(
        gpus, "launch", "--ignore-checks", project("alone", HOLDING, gpus=None, exclusive=True, nodes=1)
    )
    read_until(alone, "holding")
    late = cctl(gpus, "launch", "--ignore-checks", project("late", DONE, gpus=None))
    alone.send_signal(signal.SIGINT)
    _, err = alone.communicate(timeout=HANG)

    assert late.code == 3, late.err
    assert "the whole node: run alone-" in late.err
    assert "late-" not in cctl(gpus, "ps", "-v").out, "what was refused never was a run"
    assert cctl(gpus, "stop", run_id(err)).code == 0
    assert cctl(gpus, "launch", "--ignore-checks", project("later", DONE, gpus=None)).code == 0
