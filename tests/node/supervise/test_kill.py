"""Whoever is killed, everything of the run is gone, and the rest of the machine is not; how soon is in tests/bench."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from noderun import NodeRun
from variants import VARIANT
from waiting import wait_until

Make = Callable[..., NodeRun]

# A worker that ignores SIGTERM, with two grandchildren in sessions of their own that ignore it too;
# the second has an empty environment, so that no tag leads to it. The mark is in its command line.
STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
mark = os.environ["TEST_MARK"]
subprocess.Popen(["sleep", "600"], start_new_session=True)
subprocess.Popen([mark, "600"], executable="/bin/sleep", env={}, start_new_session=True)
if os.environ.get("REDUCE"):
    import torch, torch.distributed as dist
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(1))
print("settled", flush=True)
time.sleep(600)
"""


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A process of the same account with another run's tag."""
    script = "import time; time.sleep(600)"
    process = subprocess.Popen(
        [sys.executable, "-c", script], env={**os.environ, "CLUSTERCTL_RUN": "other/gpu01/1"}
    )
    yield process
    assert process.poll() is None, "another run's process was ended"
    process.kill()
    process.wait()


def settled(run: NodeRun) -> NodeRun:
    """Wait until every worker has its grandchildren and has met the others."""
    run.go().running()
    ranks = range(run.spec["nproc"])
    wait_until(lambda: all("settled" in run.output(rank) for rank in ranks), "workers settled")
    assert len(run.left()) >= 3 + 3 * run.spec["nproc"]
    return run


KILLED = {
    "guardian": "the guardian was killed",
    "agent": "the agent was killed by SIGKILL",
    "torchrun": "torchrun was killed by SIGKILL",
    "1": "rank 1 was killed by SIGKILL",
}


@pytest.mark.parametrize(
    ("victim", "torch"),
    [
        ("guardian", ""),
        ("agent", ""),
        ("torchrun", "torchrun, Gloo"),
        ("1", "torchrun"),
        *(pytest.param(victim, "torchrun, Gloo", marks=VARIANT) for victim in ("guardian", "agent", "1")),
    ],
)
@pytest.mark.usefixtures("bystander")
def test_nothing_survives(node: Make, victim: str, torch: str) -> None:
    """kill -9 of any part of a job ends every process of it, without waiting for the grace; `torch` says what is real.

    Who ends what is left of torchrun and its ranks is real torch's affair only where one of these is killed.
    """
    run = node(STUBBORN, nproc=2, world_size=2, grace=3600.0, env={"REDUCE": "1"} if "Gloo" in torch else {})
    settled(run if torch else run.use_stub())
    reason = KILLED[victim]
    os.kill(run.pid(victim), signal.SIGKILL)
    wait_until(lambda: not run.is_alive(), "nothing left")
    state = run.ended()

    assert (state["state"], state["reason"], state["left"]) == ("FAILED", reason, [])
    lost = {"guardian": "guardian_lost", "agent": "agent_lost"}.get(victim, "torchrun_exited")
    assert run.event(lost)
    assert run.event("ended")["state"] == "FAILED"
    if victim == "1":
        assert state["ranks"]["1"]["signal"] == 9
        assert "Signal 9 (SIGKILL)" in (run.rundir / "attempt-1" / "torchrun.log").read_text()


def test_a_worker_that_exits_ends_the_others(node: Make) -> None:
    """An exit code is known and the stubborn rest is gone, without waiting for the grace."""
    script = "import os, sys\nif os.environ['RANK'] == '1': sys.exit(7)\n" + STUBBORN
    run = node(script, nproc=2, world_size=2, grace=3600.0).go()
    wait_until(lambda: "rank_exited" in [event["event"] for event in run.events()], "an exit")
    wait_until(lambda: not run.is_alive(), "nothing left")

    assert run.ended()["reason"] == "rank 1 exited with 7"


def test_an_exit_that_torchrun_saw_first(node: Make) -> None:
    """The rank that failed is blamed, and not the one torchrun ended for it, though the agent saw neither end."""
    script = """
        import os, sys, time
        print("settled", flush=True)
        while not os.path.exists(os.environ["TEST_MARK"] + "/fail") or os.environ["RANK"] == "0":
            time.sleep(0.01)
        sys.exit(7)
    """
    run = node(textwrap.dedent(script), nproc=2, world_size=2).go().running()
    wait_until(lambda: all("settled" in run.output(rank) for rank in (0, 1)), "workers settled")
    agent, workers = run.pid("agent"), [run.pid("0"), run.pid("1")]
    os.kill(agent, signal.SIGSTOP)
    (run.root / "fail").touch()
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers), "both reaped")
    os.kill(agent, signal.SIGCONT)
    state = run.ended()

    assert (state["state"], state["reason"]) == ("FAILED", "rank 1 exited with 7")
    assert [state["ranks"][rank]["signal"] for rank in "01"] == [15, None]


def test_a_frozen_agent_is_ended(node: Make) -> None:
    """An agent that is stopped by SIGSTOP loses its run after the limit."""
    run = settled(node(STUBBORN, agent_limit=5.0).use_stub())
    os.kill(run.pid("agent"), signal.SIGSTOP)
    state = run.ended()

    assert (state["state"], state["reason"]) == (
        "FAILED",
        "the agent was silent for 5 s: it was halted (SIGSTOP)",
    )


