"""Which process takes the processors: a real one that computes is found, unless it was started for the run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from clusterctl.node.diagnose import busiest
from clusterctl.node.diagnose.busiest import ProcessorUse, read_all_ticks

pytestmark = pytest.mark.process


@contextmanager
def computing(run: str) -> Iterator[int]:
    """Start a process that computes, as one of a run is started."""
    code = "print('begun', flush=True)\nwhile True: pass"
    environment = {**os.environ, "CLUSTERCTL_RUN": f"{run}/gpu01/1"}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process.pid
        finally:
            process.kill()


def found_beside(pid: int, run: str, monkeypatch: pytest.MonkeyPatch) -> object:
    """Look which process was busiest, with nothing else on this machine than one process and this one."""
    monkeypatch.setattr(busiest, "all_pids", lambda: [os.getpid(), pid])
    monkeypatch.setattr(busiest, "MIN_CORES", 0.01)
    use = ProcessorUse(run)
    while read_all_ticks() == use._before:
        pass
    answer = use.find_busiest()
    return answer and answer["pid"]


def test_a_process_of_another_program_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else of the run computes beside it."""
    with computing("other-run") as pid:
        assert found_beside(pid, "this-run", monkeypatch) == pid


def test_processes_of_the_run_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the tag of its environment; nor this one, which looks."""
    with computing("this-run") as pid:
        assert found_beside(pid, "this-run", monkeypatch) is None


def test_a_process_that_is_gone_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two looks many end."""
    with computing("other-run") as pid:
        monkeypatch.setattr(busiest, "all_pids", lambda: [pid])
        use = ProcessorUse("this-run")
    assert use.find_busiest() is None
