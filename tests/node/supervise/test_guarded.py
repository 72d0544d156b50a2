"""An error of the agent's own: it ends the run on its node in order, and says so; the log holds the rest."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest
from gangs import GangRun
from noderun import NodeRun

from clusterctl.node.runtime.event_loop import Loop

Make = Callable[..., NodeRun]
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('here', flush=True); time.sleep(600)"


def test_an_error_while_it_runs_ends_the_run_in_order(node: Make) -> None:
    """Workers that ignore TERM are ended, the state is written, the reason names the error, the log the place."""
    one = node(DEAF, grace="soon").use_stub().go().running()
    os.kill(one.pid("guardian"), signal.SIGTERM)
    state = one.ended()

    assert (state["state"], state["left"]) == ("FAILED", [])
    assert state["reason"].startswith("the agent failed: ValueError: could not convert string to float")
    assert one.event("agent_failed")["reason"] == state["reason"]
    assert one.event("ended")["state"] == "FAILED"
    assert "Traceback" in one.agent_log()


def test_the_others_hear_of_it(node: Make) -> None:
    """An error on one node is a failure of that node: the gang ends, and the record names it."""
    gang = GangRun(node, 2).prepare().join()
    gang.nodes[1].spec["grace"] = "soon"
    (gang.nodes[1].rundir / "stop.json").mkdir()  # no file: it cannot be read
    gang.go()
    os.kill(gang.nodes[1].pid("guardian"), signal.SIGTERM)
    states = gang.ended()

    assert [state["state"] for state in states] == ["STOPPED", "FAILED"]
    assert all("the agent failed: IsADirectoryError" in state["reason"] for state in states)
    assert states[0]["reason"].startswith("gpu02: ")
    assert [part["state"] for part in gang.record(0)["parts"]] == ["STOPPED", "FAILED"]


def test_errors_without_a_guard_end_the_loop() -> None:
    """Who does not say what becomes of an error gets it; who does goes on, and reports at most so many."""
    loop = Loop()

    def fail() -> None:
        raise IndexError("an error of ours")

    loop.after(0, "bad", fail)
    with pytest.raises(IndexError):
        loop.run()
    seen: list[Exception] = []
    loop.on_error = seen.append
    for count in range(3):
        loop.after(0, f"bad {count}", fail)
    loop.after(0.01, "stop", loop.stop)
    loop.run()
    assert len(seen) == 3


def test_a_log_is_not_filled_with_errors(capfd: pytest.CaptureFixture[str]) -> None:
    """The first ones are written in full, the others only happen."""
    loop = Loop()
    for _ in range(100):
        loop.report(ValueError("once more"))
    assert capfd.readouterr().err.count("once more") == 20