@pytest.mark.usefixtures("bystander")
def test_guardian_and_agent_killed_together(node: Make) -> None:
    """torchrun is told by the kernel; what ignores that is found by the tag when stop comes."""
    run = settled(node(STUBBORN).use_stub())
    for name in ("guardian", "agent"):
        os.kill(run.pid(name), signal.SIGSTOP)
    for name in ("guardian", "agent"):
        os.kill(run.pid(name), signal.SIGKILL)
    wait_until(lambda: run.verb("ps", run=None)[0][0]["runs"][0]["state"] == "LOST", "LOST")
    assert run.left(), "the stubborn worker survives both"
    *_, (answer, _), _ = run.verb("stop", grace=None, reason="test")

    assert answer["stopped"]["left"] == []
    assert answer["stopped"]["state"]["state"] == "LOST"
    assert {entry["name"] for entry in answer["stopped"]["ended"]} >= {"sleep"}
    assert (run.left(), run.state()["state"]) == ({}, "LOST")


@pytest.mark.usefixtures("bystander")
def test_stop_waits_for_the_grace_and_then_kills(node: Make) -> None:
    """TERM first; at the grace everything goes; a second stop does not begin it anew."""
    run = settled(node(STUBBORN, nproc=2, world_size=2).use_stub())
    (run.rundir / "stop.json").write_text('{"grace": 5.0, "reason": "first"}')
    os.kill(run.pid("guardian"), signal.SIGTERM)
    wait_until(lambda: "stopping" in [event["event"] for event in run.events()], "the first stop")
    os.kill(run.pid("guardian"), signal.SIGTERM)
    events = run.verb("stop", grace=3600, reason="second")
    answer = next(header for header, _ in events if "stopped" in header)  # a beat may follow

    assert answer["stopped"]["left"] == []
    names = sorted(entry["name"] for entry in answer["stopped"]["ended"])
    assert names == ["rank 0", "rank 1", *["sleep"] * 4, "torchrun"]
    assert (answer["stopped"]["state"]["state"], run.left()) == ("STOPPED", {})
    stopping, *_ = [event for event in run.events() if event["event"] == "stopping"]
    assert 4.9 <= run.event("ended")["time"] - stopping["time"] < 3600
    assert [header["event"]["event"] for header, _ in events if "event" in header][-1] == "ended"


def test_stop_lets_a_worker_finish_its_checkpoint(node: Make) -> None:
    """A worker that saves on SIGTERM has its time, and is not interrupted by a second signal."""
    script = (
        "import signal, time\nseen = []\nsignal.signal(signal.SIGTERM, lambda *_: seen.append(1))\n"
        "print('settled', flush=True)\nwhile not seen: time.sleep(0.01)\n"
        "time.sleep(1)\nprint('saved', len(seen), flush=True)\n"
    )
    run = node(script, grace=20.0).go().running()
    wait_until(lambda: "settled" in run.output(0), "settled")
    *_, (answer, _), _ = run.verb("stop", grace=None, reason="enough")

    assert run.output(0).splitlines()[-1] == "saved 1"
    assert answer["stopped"]["state"]["state"] == "STOPPED"
    assert answer["stopped"]["state"]["reason"] == "enough"
    assert run.left() == {}
    parts = {"torchrun": run.pid("torchrun"), "rank 0": run.pid("0")}
    assert {entry["name"]: entry["pid"] for entry in answer["stopped"]["ended"]} == parts


def test_stop_of_a_frozen_guardian(node: Make) -> None:
    """The agent is asked directly, and the guardian does not stay behind."""
    run = settled(node(STUBBORN).use_stub())
    os.kill(run.pid("guardian"), signal.SIGSTOP)
    *_, (answer, _), _ = run.verb("stop", grace=0, reason=None)

    assert answer["stopped"]["state"]["state"] == "STOPPED"
    assert run.left() == {}


def test_stop_of_a_run_that_has_ended(node: Make) -> None:
    """There is nothing to end, and the verdict stays."""
    run = node("print(1)").use_stub().go()
    run.ended()
    *_, (answer, _), _ = run.verb("stop", grace=None, reason=None)

    assert answer["stopped"]["ended"] == []
    assert answer["stopped"]["state"]["state"] == "SUCCEEDED"


def test_a_client_that_is_killed_before_go_cancels(node: Make) -> None:
    """The end of its relay ends everything at once."""
    run = node("print(1)").use_stub()
    session = run.start()
    run.hear("ready")
    session.process.kill()
    wait_until(lambda: not run.is_alive(), "nothing left")

    assert run.state()["state"] == "STOPPED"
    assert run.event("ended")["left"] == []


def test_stop_before_go(node: Make) -> None:
    """A stop from elsewhere cancels a run that waits for GO."""
    run = node("print(1)").use_stub()
    run.start()
    run.hear("ready")
    *_, (answer, _), _ = run.verb("stop", grace=None, reason="changed my mind")

    assert (answer["stopped"]["state"]["state"], run.left()) == ("STOPPED", {})
    assert answer["stopped"]["state"]["reason"] == "changed my mind"


@pytest.mark.usefixtures("bystander")
def test_stop_finds_a_run_whose_directory_was_removed(node: Make) -> None:
    """By the tag, and by the path in the guardian's own command line, with all that is below it."""
    run = settled(node(STUBBORN).use_stub())
    shutil.rmtree(run.rundir.parent)
    *_, (answer, _), _ = run.verb("stop", grace=0.5, reason="stopped by ann@laptop")

    assert run.left() == {}
    assert answer["stopped"]["ended"]
    assert (answer["stopped"]["left"], answer["stopped"]["state"]) == ([], None)
