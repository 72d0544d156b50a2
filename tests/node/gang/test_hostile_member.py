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
ROW = {
    "rank": 2,
    "exit": 1,
    "signal": None,
    "time": NOW,
    "last_at": NOW,
    "suspended": False,
    "tracebacks": [],
    "tail": [],
}
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


@pytest.mark.parametrize("attack", first(2, TO_THE_HUB))
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


@pytest.mark.parametrize("attack", first(1, ["beat of a huge time", "stop with a huge grace"]))
def test_a_bad_message_before_go(node: Make, stack: ExitStack, attack: str) -> None:
    """Its sender is away when GO comes: the run ends at once, and it is lost, no other."""
    run = WithLiar(node, stack)
    run.gang.prepare()
    run.liar.join(run.gang.port).say(TO_THE_HUB[attack][0])
    wait_until(run.liar.left.is_set, "the hub has read it, and closed the connection")
    master = run.gang.join().nodes[0]
    assert master.session is not None
    master.session.send({"do": "go", "master_port": master.port})
    _, parts = run.ended()

    assert parts["gpu03"]["state"] == "LOST"
    assert parts["gpu03"]["reason"].startswith(
        "it disconnected before the start: it sent a malformed message"
    )
    assert parts["gpu02"]["state"] == "STOPPED"


@pytest.mark.parametrize("attack", first(1, ["part of no time", "stop with a huge grace"]))
def test_a_bad_message_as_the_last_one(node: Make, stack: ExitStack, attack: str) -> None:
    """The others have ended well and wait for it alone: they keep how they ended, name it, and nobody stays."""
    run = WithLiar(node, stack).begin()
    for rank in (0, 1):
        run.gang.tell(rank, "pass")
    wait_until(lambda: run.gang.states() == ["SUCCEEDED"] * 2, "their ends")
    run.liar.say(TO_THE_HUB[attack][0])
    states, parts = run.ended()

    assert [state["state"] for state in states] == ["SUCCEEDED"] * 2
    assert parts["gpu03"]["state"] == "LOST"
    assert TO_THE_HUB[attack][1] in parts["gpu03"]["reason"]


def test_a_large_lie_is_kept_small(node: Make, stack: ExitStack) -> None:
    """A part with thousands of failures and endless words is cut to what one node can have; the record stays small."""
    run = WithLiar(node, stack).begin()
    rows = [
        {**ROW, "tail": ["y" * 3000] * 40, "tracebacks": [{"at": NOW, "lines": ["x" * 3000] * 3}] * 9}
    ] * 12
    run.liar.say(
        {
            "kind": "ended",
            "part": {**PART, "node": "gpu01", "node_rank": 0, "failures": rows, "reason": "z" * 9999},
        }
    )
    _, parts = run.ended()

    assert sorted(parts) == ["gpu01", "gpu02", "gpu03"]
    told = parts["gpu03"]
    assert (told["state"], told["node_rank"], len(told["failures"])) == ("FAILED", 2, 5)
    assert len(told["reason"]) == 4096
    assert all(len(line) == 400 for failure in told["failures"] for line in failure["tail"])
    assert all(len(failure["tail"]) == 20 and len(failure["tracebacks"]) == 4 for failure in told["failures"])


def test_who_never_ends_is_given_up_after_a_stop(node: Make, stack: ExitStack) -> None:
    """It answers every beat and reports no end: the others wait for it as long as any node can need, and no longer."""
    run = WithLiar(node, stack).begin()
    run.gang.tell(1, "raise ValueError('bad loss')")
    _, parts = run.ended()

    assert parts["gpu02"]["failures"][0]["tail"][-1] == "ValueError: bad loss"
    assert (parts["gpu03"]["state"], parts["gpu03"]["reason"]) == ("LOST", "it did not end after the stop")


def record_of(run: str, **changes: Any) -> dict[str, Any]:
    """Write the record of a run of three that ended well."""
    end = {"reason": "", "time": NOW, "stopped_at": None, "failures": []}
    parts = [{"node": f"gpu0{rank + 1}", "node_rank": rank, "state": "SUCCEEDED", **end} for rank in range(3)]
    return {"run": run, "hub": "gpu01", "whole": True, "stop": None, "parts": parts, **changes}


# What a hostile hub says when the others have ended well, and why they do not believe it.
VERDICTS: dict[str, tuple[Callable[[str], What], str]] = {
    "nothing at all": (lambda _: {"kind": "welcome"}, "it did not report how the run ended"),
    "another run's": (lambda _: {"record": record_of("other-1")}, "malformed message (verdict"),
    "without parts": (lambda run: {"record": record_of(run, parts=7)}, "malformed message (verdict"),
    "without us": (lambda run: {"record": record_of(run, parts=[])}, "without this node's own part"),
    "other words": (
        lambda run: {
            "record": record_of(run, parts=[{**one, "state": "FAILED"} for one in record_of(run)["parts"]])
        },
        "without this node's own part",
    ),
    "no record": (lambda _: {"record": None}, "malformed message (verdict"),
}


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


@pytest.mark.parametrize("name", first(2, VERDICTS))
def test_a_verdict_that_is_not_true_is_not_kept(node: Make, stack: ExitStack, name: str) -> None:
    """A peer that is told nonsense of the end, or nothing, concludes with its own part, and names the hub."""
    what, why = VERDICTS[name]
    under = UnderLiar(node, stack)
    for rank in (1, 2):
        under.gang.tell(rank, "raise SystemExit(3)" if name == "nothing at all" else "pass")
    wait_until(lambda: all(under.liar.has_heard("ended", rank) for rank in (1, 2)), "their ends")
    told = what(under.run)
    assert isinstance(told, dict)
    under.liar.say({"kind": "verdict", **told})
    for rank, record in enumerate(under.ended(), 1):
        lost, own = record["parts"]
        assert (record["whole"], lost["node"], lost["state"]) == (False, "gpu01", "LOST")
        assert why in lost["reason"]
        assert (own["node"], own["state"]) == (
            f"gpu0{rank + 1}",
            "FAILED" if name == "nothing at all" else "SUCCEEDED",
        )


@pytest.mark.parametrize(
    "what",
    first(
        2,
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
