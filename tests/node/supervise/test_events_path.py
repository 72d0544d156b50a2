"""How many functions a failure passes through on a node before a message about it leaves."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from gangs import GangRun
from noderun import NodeRun
from tracing import CALLERS, traced
from waiting import wait_until

MAX_FUNCTIONS = 8


def calls_on(node: NodeRun, function: str) -> list[list[str]]:
    """Read which functions had called each other when a node sent a message, of those behind a function."""
    lines = (node.rundir / "callers").read_text().splitlines()
    return [calls for calls in map(str.split, lines) if function in calls]


@pytest.mark.parametrize("failing", [0, 1])
@pytest.mark.parametrize("code", ["sys.exit(3)", "os.kill(os.getppid(), signal.SIGKILL)"])
def test_a_failure_is_eight_functions_from_the_message(
    node: Callable[..., NodeRun], failing: int, code: str
) -> None:
    """From the exit of a worker or torchrun on node 0, the hub, or on a peer; the hub is no slower to pass it on."""
    gang = GangRun(node, 3)
    for one in gang.nodes:
        traced(one, CALLERS)
    gang.prepare().join().go()
    gang.tell(failing, code)
    wait_until(lambda: not any(one.is_alive() for one in gang.nodes), "nothing left anywhere")

    first, hub = calls_on(gang.nodes[failing], "fail"), calls_on(gang.nodes[0], "_stop_all")
    assert first and max(map(len, first)) <= MAX_FUNCTIONS, first
    assert hub and max(map(len, hub)) <= MAX_FUNCTIONS, hub
