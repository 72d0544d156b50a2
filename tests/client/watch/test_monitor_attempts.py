"""What a watcher makes of a run's attempts: reported once, and what is settled moves no one any more."""

from __future__ import annotations

import errno
import time
from dataclasses import replace
from typing import Any, NoReturn

import pytest
from waiting import HANG

from clusterctl.cli.actions.logs import LogQuery
from clusterctl.client.rpc.cluster import Cluster
from clusterctl.client.rpc.tasks import RunHandle, await_event
from clusterctl.client.watch.follower import NodeEvent, NodeStreams, StateChange
from clusterctl.client.watch.logs import LiveReader
from clusterctl.client.watch.monitor import AttemptTracker, MonitorOptions, NodeReport, RunMonitor
from clusterctl.client.watch.streams import StreamEnd
from clusterctl.errors import StartError
from clusterctl.plans.runs.state import NodeState, parse_attempts, parse_state
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.inventory.parse import parse_inventory

NODES = parse_inventory("cluster: c\nnodes: [{host: gpu01}, {host: gpu02}, {host: gpu03}]", "-").nodes


def state(
    attempt: int, *ranks: int | None, word: str = "RUNNING", lost: str = "", resumed: str = ""
) -> NodeState:
    """Build a node's state with this roster."""
    roster = [
        {"slot": seat, "node": node.name, "node_rank": rank, "lost": node.name == lost}
        for seat, (node, rank) in enumerate(zip(NODES, ranks, strict=True))
    ]
    about = {"run": "r", "nnodes": 2, "slots": 3, "gang": True, "attempt": attempt}
    return parse_state(Untrusted({**about, "state": word, "roster": roster, "resumed": resumed}))


def pausing(attempt: int) -> dict[str, Any]:
    """Build the event that announces another attempt."""
    return {"event": "pausing", "attempt": attempt, "reason": "gpu02 is lost", "seconds": 2.0}


def test_each_attempt_is_reported_once() -> None:
    """Whichever node reports so first; the spare that comes in is named."""
    said: list[str] = []
    heard = AttemptTracker({}, said.append)

    for known in (state(1, 0, 1, None), state(1, 0, 1, None, lost="gpu02")):
        assert not heard.on_state({"gpu01": known}, known)
    assert [heard.on_event(Untrusted(pausing(1))) for _ in range(3)] == [
        True,
        False,
        False,
    ]
    assert heard.is_superseded(1)
    assert not heard.is_superseded(2)
    assert heard.is_not_participating("gpu02"), "it is lost, though its rank is not given away yet"
    second = state(2, 0, None, 1, lost="gpu02")
    assert [heard.on_state({"gpu01": second}, second) for _ in range(2)] == [True, False]
    heard.on_idle()
    assert said == [
        "attempt 1: gpu02 is lost; attempt 2 begins in 2 s",
        "attempt 2 begins on gpu01, gpu03 (spare, node 1)",
    ]


def test_a_spare_that_has_its_rank_before_the_attempt_begins_is_named_as_one() -> None:
    """A node may report the ranks of the next attempt while it is still in the pause after this one."""
    said: list[str] = []
    heard = AttemptTracker({}, said.append)

    for known in (
        state(1, 0, 1, None),
        state(1, 0, None, 1, lost="gpu02"),
        state(2, 0, None, 1, lost="gpu02"),
    ):
        heard.on_state({"gpu01": known}, known)
    heard.on_idle()
    assert said == ["attempt 2 begins on gpu01, gpu03 (spare, node 1)"]


