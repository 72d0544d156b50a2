"""Succession: the hub is lost, and those who are left lead the run on, if nobody else can."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import threading
from collections.abc import Callable, Iterator

import pytest
from noderun import NodeRun
from restarting import RestartGang, vanish
from variants import VARIANT
from waiting import wait_until

Make = Callable[..., NodeRun]


def test_node_0_is_lost_and_the_run_goes_on(node: Make) -> None:
    """The lowest seat that is left leads; the spare becomes rank 0, and the master with it."""
    gang = RestartGang(node, spares=1).begin()
    vanish(gang.nodes[0])
    gang.settled(2, [1, 2])
    states = [one.state() for one in gang.nodes[1:]]
    gang.finish(2)

    assert [(state["attempt"], state["node_rank"]) for state in states] == [(2, 1), (2, 0)]
    assert all(state["master"].startswith("127.0.0.3:") for state in states)
    assert gang.causes(1) == gang.causes(2) == [("node_lost", "gpu01 is lost")]
    assert [one.state()["state"] for one in gang.nodes[1:]] == ["SUCCEEDED"] * 2
    assert gang.record(1) == gang.record(2)
    assert (gang.record(1)["hub"], gang.record(1)["whole"]) == ("gpu02", True)


@VARIANT  # of what the transcripts of the gang prove without processes
def test_the_hub_is_lost_in_the_pause(node: Make) -> None:
    """An attempt that has ended already is not counted twice."""
    gang = RestartGang(node, spares=1, restart={"pause": 6.0, "warm": 0.0}).begin()
    gang.order(1, 1, "os.kill(os.getpid(), signal.SIGKILL)")
    wait_until(lambda: "restart 1 of 3" in gang.nodes[1].state()["reason"], "the pause")
    vanish(gang.nodes[0])
    gang.settled(2, [1, 2])
    gang.finish(2)

    assert gang.causes(1) == [("node_lost", "gpu01 is lost")]
    assert [one.state()["state"] for one in gang.nodes[1:]] == ["SUCCEEDED"] * 2


@VARIANT  # of what the transcripts of the gang prove without processes
def test_the_hub_is_lost_while_gates_start(node: Make) -> None:
    """The attempt that was about to begin counts as one that failed, and the next is led by somebody else."""
    gang = RestartGang(node, spares=1, restart={"pause": 0.5}).begin()
    gang.order(1, 1, "os.kill(os.getpid(), signal.SIGKILL)")
    wait_until(lambda: gang.nodes[1].state()["attempt"] == 2, "the next attempt")
    vanish(gang.nodes[0])
    gang.settled(3, [1, 2])
    gang.finish(3)

    assert [one.state()["state"] for one in gang.nodes[1:]] == ["SUCCEEDED"] * 2
    assert [cause for cause, _ in gang.causes(1)] == ["worker_killed", "node_lost"]


def test_an_old_hub_that_comes_back_does_no_harm(node: Make) -> None:
    """It was given up; when it wakes, the others are at the next attempt, and it ends alone."""
    gang = RestartGang(node, spares=1, agent_limit=3600.0).begin()
    old = gang.nodes[0]
    os.kill(old.pid("agent"), signal.SIGSTOP)
    gang.settled(2, [1, 2])
    os.kill(old.pid("agent"), signal.SIGCONT)
    wait_until(lambda: not old.is_alive(), "the old hub ended")
    between = [one.state() for one in gang.nodes[1:]]
    states = gang.finish(2)

    assert [(state["state"], state["attempt"]) for state in between] == [("RUNNING", 2)] * 2
    assert [state["state"] for state in states[1:]] == ["SUCCEEDED"] * 2
    assert (states[0]["attempt"], states[0]["gave_up"]) == (1, "nodes")
    assert states[0]["state"] in ("FAILED", "STOPPED")


@VARIANT  # of what the transcripts of the gang prove without processes
def test_a_peer_of_an_earlier_attempt_does_no_harm(node: Make) -> None:
    """It was replaced; when it wakes, nobody takes it in, it does not lead anybody, and it ends."""
    gang = RestartGang(node, spares=1, agent_limit=3600.0).begin()
    old = gang.nodes[1]
    os.kill(old.pid("agent"), signal.SIGSTOP)
    gang.settled(2, [0, 2])
    os.kill(old.pid("agent"), signal.SIGCONT)
    wait_until(lambda: not old.is_alive(), "the old peer ended")
    between = [gang.nodes[seat].state() for seat in (0, 2)]
    states = gang.finish(2)

    assert [(state["state"], state["attempt"]) for state in between] == [("RUNNING", 2)] * 2
    assert [states[seat]["state"] for seat in (0, 2)] == ["SUCCEEDED"] * 2
    assert (states[1]["attempt"], states[1]["gave_up"]) == (1, "nodes")


@pytest.mark.parametrize(
    ("spares", "apart", "leads", "why"),
    [
        (3, [2, 3, 4], [2, 3], "majority"),
        pytest.param(1, [1, 2], [1, 2], "nodes", marks=VARIANT),
        pytest.param(1, [2], [], "nodes", marks=VARIANT),
    ],
)
def test_no_split_brain(
    node: Make, wires: Callable[[int], Wire], spares: int, apart: list[int], leads: list[int], why: str
) -> None:
    """The network falls into two without a word: one half goes on, and only when nothing runs in the other."""
    gang = RestartGang(node, spares=spares).prepare()
    hub = wires(gang.doors[0][2])
    gang.apart = dict.fromkeys(apart, hub.port)
    gang.join().go()
    hub.cut()
    rest = [one for seat, one in enumerate(gang.nodes) if seat not in apart]
    attempt, seats = (2, leads) if leads else (1, [0, 1])
    if leads:
        gang.settled(2, leads)
    else:
        wait_until(lambda: not gang.nodes[2].is_alive(), "the one apart ended")
    left_there = [one.left() for one in rest] if leads else []
    running = [gang.nodes[seat].state()["state"] for seat in seats]
    states = gang.finish(attempt)

    assert not any(left_there), "both halves ran"
    assert running == ["RUNNING"] * 2
    assert [states[seat]["state"] for seat in seats] == ["SUCCEEDED"] * 2
    alone = [0, 1][: len(rest)] if leads else [2]
    assert [states[seat]["gave_up"] for seat in alone] == [why] * len(alone)
    assert [states[seat]["attempt"] for seat in alone] == [1] * len(alone)


class Wire:
    """A way to a port of this machine that can be cut without either side being told."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._door = socket.create_server(("127.0.0.1", 0))
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._cut = threading.Event()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """Where to come instead."""
        return int(self._door.getsockname()[1])

    def cut(self) -> None:
        """Carry nothing any more."""
        self._cut.set()

    def close(self) -> None:
        """Let go of everything."""
        self._end.set()
        self._thread.join()
        for sock in (self._door, *self._pairs):
            sock.close()

    def _serve(self) -> None:
        while not self._end.wait(0.01):
            if self._cut.is_set():
                continue
            for ready in select.select([self._door, *self._pairs], [], [], 0.05)[0]:
                self._carry(ready)

    def _carry(self, ready: socket.socket) -> None:
        if ready is self._door:
            near = self._door.accept()[0]
            far = socket.create_connection(("127.0.0.1", self._target))
            self._pairs.update({near: far, far: near})
            return
        with contextlib.suppress(OSError):
            piece = ready.recv(1 << 16)
            if piece:
                self._pairs[ready].sendall(piece)
                return
        other = self._pairs.pop(ready)
        self._pairs.pop(other)
        ready.close()
        other.close()


@pytest.fixture
def wires() -> Iterator[Callable[[int], Wire]]:
    """Lay wires, and take them away after the test."""
    laid: list[Wire] = []

    def lay(target: int) -> Wire:
        laid.append(Wire(target))
        return laid[-1]

    yield lay
    for wire in laid:
        wire.close()
