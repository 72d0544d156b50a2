"""A member that holds the run's token and lies: it ends alone what it was in, is named, and leaves nobody waiting."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from gangs import GangRun
from hostile.member import Peer, What
from noderun import NodeRun, wait_until

Make = Callable[..., NodeRun]
HUGE = "1" + "0" * 400
SLOW = 60.0  # seconds; no claim about speed, only that nobody stays for ever
MEMORY = 60 << 10  # KiB that an agent may grow by: a message of the largest size and its parts, for a moment
LIMITS = {"gang_limit": 3.0, "overdue_limit": 4.0, "hub_limit": 3.0}
NOW = time.time()
ROW = {
    "rank": 2,
    "exit": 1,
    "signal": None,
    "time": NOW,
    "last_at": NOW,
    "frozen": False,
    "said": [],
    "tail": [],
}
PART = {"node": "gpu03", "node_rank": 2, "state": "FAILED", "reason": "mine", "time": NOW, "stopped_at": None}

# What is sent, and the kind of message that the record must name; "" where no kind can be told.
TO_THE_HUB: dict[str, tuple[What, str]] = {
    "beat of a huge time": (f'{{"kind": "beat", "at": {HUGE}, "time": 1}}', ""),
    "beat without end": ('{"kind": "beat", "at": 1e999, "time": 1}', ""),
    "beat of a text": ({"kind": "beat", "at": "soon", "time": NOW}, "beat"),
    "beat of the year 10000000": ({"kind": "beat", "at": NOW, "time": 1e15}, "beat"),
    "stop with a huge grace": (f'{{"kind": "stop", "reason": "x", "grace": {HUGE}, "occasion": "stop"}}', ""),
    "stop with grace 1e308": ({"kind": "stop", "reason": "x", "grace": 1e308, "occasion": "stop"}, "stop"),
    "stop with a grace below 0": ({"kind": "stop", "reason": "x", "grace": -1, "occasion": "stop"}, "stop"),
    "stop on no occasion": ({"kind": "stop", "reason": "x", "grace": 1.0, "occasion": ["time"]}, "stop"),
    "stop without anything": ({"kind": "stop"}, "stop"),
    "part of no state": ({"kind": "ended", "part": {**PART, "state": "WELL", "failures": []}}, "ended"),
    "part of no time": ({"kind": "ended", "part": {**PART, "time": "soon", "failures": []}}, "ended"),
    "part without failures": ({"kind": "ended", "part": {**PART, "failures": "none"}}, "ended"),
    "part that is a list": ({"kind": "ended", "part": [PART]}, "ended"),
    "no part": ({"kind": "ended"}, "ended"),
    "part that says it is lost": (
        {"kind": "ended", "part": {**PART, "state": "LOST", "failures": []}},
        "ended",
    ),
    "unknown kind": ({"kind": "\x1b]0;owned\x07"}, "of no known kind"),
    "no kind": ({"kind": ["beat"]}, "of no known kind"),
    "no object": ('["beat"]', "not a JSON object"),
    "depth": ("[" * 100_000, ""),
    "too many values": ("{" + '"a":[' + "{}," * 300_000 + "{}]}", ""),
    "not JSON": ("kind: beat", ""),
}
# Well formed, but not what can be in this phase: nobody is harmed.
IGNORED: dict[str, What] = {
    "hello": {"kind": "clear", "unfit": "", "progress": True},
    "listening": {"kind": "listening", "attempt": 1, "port": 1},
    "ready": {"kind": "ready", "attempt": 1, "port": 1, "address": "192.0.2.1"},
}


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Hang up in the end."""
    with ExitStack() as stack:
        yield stack


def memory_of(pid: int) -> int:
    """Read the most that a process has had in memory, in KiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])


class WithLiar:
    """A gang of three of which gpu03 is hostile."""

    def __init__(self, node: Make, stack: ExitStack, **changes: Any) -> None:
        self.gang = GangRun(node, 3, absent=[2], **{**LIMITS, **changes})
        spec = self.gang.nodes[2].spec
        self.liar = Peer(spec["run"], self.gang.token, 2, "gpu03")
        stack.callback(self.liar.close)

    def begin(self) -> WithLiar:
        """Bring all to GO."""
        self.gang.prepare()
        self.liar.join(self.gang.port)
        wait_until(lambda: self.liar.has_heard("welcome"), SLOW, "a welcome")
        self.gang.join().go()
        return self

    def ended(self) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
        """Wait until nothing is left; give the states of the honest, and the parts by node of the record of all."""
        states = self.gang.ended(SLOW)
        records = [self.gang.record(rank) for rank in (0, 1)]
        assert records[0] == records[1]
        assert records[0]["whole"] is True
        assert len(json.dumps(records[0])) < 1 << 20
        for node in self.gang.present:
            assert "Traceback" not in node.agent_log()
        return states, {part["node"]: part for part in records[0]["parts"]}


@pytest.mark.parametrize("attack", TO_THE_HUB)
def test_a_bad_message_to_the_hub_costs_its_sender(node: Make, stack: ExitStack, attack: str) -> None:
    """All end, all keep the same record, and it names the node that sent it, and what; nobody else."""
    what, kind = TO_THE_HUB[attack]
    run = WithLiar(node, stack).begin()
    agent = run.gang.nodes[0].pid("agent")
    before = memory_of(agent)
    run.liar.say(what)
    wait_until(lambda: run.gang.nodes[0].state()["reason"] or not run.gang.nodes[0].left(), SLOW, "the end")
    states, parts = run.ended()

    assert [state["state"] for state in states] == ["CANCELLED"] * 2
    assert all(state["reason"].startswith("gpu03 is lost: it sent") for state in states), states
    assert kind in states[0]["reason"]
    assert "\x1b" not in states[0]["reason"]
    assert len(states[0]["reason"]) < 300
    assert [parts[name]["state"] for name in ("gpu01", "gpu02", "gpu03")] == [
        "CANCELLED",
        "CANCELLED",
        "LOST",
    ]
    assert before < MEMORY