def test_what_becomes_of_checkpoints_is_reported_and_not_for_each_of_them() -> None:
    """The first that is safe or skipped in each attempt, each that is lost, and what an attempt resumes from."""
    said: list[str] = []
    watch = MonitorOptions("r", NODES, {}, {})
    follower = RunMonitor(Cluster(said.append), watch, show=lambda _: None, notice=said.append)
    first = state(1, 0, 1, None)
    follower._on_update(StateChange("gpu01", first))

    def report(name: str, word: str, **facts: Any) -> None:
        event = {"event": "checkpoint", "name": name, "state": word, "of": 2, "copies": 2, "bytes": 2_000_000}
        follower._on_update(NodeEvent("gpu01", Untrusted({**event, **facts})))

    for number in range(3):
        report(f"step-{number}", "safe")
        report(f"skip-{number}", "skipped", note="a newer one came while another was being copied")
    report("step-2", "lost", note="step-1 is left")
    report("step-3", "", note="No space left on device")
    follower._on_update(NodeEvent("gpu01", Untrusted(pausing(1))))
    second = state(2, 0, None, 1, lost="gpu02", resumed="step-1")
    follower._on_update(StateChange("gpu01", second))
    follower._on_update(NodeEvent("gpu01", Untrusted({"event": "resume", "name": "step-1", "files": 3})))
    follower._attempts.on_idle()

    assert said == [
        "checkpoint step-0 is safe: 2 nodes, 2 copies, 2.0 MB",
        "checkpoint skip-0 was skipped: a newer one came while another was being copied",
        "checkpoint step-2 is lost: step-1 is left",
        "gpu01: No space left on device",
        "attempt 1: gpu02 is lost; attempt 2 begins in 2 s",
        "attempt 2 begins on gpu01, gpu03 (spare, node 1), from checkpoint step-1",
    ]


def test_who_comes_late_is_reported_in_order() -> None:
    """The state comes first then, and after it the events and the lines of the attempt before: these stand first."""
    said: list[str] = []
    heard = AttemptTracker({}, said.append)

    third = state(3, 0, None, 1, lost="gpu02", word="WAITING")
    assert heard.on_state({"gpu01": third}, third)
    heard.on_idle()
    for number in (1, 2):
        assert heard.on_event(Untrusted(pausing(number)))
    for attempt in (1, 2):
        heard.on_lines(f"attempt-{attempt}/rank-0.out")
    assert said == []
    heard.on_lines("attempt-3/rank-0.out")
    heard.flush_notices()
    assert said == [
        "attempt 1: gpu02 is lost",
        "attempt 2: gpu02 is lost; attempt 3 begins in 2 s",
        "attempt 3 begins on gpu[01,03]",
    ]


def test_why_an_attempt_ended_is_reported_before_the_next_even_if_its_events_come_late() -> None:
    """A run is attached to while it restarts: its new state comes first, and the events of a slow node much later."""
    said: list[str] = []
    watch = MonitorOptions(
        "r", NODES, {}, {}, known_states={node.name: state(1, 0, 1, None) for node in NODES}
    )
    attached = RunMonitor(Cluster(said.append), watch, show=lambda _: None, notice=said.append)
    ended = [{"attempt": number, "text": "gpu02 is lost: no answer"} for number in (1, 2)]
    third = replace(
        state(3, 0, None, 1, lost="gpu02"), attempts=parse_attempts(Untrusted({"attempts": ended}))
    )

    for now in (state(2, 0, None, 1, lost="gpu02", word="WAITING"), third):
        attached._on_update(StateChange("gpu01", now))
    attached._attempts.on_idle()
    for number in (1, 2):
        attached._on_update(NodeEvent("gpu01", Untrusted(pausing(number))))
    attached._attempts.flush_notices()

    assert said == [
        "attempt 1: gpu02 is lost: no answer",
        "attempt 2 begins on gpu[01,03]",
        "attempt 2: gpu02 is lost: no answer",
        "attempt 3 begins on gpu[01,03]",
    ]


def test_who_comes_later_is_not_moved_by_what_is_settled() -> None:
    """The events of the first attempt are read again; none of them is a failure of the second."""
    said: list[str] = []
    now = state(2, 0, 1, None)
    watch = MonitorOptions("r", NODES, {}, {}, known_states={node.name: now for node in NODES})
    attached = RunMonitor(Cluster(said.append), watch, show=lambda _: None, notice=said.append)
    killed = {"event": "rank_exited", "rank": 1, "exit": None, "signal": 9, "time": 5.0}

    attached._on_update(StateChange("gpu02", now))
    for event in (killed, {"event": "stopping", "reason": "gpu02: rank 1"}, pausing(1)):
        attached._on_update(NodeEvent("gpu02", Untrusted(event)))
    assert said == []
    attached._on_update(NodeEvent("gpu02", Untrusted({"event": "attempt", "attempt": 2})))
    attached._on_update(NodeEvent("gpu02", Untrusted(killed)))
    assert said == ["gpu02: rank 1 failed; the nodes are ending this attempt"]


