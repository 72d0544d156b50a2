"""The job's time limit, kept by the agent itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from noderun import NodeRun

from clusterctl.protocol.exit_status import describe_limit

Make = Callable[..., NodeRun]

SAVES = """
import signal, sys, time
def save(*_):
    print("saved", flush=True)
    sys.exit(CODE)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
time.sleep(3600)
"""
STUBBORN = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(3600)"


@pytest.mark.parametrize("code", [0, 3])
def test_the_limit_ends_a_run_and_nobody_need_watch(node: Make, code: int) -> None:
    """TERM at the limit, and no wait for the grace; however the workers end then, the limit is the reason."""
    run = node(SAVES.replace("CODE", str(code)), time_limit=6.0, grace=3600.0).use_stub().go()
    state = run.ended()

    assert (state["state"], state["reason"], state["left"]) == ("TIMEOUT", "time limit of 6 s", [])
    assert run.output(0).split() == ["ready", "saved"]
    assert run.event("stopping")["reason"] == "time limit of 6 s"
    assert run.event("stopping")["time"] - state["began"] >= 5.9
    assert state["time_limit"] == 6.0


def test_what_ignores_the_limit_is_killed_at_the_grace(node: Make) -> None:
    """The job's own grace counts from the limit."""
    state = node(STUBBORN, time_limit=0.5, grace=0.5).use_stub().go().ended()

    assert (state["state"], state["ranks"]["0"]["signal"]) == ("TIMEOUT", 9)


def test_a_failure_before_the_limit_is_a_failure(node: Make) -> None:
    """And a run that ends in time is not touched."""
    failed = node("import time; time.sleep(0.2); raise SystemExit(4)", time_limit=3600.0).use_stub().go()
    fine = node("", time_limit=3600.0).use_stub().go()

    assert failed.ended()["reason"] == "rank 0 exited with 4"
    assert fine.ended()["state"] == "SUCCEEDED"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (43200.0, "12h"),
        (1800.0, "30m"),
        (5400.0, "1h30m"),
        (90061.5, "1d01h"),
        (0.5, "0.5 s"),
    ],
)
def test_a_limit_in_words(seconds: float, words: str) -> None:
    """As the job has it, in the units that people use."""
    assert describe_limit(seconds) == f"time limit of {words}"
