"""Restarts with real processes, one path each; all other orders are replayed in memory by test_transcripts.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from noderun import NodeRun
from restarting import RestartGang, vanish
from waiting import wait_until

Make = Callable[..., NodeRun]

KILL = "os.kill(os.getpid(), signal.SIGKILL)"


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


def test_an_error_of_the_script_is_not_tried_again_when_a_node_is_lost_after_it(node: Make) -> None:
    """The exception was written while the node still answered."""
    gang = RestartGang(node, spares=1).begin()
    gang.order(1, 1, "signal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(300)")
    gang.order(1, 0, "raise ValueError('bad loss')")
    other, fallen = gang.nodes[:2]
    wait_until(lambda: "stopping" in [event["event"] for event in fallen.events()], "the stop", every=0.005)
    vanish(fallen)
    gang.ended()

    assert (other.state()["gave_up"], other.state()["attempt"]) == ("code", 1)


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