def test_an_attempt_that_is_over_is_followed_to_its_end() -> None:
    """A node that has sent all of it is not asked again, though its run goes on; of the one that runs it is."""
    for wanted, over in ((1, True), (2, False), (None, False)):
        about = {"ranks": None, "tail": None, "grep": None, "stream": None, "since": None}
        wish = LogQuery(**about, follow=True, attempt=wanted, show_times=False, as_json=False).request()
        onlooker = LiveReader(RunHandle(Cluster(print), "r", NODES, {}), wish, notice=print)
        onlooker._streams.reopen = lambda *_: None  # type: ignore[method-assign]  # there is no one to ask
        onlooker._on_update(StateChange("gpu02", state(2, 0, 1, None)))
        assert onlooker._has_ended("gpu02", None) is over
        onlooker._streams.close()


class Refusing(Cluster):
    """A machine that has no descriptor left."""

    def connection(self, node: Node) -> NoReturn:
        """Refuse as the system does."""
        raise OSError(errno.EMFILE, "Too many open files", node.name)


def test_a_stream_that_our_own_system_refuses_ends_with_its_reason() -> None:
    """No one waits for an answer that cannot come, and no thread ends with a traceback."""
    wish = {"events": None, "logs": None}
    streams = NodeStreams(
        RunHandle(Refusing(print), "r", NODES[:1], {}), wish, notice=print, longest_pause=1.0
    )
    streams.open_all()
    ends, until = [], time.monotonic() + HANG
    while not ends and time.monotonic() < until:
        ends = [update for update in streams.updates(0.1) if isinstance(update, StreamEnd)]
    streams.close()
    assert [(end.node, end.error.code if end.error else "") for end in ends] == [("gpu01", "CC-USE-080")]


class Frames:
    """A session on which the agent has reported some events."""

    stderr = ""

    def __init__(self, *events: str) -> None:
        self.said = [(Untrusted({"event": event}), b"") for event in events]

    def receive(self, _timeout: float) -> Any:
        """Give the next of them."""
        return self.said.pop(0)


def test_a_run_that_is_over_before_a_slow_node_begins_has_begun() -> None:
    """A program that fails at once ends the run on all nodes; only for torchrun that is a start that failed."""
    session: Any = Frames("ended")
    assert await_event(session, "go_received", 1.0, node="gpu02", or_ended=True) == {}
    session = Frames("ended")
    with pytest.raises(StartError):
        await_event(session, "go_received", 1.0, node="gpu02")


@pytest.mark.parametrize("odd", [[9], {}, True, 1.5, 10**30, "9"], ids=repr)
def test_an_end_that_makes_no_sense_has_no_signal(odd: object) -> None:
    """A node that sends nonsense for a signal is read as one that sent none."""
    report = NodeReport(NODES[0])
    event = {"event": "rank_exited", "rank": 1, "exit": None, "signal": odd, "time": 5.0}
    assert report.on_event(Untrusted(event)) is None


def test_another_world_size_is_reported_at_once_and_once() -> None:
    """Three nodes send the same: one line, while the run goes on."""
    said: list[str] = []
    monitor = RunMonitor(
        Cluster(said.append), MonitorOptions("r", NODES, {}, {}), show=lambda _: None, notice=said.append
    )
    for node in NODES:
        monitor._on_update(NodeEvent(node.name, Untrusted({"event": "world_size", "seen": 2, "planned": 4})))
    assert [line.partition(": workers")[0] for line in said] == ["gpu01: CC-RUN-051"]
