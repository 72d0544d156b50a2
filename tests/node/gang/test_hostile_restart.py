"""A hostile member of a run that its nodes start again: it costs itself; the others find each other and go on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from gangs import GangRun
from hostile.member import Hub as HostileHub
from hostile.member import Line, Peer
from noderun import NodeRun
from restarting import RestartGang, vanish
from variants import first

Make = Callable[..., NodeRun]
LIMITS = {"overdue_limit": 5.0, "hub_limit": 3.0}
NOW = time.time()
END = {"state": "FAILED", "reason": "so I say", "time": NOW, "stopped_at": None, "failures": []}
NO_PROGRESS = [
    {
        "attempt": number,
        "reason": "code",
        "node": "gpu02",
        "text": "",
        "began": NOW,
        "ended": NOW,
        "progress": False,
    }
    for number in (1, 2, 3)
]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Hang up in the end."""
    with ExitStack() as stack:
        yield stack


def course(gang: GangRun, attempt: Any = 1, ranks: Any = None) -> Any:
    """Write what a member tells of the whole run."""
    roster = [dict(entry) for entry in gang.nodes[0].spec["roster"]]
    for entry in roster:
        if ranks is not None:
            entry["node_rank"] = ranks.get(entry["slot"])
    return {"roster": {"attempt": attempt, "entries": roster, "history": []}}


# What a spare tells the next hub, which gives it away.
HELLOS: dict[str, dict[str, Any]] = {
    "attempt a million": {"attempt": 10**6},
    "a rank for two": {"ranks": {3: 0, 2: 0}},
}


@pytest.mark.parametrize("name", first(1, HELLOS))
def test_what_cannot_be_said_to_the_next_hub_costs_its_sender(
    node: Make, stack: ExitStack, name: str
) -> None:
    """The hub is lost; one tells the next hub what cannot be; it is lost, and the others go on."""
    gang = RestartGang(node, spares=3, absent=[3], **LIMITS)
    spec = gang.nodes[3].spec

    def greet(line: Line, message: dict[str, Any]) -> None:
        if message["kind"] == "welcome" and line is not liar.lines[0]:
            line.say({"kind": "hello", "part": END, "attempt": 1, **course(gang, **HELLOS[name])})

    liar = Peer(spec["run"], gang.token, 3, "gpu04", greet)
    stack.callback(liar.close)
    gang.prepare()
    gang.doors.insert(3, [3, "127.0.0.1", 9])
    liar.join(gang.doors[0][2])
    gang.join().go()
    vanish(gang.nodes[0])
    liar.join(gang.doors[1][2], gang.doors[1][1])
    gang.settled(2, [1, 2])
    places = [(one.state()["attempt"], one.state()["node_rank"]) for one in gang.nodes[1:3]]
    roster = {entry["slot"]: entry for entry in gang.nodes[1].state()["roster"]}
    for rank in (0, 1):
        gang.order(2, rank, "pass")
    liar.close()
    states = gang.ended()

    assert places == [(2, 1), (2, 0)]
    assert [roster[seat].get("lost", False) for seat in (0, 1, 2)] == [True, False, False]
    assert "it sent a malformed message (hello" in roster[3].get("reason", "")
    assert [state["state"] for state in states[1:]] == ["SUCCEEDED"] * 3
    assert gang.record(1) == gang.record(2) == gang.record(4)


# What the next hub, which is hostile, says to those who come to it.
LEADS: dict[str, Callable[[RestartGang], dict[str, Any]]] = {
    "the same attempt": lambda gang: {"kind": "next_attempt", "time_left": None, **course(gang)},
    "nothing": lambda _: {"kind": "welcome"},
    "a pause without end": lambda gang: {
        "kind": "pause",
        "seconds": 1e308,
        "entry": NO_PROGRESS[0],
        **course(gang),
    },
}


