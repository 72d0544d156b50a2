"""A gate that was started before its attempt, as the agent holds it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from clusterctl.node.fork.imports import TORCHRUN
from clusterctl.node.runtime.processes import identify
from clusterctl.node.supervise import gate_process
from clusterctl.node.supervise.gate_process import SpareGate, send_attempt
from clusterctl.node.supervise.spawn import AttemptPaths, Gate

SPEC: Any = {
    "node": "gpu01",
    "module": TORCHRUN,
    "python": "python3",
    "nproc": 2,
    "start": {"preload": []},
}
PATHS = AttemptPaths("/runs/1", "/runs/1/attempt-1", "/runs/1/attempt-1/torchrun.log", "/outputs", {})


class Waiting:
    """A process that stands for the gate, and the ends of its pipes."""

    def __init__(self) -> None:
        go_read, go_write = os.pipe()
        report_read, self.report = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(go_write)
            signal.pause()
        os.set_blocking(report_read, False)
        self.go = go_read
        self.gate = Gate(identify(self.pid), go_write, report_read)

    def end(self) -> None:
        """End it as a crash would."""
        os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)


@pytest.fixture
def waiting() -> Iterator[Waiting]:
    """Start one; it is ended after the test."""
    made = Waiting()
    yield made
    try:
        made.end()
    except (ProcessLookupError, ChildProcessError):
        return


def make_spare(waiting: Waiting, states: list[Any]) -> SpareGate:
    """Make an agent's, whose changes of the record are kept in `states`."""
    return SpareGate(SimpleNamespace(set=states.append), waiting.gate)  # type: ignore[arg-type]  # of a record


def test_it_is_recorded_and_spared_until_it_is_taken(waiting: Waiting) -> None:
    """Then it is torchrun, and ended with its attempt."""
    states: list[Any] = []
    spare = make_spare(waiting, states)
    os.write(waiting.report, b'{"waits": "2.13.0"}\n')
    assert (states[0]["warm"]["pid"], spare.spared) == (waiting.pid, {waiting.pid})
    assert spare.pop(SPEC) == waiting.gate
    assert spare.spared == set()
    assert spare.pop(SPEC) is None


@pytest.mark.parametrize("changes", [{"module": "torch.distributed.launch"}, {"start": None}])
def test_an_attempt_that_forks_nothing_does_not_get_it(waiting: Waiting, changes: dict[str, Any]) -> None:
    """It ends: its pipe is closed."""
    spec = {name: value for name, value in {**SPEC, **changes}.items() if value is not None}
    assert make_spare(waiting, []).pop(spec) is None  # type: ignore[arg-type]  # of a spec, what is read
    assert os.read(waiting.go, 1) == b""


def test_one_that_has_ended_is_not_taken(waiting: Waiting) -> None:
    """Nor is its pid spared: another process may get it."""
    spare = make_spare(waiting, [])
    os.close(waiting.report)
    waiting.end()
    assert spare.pop(SPEC) is None
    second = Waiting()
    spare = make_spare(second, [])
    second.end()
    spare.on_child_exit(second.pid)
    assert (spare.spared, spare.pop(SPEC)) == (set(), None)


def test_it_gets_its_attempt_in_one_line(waiting: Waiting) -> None:
    """With the variables as they are, and torchrun's log."""
    assert send_attempt(waiting.gate, SPEC, {"A": "\udcff"}, PATHS)
    order = json.loads(os.read(waiting.go, 1 << 16))
    assert (order["env"], order["log"], order["cwd"]) == ({"A": "\udcff"}, PATHS.torchrun_log, "/runs/1")
    assert order["start"] == {"preload": [], "workers": 2}


def test_an_attempt_that_would_hold_up_the_agent_is_not_sent(waiting: Waiting) -> None:
    """A gate that still imports reads nothing, and the agent must send its beats."""
    assert not send_attempt(waiting.gate, SPEC, {"LONG": "x" * gate_process.PIPE_BYTES}, PATHS)


def test_only_a_run_that_may_start_again_has_a_next_gate(
    waiting: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One at a time."""
    started: list[Any] = []
    monkeypatch.setattr(gate_process, "start_waiting", lambda *given: started.append(given) or waiting.gate)
    spare = SpareGate(SimpleNamespace(set=lambda _: None), None)  # type: ignore[arg-type]  # of a record
    spare.start_next(SPEC, {})
    assert started == []
    for _ in range(2):
        spare.start_next({**SPEC, "restart": {"max": 1}}, {})
    assert len(started) == 1


@pytest.mark.parametrize(("start", "stays"), [({"keep_warm": 60.0}, True), ({}, False)])
def test_the_record_names_until_when_the_node_waits(start: dict[str, Any], stays: bool) -> None:
    """By it the guardian starts what waits, and `ps` asks the node."""
    states: list[Any] = []
    spare = SpareGate(SimpleNamespace(set=states.append), None)  # type: ignore[arg-type]  # of a record
    spare.stay({**SPEC, "start": {**SPEC["start"], **start}})
    assert [sorted(state["warm"]) for state in states] == [["until"]] * stays
