"""The end of a run comes closer and never recedes, and nobody is asked twice."""

from __future__ import annotations

import subprocess
import sys
import time

from waiting import HANG

from clusterctl.node.runtime import processes
from clusterctl.node.runtime.event_loop import Loop
from clusterctl.node.runtime.processes import ProcessTree
from clusterctl.node.supervise.shutdown import KillSchedule

# Says how often it was asked to end, when it may.
COUNTS = """
import signal, sys
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
print("ready", flush=True)
sys.stdin.read()
print(len(asked), flush=True)
"""


class Moments(Loop):
    """Keeps for when the next look is set."""

    seconds = float("inf")

    def after(self, seconds: float, *_: object) -> None:
        """Keep it."""
        self.seconds = seconds


def test_a_later_stop_does_not_prolong_an_earlier_one() -> None:
    """Whoever stops with a long grace after somebody with a short one waits for the short one."""
    loop = Moments()
    deadline = KillSchedule(loop, ProcessTree("none/"), lambda: 1, print)
    seen = []
    for grace in (30.0, 300.0, 5.0, 60.0):
        deadline.kill_after(grace)
        seen.append(loop.seconds)

    assert [seconds <= limit for seconds, limit in zip(seen, (30.0, 30.0, 5.0, 5.0), strict=True)] == [
        True
    ] * 4
    assert seen[1] > 15


def test_a_process_is_asked_to_end_once() -> None:
    """torchrun takes a second SIGTERM for impatience, and a script's clean-up may, too."""
    child = subprocess.Popen(
        [sys.executable, "-c", COUNTS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    stat = processes.find_process(processes.identify(child.pid))
    assert stat is not None
    sweep = ProcessTree("none/")
    for _ in range(3):
        sweep.terminate([stat])
        time.sleep(0.1)  # signals that wait to be taken are one
    out, _ = child.communicate("", timeout=HANG)

    assert out == "1\n"
    assert sweep.signalled() == [{"pid": child.pid, "name": stat.name}]
