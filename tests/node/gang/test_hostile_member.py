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
from hostile.member import Hub, Peer, What
from noderun import NodeRun
from variants import first
from waiting import wait_until

Make = Callable[..., NodeRun]
HUGE = "1" + "0" * 400
MEMORY = 60 << 10  # KiB that an agent may grow by: a message of the largest size and its parts, for a moment
LIMITS = {"gang_limit": 3.0, "overdue_limit": 4.0, "hub_limit": 3.0}
NOW = time.time()
PART = {"node": "gpu03", "node_rank": 2, "state": "FAILED", "reason": "mine", "time": NOW, "stopped_at": None}

# What is sent, and the kind of message that the record must name; "" where no kind can be told.
TO_THE_HUB: dict[str, tuple[What, str]] = {
    "beat of a huge time": (f'{{"kind": "beat", "at": {HUGE}, "time": 1}}', "number that is too large"),
    "stop with a huge grace": ({"kind": "stop", "reason": "x", "grace": 1e308, "occasion": "stop"}, "(stop:"),
    "part of no time": ({"kind": "ended", "part": {**PART, "time": "soon", "failures": []}}, "(ended:"),
    "unknown kind": ({"kind": "\x1b]0;owned\x07"}, "of no known kind"),
    "no object": ('["beat"]', "not a JSON object"),
    "depth": ("[" * 100_000, "nested too deeply"),
    "too many values": ("{" + '"a":[' + "{}," * 300_000 + "{}]}", "values"),
}


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Hang up in the end."""
    with ExitStack() as stack:
        yield stack


def memory_of(pid: int) -> int:
    """Read the most that a process has had in memory, in KiB."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return int(status.partition("VmHWM:")[2].split()[0]) if "VmHWM:" in status else 0


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
        wait_until(lambda: self.liar.has_heard("welcome"), "a welcome")
        self.gang.join().go()
        return self

    def ended(self) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
        """Wait until nothing is left; give the states of the honest, and the parts by node of the record of all."""
        states = self.gang.ended()
        records = [self.gang.record(rank) for rank in (0, 1)]
        assert records[0] == records[1]
        assert records[0]["whole"] is True
        assert len(json.dumps(records[0])) < 1 << 20
        for node in self.gang.present:
            assert "Traceback" not in node.agent_log()
        return states, {part["node"]: part for part in records[0]["parts"]}


@pytest.mark.parametrize("attack", first(1, TO_THE_HUB))
def test_a_bad_message_to_the_hub_costs_its_sender(node: Make, stack: ExitStack, attack: str) -> None:
    """All end, all keep the same record, and it names the node that sent it, and what; nobody else."""
    what, kind = TO_THE_HUB[attack]
    run = WithLiar(node, stack).begin()
    agent = run.gang.nodes[0].pid("agent")
    before, after = memory_of(agent), 0
    run.liar.say(what)
    while run.gang.nodes[0].is_alive():
        after = max(after, memory_of(agent))
        time.sleep(0.02)
    states, parts = run.ended()

    assert [state["state"] for state in states] == ["STOPPED"] * 2
    assert all(state["reason"].startswith("gpu03 is lost: it sent") for state in states), states
    assert kind in states[0]["reason"]
    assert "\x1b" not in states[0]["reason"]
    assert len(states[0]["reason"]) < 300
    assert [parts[name]["state"] for name in ("gpu01", "gpu02", "gpu03")] == [
        "STOPPED",
        "STOPPED",
        "LOST",
    ]
    assert after < before + MEMORY


class UnderLiar:
    """A gang of three of which gpu01, the hub, is hostile."""

    def __init__(self, node: Make, stack: ExitStack, **changes: Any) -> None:
        self.gang = GangRun(node, 3, absent=[0], **{**LIMITS, **changes})
        self.run = self.gang.nodes[0].spec["run"]
        self.liar = Hub(self.run, self.gang.token)
        stack.callback(self.liar.close)
        self.gang.port = self.liar.port
        self.gang.prepare().join().go()

    def ended(self) -> list[dict[str, Any]]:
        """Wait until nothing is left; give the records of the honest."""
        self.gang.ended()
        for node in self.gang.present:
            assert "Traceback" not in node.agent_log()
        return [self.gang.record(rank) for rank in (1, 2)]


@pytest.mark.parametrize(
    "what",
    first(
        1,  # read in memory, each: test_messages.py, and transcripts named malformed
        [
            f'{{"kind": "stop", "reason": "x", "grace": {HUGE}, "occasion": "stop"}}',
            '{"kind": "stop", "reason": "x", "grace": 1e308, "occasion": "stop"}',
            '{"kind": "beat", "at": "now"}',
            '{"kind": "next_attempt"}',
            '{"kind": "lost", "slot": 99, "why": ""}',
            '{"kind": "ended", "part": {}}',
        ],
    ),
)
def test_a_bad_message_of_the_hub_costs_the_hub(node: Make, stack: ExitStack, what: str) -> None:
    """While all are running: every peer ends its part, keeps a record, and names node 0."""
    under = UnderLiar(node, stack)
    under.liar.say(what)
    for record in under.ended():
        assert record["parts"][0]["node"] == "gpu01"
        assert record["parts"][0]["reason"].startswith("it sent a malformed message")
    assert all(state["reason"].startswith("node 0 (gpu01) is lost: it sent") for state in under.gang.ended())