@pytest.mark.parametrize("name", first(1, LEADS))
def test_a_hostile_next_hub_is_left(node: Make, stack: ExitStack, name: str) -> None:
    """Those who follow it get nothing or nonsense from it; they leave it, name it, and the next one leads."""
    gang = RestartGang(node, spares=3, absent=[1], **LIMITS)

    def lead(line: Line, message: dict[str, Any]) -> None:
        if message["kind"] == "hello":
            line.say(LEADS[name](gang))

    run = gang.nodes[0].spec["run"]
    heir = HostileHub(run, gang.token, "127.0.0.1", lead)
    liar = Peer(run, gang.token, 1, "gpu02")
    stack.callback(heir.close)
    stack.callback(liar.close)
    gang.prepare()
    gang.doors.insert(1, [1, "127.0.0.1", heir.port])
    liar.join(gang.doors[0][2])
    gang.join().go()
    vanish(gang.nodes[0])
    gang.settled(2, [2, 3])
    roster = {entry["slot"]: entry for entry in gang.nodes[2].state()["roster"]}
    for rank in (0, 1):
        gang.order(2, rank, "pass")
    states = gang.ended()

    assert [state["state"] for state in states[1:]] == ["SUCCEEDED"] * 3
    assert roster[1]["lost"] is True
    assert "it " in roster[1]["reason"]
    assert gang.record(2) == gang.record(3) == gang.record(4)


# What a hostile node 0 says while attempt 1 runs.
ORDERS: dict[str, Callable[[RestartGang], dict[str, Any] | str]] = {
    "lost are you": lambda _: {"kind": "lost", "slot": 1, "why": ""},
    "a pause without end": lambda gang: {
        "kind": "pause",
        "seconds": 1e308,
        "entry": NO_PROGRESS[0],
        **course(gang),
    },
    "another run's roster": lambda _: {
        "kind": "next_attempt",
        "time_left": None,
        "roster": {"attempt": 2, "entries": [], "history": []},
    },
    "no address": lambda _: {"kind": "go", "master_addr": "$(reboot)", "master_port": 70000},
}


def test_a_hub_that_calls_the_honest_lost_ends_the_run_in_order(node: Make, stack: ExitStack) -> None:
    """Who is lost is for the hub to say, so it can part the others; then they end, with a record, and nobody waits."""
    gang = RestartGang(node, spares=2, absent=[0], **LIMITS)
    liar = HostileHub(gang.nodes[0].spec["run"], gang.token)
    stack.callback(liar.close)
    gang.prepare()
    gang.doors.insert(0, [0, "127.0.0.1", liar.port])
    gang.join().go()
    for seat in (1, 2, 3):
        liar.say({"kind": "lost", "slot": seat, "why": "so I say"})
    states = gang.ended()

    assert {state["gave_up"] for state in states} <= {"nodes", "majority"}, states
    for seat in (1, 2, 3):
        (part,) = [part for part in gang.record(seat)["parts"] if part["node"] == "gpu01"]
        assert (part["state"], part["reason"]) == ("LOST", "it reports that this node is lost")


@pytest.mark.parametrize("name", first(1, ORDERS))
def test_the_run_goes_on_without_a_hostile_node_0(node: Make, stack: ExitStack, name: str) -> None:
    """A message that cannot be makes it one that is lost; the lowest seat that is left leads."""
    gang = RestartGang(node, spares=2, absent=[0], **LIMITS)
    liar = HostileHub(gang.nodes[0].spec["run"], gang.token)
    stack.callback(liar.close)
    gang.prepare()
    gang.doors.insert(0, [0, "127.0.0.1", liar.port])
    gang.join().go()
    for line in [liar.lines[1]] if name == "lost are you" else list(liar.lines.values()):
        line.say(ORDERS[name](gang))
    if name == "lost are you":
        liar.close()  # the others had no reason to leave it
    gang.settled(2, [1, 2])
    for rank in (0, 1):
        gang.order(2, rank, "pass")
    states = gang.ended()

    assert [state["state"] for state in states] == ["SUCCEEDED"] * 3
    assert gang.causes(1) == [("node_lost", "gpu01 is lost")]
    assert gang.record(1) == gang.record(2) == gang.record(3)
