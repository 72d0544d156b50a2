"""Restarts: the nodes begin a failed run anew by themselves, for good reasons only."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from noderun import NodeRun
from restarting import RestartGang, vanish
from variants import VARIANT
from waiting import wait_until

Make = Callable[..., NodeRun]

KILL = "os.kill(os.getpid(), signal.SIGKILL)"


def test_a_killed_worker_is_tried_again(node: Make) -> None:
    """Nobody watches: attempt 2 runs on the same nodes with the same ranks, and the run succeeds."""
    gang = RestartGang(node).begin()
    gang.order(1, 1, KILL)
    gang.settled(2, [0, 1])
    between = [one.state() for one in gang.nodes]
    states = gang.finish(2)

    assert [state["state"] for state in between] == ["RUNNING"] * 2
    assert [state["state"] for state in states] == ["SUCCEEDED"] * 2
    assert [(state["attempt"], state["node_rank"]) for state in states] == [(2, 0), (2, 1)]
    assert gang.causes(0) == gang.causes(1) == [("worker_killed", "rank 1 on gpu02, killed by SIGKILL")]
    (first,) = states[1]["attempts"]
    assert (first["state"], first["reason"]) == ("FAILED", "rank 1 was killed by SIGKILL")
    assert gang.nodes[0].event("pausing")["seconds"] == 0.2
    assert gang.record(0) == gang.record(1)
    assert gang.record(0)["attempts"][0]["node"] == "gpu02"


def test_a_lost_node_is_replaced_by_a_spare(node: Make) -> None:
    """Guardian and agent are gone: the spare takes the rank, the others keep theirs, and the lost node stays out."""
    gang = RestartGang(node, spares=1).begin()
    spare = gang.nodes[2].state()
    vanish(gang.nodes[1])
    gang.settled(2, [0, 2])
    states = [gang.nodes[seat].state() for seat in (0, 2)]
    gang.finish(2)

    assert (spare["state"], spare["reason"], spare["spare"]) == ("WAITING", "spare", True)
    assert [(state["attempt"], state["node_rank"]) for state in states] == [(2, 0), (2, 1)]
    assert gang.causes(0) == [("node_lost", "gpu02 is lost")]
    lost = [entry["node"] for entry in states[1]["roster"] if entry.get("lost")]
    assert lost == ["gpu02"]
    assert [gang.nodes[seat].state()["state"] for seat in (0, 2)] == ["SUCCEEDED"] * 2
    assert [part["node"] for part in gang.record(2)["parts"]] == ["gpu01", "gpu03"]


@VARIANT  # of what the transcripts of the gang prove without processes
def test_a_spare_that_is_not_needed_spoils_nothing(node: Make) -> None:
    """It has waited, and ends well; one that is lost before it is called stops nobody."""
    gang = RestartGang(node, spares=2).begin()
    vanish(gang.nodes[3])
    states = gang.finish(1)

    assert [state["state"] for state in states[:3]] == ["SUCCEEDED"] * 3
    assert states[2]["reason"] == "this spare was not needed"
    for state in states[:3]:
        assert [entry["node"] for entry in state["roster"] if entry.get("lost")] == ["gpu04"]
    assert [part["node"] for part in gang.record(2)["parts"]] == ["gpu01", "gpu02"]


@VARIANT  # of what the transcripts of the gang prove without processes
def test_who_is_lost_is_seen_before_the_pause(node: Make) -> None:
    """Who watches has no patience with a node that SSH reaches, but that does not end its part."""
    gang = RestartGang(node, spares=1).begin()
    gang.order(1, 0, "signal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(300)")
    vanish(gang.nodes[1])
    wait_until(lambda: gang.nodes[0].state()["roster"][1].get("lost"), "it is known to be lost", every=0.005)
    first = [event["event"] for event in gang.nodes[0].events()]
    gang.settled(2, [0, 2])
    gang.finish(2)

    assert "attempt_ended" not in first


@VARIANT  # of what the transcripts of the gang prove without processes
def test_a_node_without_its_guardian_is_replaced(node: Make) -> None:
    """Its agent is there and ends its part in order, but nobody would protect another one."""
    gang = RestartGang(node, spares=1, restart={"on": ["agent_killed"]}).begin()
    os.kill(gang.nodes[1].pid("guardian"), signal.SIGKILL)
    gang.settled(2, [0, 2])
    states = gang.finish(2)

    assert gang.causes() == [("agent_killed", "gpu02: the guardian was killed")]
    assert [states[seat]["state"] for seat in (0, 1, 2)] == ["SUCCEEDED", "FAILED", "SUCCEEDED"]
    (unfit,) = [entry for entry in states[0]["roster"] if entry.get("unfit")]
    assert (unfit["node"], unfit["unfit"]) == ("gpu02", "the guardian was killed")


@VARIANT  # of what the transcripts of the gang prove without processes
def test_a_spare_that_cannot_begin_is_passed_over(node: Make) -> None:
    """Its interpreter is broken: that attempt fails, and the next spare is called."""
    gang = RestartGang(node, spares=2)
    gang.nodes[2].spec["python"] = "/nowhere/python"
    gang.begin()
    vanish(gang.nodes[1])
    gang.settled(3, [0, 3])
    states = gang.finish(3)

    assert [cause for cause, _ in gang.causes()] == ["node_lost", "node_lost"]
    assert gang.causes()[1][1].startswith("gpu03: ")
    assert [states[seat]["state"] for seat in (0, 2, 3)] == ["SUCCEEDED", "FAILED_SETUP", "SUCCEEDED"]


@VARIANT  # of what the transcripts of the gang prove without processes
def test_ports_held_for_attempts_that_came_to_nothing_are_free_again(node: Make) -> None:
    """Two spares cannot begin; the range has two ports. What never began has not failed to get on either."""
    gang = RestartGang(node, spares=3)
    gang.nodes[0].spec["ports"] = two_free_ports()
    for seat in (2, 3):
        gang.nodes[seat].spec["python"] = "/nowhere/python"
    gang.begin()
    vanish(gang.nodes[1])
    gang.settled(4, [0, 4])
    states = gang.finish(4)

    assert [states[seat]["state"] for seat in (0, 4)] == ["SUCCEEDED"] * 2
    assert [entry["progress"] for entry in states[0]["attempts"]] == [None] * 3


def two_free_ports() -> list[int]:
    """Find two neighbours that nobody has."""
    for first in range(21000 + os.getpid() % 1000, 30000, 2):
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in (first, first + 1):
                probe = stack.enter_context(contextlib.closing(socket.socket()))
                probe.bind(("0.0.0.0", port))
            return [first, first + 1]
    raise AssertionError("no two free ports")


def test_a_client_that_leaves_before_go_leaves_nothing(node: Make) -> None:
    """Also no spare."""
    gang = RestartGang(node, spares=1).prepare().join()
    for one in gang.nodes:
        assert one.session is not None
        one.session.close()
    states = gang.ended()

    assert {state["state"] for state in states} == {"STOPPED"}


@VARIANT  # of what the transcripts of the gang prove without processes
def test_a_spare_that_is_called_in_before_the_clients_go_waits_for_the_gangs(node: Make) -> None:
    """The first attempt fails before the client has told the spare: its GO, with the old port, counts no more."""
    gang = RestartGang(node, spares=1, restart={"pause": 4.0}).prepare().join()
    spare = gang.nodes[2]
    gang.release(gang.active)
    gang.settled(1, [0, 1])
    vanish(gang.nodes[1])
    wait_until(lambda: "ready" in [event["event"] for event in spare.events()], "the spare's gate")
    gang.release([spare])
    before = spare.state()
    gang.settled(2, [0, 2])
    states = gang.finish(2)

    assert (before["state"], before["attempt"], before["master"]) == ("WAITING", 2, None)
    assert [states[seat]["state"] for seat in (0, 2)] == ["SUCCEEDED"] * 2
    assert states[2]["master"] == states[0]["master"]
    assert gang.causes() == [("node_lost", "gpu02 is lost")]


FATES = [
    ("raise ValueError('bad loss')", {}, "code", []),
    (KILL, {"on": ["node_lost"]}, "reason", []),
    ("raise RuntimeError('CUDA error: uncorrectable ECC error')", {"max": 1}, "max", ["gpu"]),
    pytest.param(
        "raise RuntimeError('Connection closed by peer')", {"max": 1}, "max", ["network"], marks=VARIANT
    ),
]


@pytest.mark.parametrize(("code", "wish", "gave_up", "causes"), FATES)
def test_what_is_not_tried_again(
    node: Make, code: str, wish: dict[str, Any], gave_up: str, causes: list[str]
) -> None:
    """An error of the script, a reason that is not named, and whatever has been tried often enough."""
    gang = RestartGang(node, 1, restart=wish).begin()
    gang.order(1, 0, code)
    gang.order(2, 0, code)
    (state,) = gang.ended()

    assert (state["state"], state["gave_up"]) == ("FAILED", gave_up)
    assert [cause for cause, _ in gang.causes()] == causes
    assert gang.record(0)["gave_up"] == gave_up


@pytest.mark.parametrize("lost", [1, pytest.param(0, marks=VARIANT)])
def test_an_error_of_the_script_is_not_tried_again_when_a_node_is_lost_after_it(
    node: Make, lost: int
) -> None:
    """The exception was written while the node still answered; the same if it is the hub that is lost."""
    gang = RestartGang(node, spares=1).begin()
    gang.order(1, lost, "signal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(300)")
    gang.order(1, 1 - lost, "raise ValueError('bad loss')")
    fallen, other = gang.nodes[lost], gang.nodes[1 - lost]
    wait_until(lambda: "stopping" in [event["event"] for event in fallen.events()], "the stop", every=0.005)
    vanish(fallen)
    gang.ended()

    assert (other.state()["gave_up"], other.state()["attempt"]) == ("code", 1)


def test_three_attempts_without_progress_are_enough(node: Make) -> None:
    """A new file that matters counts as progress, whatever else is written does not."""
    gang = RestartGang(node, 1, restart={"max": 9, "progress": "*.pt"}).begin()
    save = "open(os.environ['CLUSTERCTL_OUTPUT_DIR'] + '/%s', 'w').close()\n" + KILL
    gang.order(1, 0, save % "first.pt")
    for attempt in (2, 3, 4, 5):
        gang.order(attempt, 0, save % f"log{attempt}.txt")
    (state,) = gang.ended()

    assert (state["state"], state["gave_up"], state["attempt"]) == ("FAILED", "no_progress", 4)
    assert [entry["progress"] for entry in state["attempts"]] == [True, False, False]


@VARIANT  # of what the transcripts of the gang prove without processes
def test_an_attempt_that_was_over_before_anybody_looked_is_shown(node: Make) -> None:
    """Who launches wants to see why the first one failed, however quickly it did; others see the last only."""
    gang = RestartGang(node, 1).begin()
    gang.order(1, 0, KILL)
    gang.settled(2, [0])
    about = {"follow": False, "events": None}
    last, since = (
        b"".join(body for _, body in gang.nodes[0].verb("follow", logs={"ranks": None, **wish}, **about))
        for wish in ({}, {"since": 1})
    )
    gang.finish(2)

    assert (b"settled in attempt 1" in last, b"settled in attempt 2" in last) == (False, True)
    assert since.index(b"settled in attempt 1") < since.index(b"settled in attempt 2")


def test_a_stop_in_the_pause_is_the_end(node: Make) -> None:
    """And the reason is the stop, not the failure before it."""
    gang = RestartGang(node, restart={"pause": 30.0, "warm": 0.0}).begin()
    gang.order(1, 1, KILL)
    wait_until(
        lambda: "restart 1 of 3 in 30 s: rank 1 on gpu02, killed" in gang.nodes[1].state()["reason"],
        "the pause",
    )
    gang.nodes[1].verb("stop", grace=1.0, reason="stopped by ann@laptop")
    states = gang.ended()

    assert [(state["state"], state["reason"]) for state in states] == [
        ("STOPPED", "stopped by ann@laptop")
    ] * 2


@VARIANT  # of what the transcripts of the gang prove without processes
def test_a_stop_while_it_runs_is_the_end(node: Make) -> None:
    """Nothing is tried again after it, however the workers end."""
    gang = RestartGang(node, spares=1).begin()
    gang.nodes[0].verb("stop", grace=0.5, reason="stopped by ann@laptop")
    states = gang.ended()

    assert [state["state"] for state in states] == ["STOPPED", "STOPPED", "SUCCEEDED"]
    assert {state["attempt"] for state in states} == {1}


def test_the_time_limit_is_that_of_all_attempts(node: Make) -> None:
    """A new attempt does not begin to count anew."""
    gang = RestartGang(node, 1, time_limit=15.0, grace=0.5, restart={"pause": 4.0}).begin()
    gang.order(1, 0, KILL)
    gang.settled(2, [0])
    states = gang.ended()
    events = gang.nodes[0].events()
    first, second = (event["time"] for event in events if event["event"] == "go_received")
    (limit,) = [
        event["time"]
        for event in events
        if "time limit" in str(event.get("reason")) and event["event"] == "stopping"
    ]

    assert {state["state"] for state in states} == {"TIMEOUT"}
    assert first + 14.5 < limit < second + 15


ESCAPES = """
code = "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); os.setsid(); print(1); time.sleep(300)"
child = subprocess.Popen([sys.executable, "-uc", code], stdout=subprocess.PIPE)
child.stdout.readline()
place = os.environ["GANG_MARK"] + "/escaped." + os.environ["RANK"]
open(place + ".new", "w").write("%d %d" % (os.getpid(), child.pid))
os.rename(place + ".new", place)
"""
IGNORES = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + ESCAPES + "time.sleep(300)"


def test_nothing_of_the_old_attempt_lives_when_the_new_one_begins(node: Make) -> None:
    """A worker that ignores SIGTERM, and children in sessions of their own, one of which outlives its torchrun."""
    gang = RestartGang(node).begin()
    gang.order(1, 0, IGNORES)
    wait_until((gang.orders / "escaped.0").exists, "the child")
    gang.order(1, 1, ESCAPES + KILL)
    events = [one.rundir / "events.jsonl" for one in gang.nodes]
    wait_until(lambda: any('"event": "attempt",' in path.read_text() for path in events), "the next attempt")
    pids = [int(word) for rank in (0, 1) for word in (gang.orders / f"escaped.{rank}").read_text().split()]
    alive = [pid for pid in pids if is_alive(pid)]
    gang.settled(2, [0, 1])
    gang.finish(2)

    assert (len(pids), alive) == (4, [])


def is_alive(pid: int) -> bool:
    """Tell whether a process runs."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat.rpartition(b")")[2].split()[0] not in (b"Z", b"X")


@VARIANT  # of what the transcripts of the gang prove without processes
def test_gates_start_in_the_pause_and_a_stop_ends_them(node: Make) -> None:
    """They import torch while the pause runs; GO comes when it is over, and not after a stop."""
    gang = RestartGang(node, restart={"pause": 30.0, "warm": 29.0}).begin()
    gang.order(1, 1, KILL)
    first = gang.nodes[0]
    wait_until(lambda: len([event for event in first.events() if event["event"] == "ready"]) == 2, "the gate")
    ready = first.state()
    gang.nodes[1].verb("stop", grace=1.0, reason="stopped by ann@laptop")
    states = gang.ended()

    assert (ready["state"], ready["attempt"], ready["master"]) == ("WAITING", 2, None)
    assert ready["reason"].startswith("restart 1 of 3 in 30 s: ")
    assert [(state["state"], state["reason"]) for state in states] == [
        ("STOPPED", "stopped by ann@laptop")
    ] * 2
    assert len([event for event in first.events() if event["event"] == "go_received"]) == 1
