"""What `launch` shows at the end of a run and what `status`, `ps` and `attach` show later is one judgement."""

from __future__ import annotations

import time
from typing import Any

import pytest
from node_parts import NODES, RUN, part

from clusterctl.client.rpc.cluster import Cluster
from clusterctl.client.watch.follower import NodeEvent, StateChange
from clusterctl.client.watch.monitor import RETURN_LIMIT, MonitorOptions, RunMonitor
from clusterctl.console.run.verdict import render_cause
from clusterctl.plans.runs.state import NodeState
from clusterctl.plans.runs.verdict import conclude, name_state
from clusterctl.protocol.untrusted import Untrusted

GONE, SILENT = "the connection ended", "it was silent for 20 s"
KILLED = "the agent was killed by SIGKILL"
TERM = {"exit": None, "signal": 15}


def recorded(node: str, state: str, reason: str, *failures: dict[str, Any]) -> dict[str, Any]:
    """Write one node's part in the record."""
    about = {"node": node, "node_rank": int(node[-1]) - 1, "state": state, "reason": reason, "time": 13.0}
    more = {"last_seen": 10.0, "stopped_at": None} if state == "LOST" else {"stopped_at": 10.3}
    return {**about, **more, "failures": list(failures)}


def hub_record(why: str) -> dict[str, Any]:
    """Write what the hub recorded, and gpu03 too: gpu02 is lost, the others were stopped."""
    stopped = [
        recorded(node, "STOPPED", f"gpu02 is lost: {why}", {"rank": rank, **TERM, "time": 10.5})
        for node, rank in (("gpu01", 0), ("gpu03", 2))
    ]
    parts = [stopped[0], recorded("gpu02", "LOST", why), stopped[1]]
    stop = {"node": "gpu02", "reason": f"gpu02 is lost: {why}", "time": 10.2}
    return {"run": RUN, "hub": "gpu01", "whole": True, "stop": stop, "parts": parts}


def parts_with(why: str, second: NodeState | None) -> dict[str, NodeState | None]:
    """Give what the nodes report at the end, gpu02 as given."""
    first, third = (
        part(node, "STOPPED", f"gpu02 is lost: {why}", hub_record(why)) for node in ("gpu01", "gpu03")
    )
    return {"gpu01": first, "gpu02": second, "gpu03": third}


def watch(notices: list[str]) -> RunMonitor:
    """Attach to the run while it lives."""
    known: dict[str, NodeState | None] = {node.name: part(node.name, "RUNNING", "") for node in NODES}
    options = MonitorOptions(RUN, NODES, {}, {}, known_states=known)
    return RunMonitor(Cluster(notices.append), options, show=lambda _: None, notice=notices.append)


def stopping(node: str, reason: str) -> NodeEvent:
    """Build the event with which a node begins to stop."""
    return NodeEvent(node, Untrusted({"event": "stopping", "reason": reason, "time": 10.3}))


OWN_RECORD = {
    "run": RUN,
    "hub": "gpu01",
    "whole": False,
    "stop": None,
    "parts": [
        recorded("gpu01", "LOST", SILENT),
        recorded("gpu02", "STOPPED", f"node 0 (gpu01) is lost: {SILENT}", {"rank": 1, **TERM, "time": 10.6}),
    ],
}
AGENT_LOST = {"event": "agent_lost", "reason": KILLED, "time": 10.1}
NOT_RUNNING = "agent and guardian are not running"
CUT_OFF = part("gpu02", "STOPPED", f"node 0 (gpu01) is lost: {SILENT}", OWN_RECORD)


@pytest.mark.parametrize(
    ("why", "second", "event", "state", "headline"),
    [
        (GONE, part("gpu02", "FAILED", KILLED), AGENT_LOST, "LOST", KILLED),
        (GONE, part("gpu02", "LOST", NOT_RUNNING), None, "LOST", NOT_RUNNING),
        (SILENT, part("gpu02", "UNKNOWN", "the node was restarted"), None, "LOST", f"the node is lost: {SILENT}"),
        (SILENT, CUT_OFF, None, "LOST", f"the node is lost: {SILENT}"),
        (SILENT, None, None, "LOST", f"the node is lost: {SILENT}"),
    ],
    ids=["agent killed", "agent and guardian killed", "power cut, and back", "NIC down", "power cut"],
)  # fmt: skip
def test_launch_and_status_agree(
    why: str, second: NodeState | None, event: dict[str, Any] | None, state: str, headline: str
) -> None:
    """The same state, the same cause, and the same states of the nodes, from what came and from what is kept."""
    parts = parts_with(why, second)
    attached = watch([])
    if event is not None:
        attached._on_update(NodeEvent("gpu02", Untrusted(event)))
    for name, known in parts.items():
        if known is not None:
            attached._on_update(StateChange(name, known))
        else:
            attached._reports[name].lost_reason = why
    shown, kept = attached._conclude(), conclude(RUN, parts, [])

    assert kept is not None
    assert shown.state == kept.state == name_state(RUN, parts) == state
    assert shown.node_states == kept.node_states
    for verdict in (shown, kept):
        assert verdict.cause is not None
        assert render_cause(verdict.cause, RUN, "clusterctl")[0].startswith(f"gpu02: {headline}")
        assert verdict.cause.failure.node == "gpu02"


def test_a_node_that_we_lost_is_judged_by_what_the_others_recorded() -> None:
    """Its rank had failed before our own connection to it broke: that is the cause, and not the connection."""
    failed = recorded("gpu02", "FAILED", "rank 1 exited with 1", {"rank": 1, "exit": 1, "time": 10.1})
    record = hub_record(GONE)
    record.update(parts=[record["parts"][0], failed, record["parts"][2]])
    record["stop"] = {"node": "gpu02", "reason": "gpu02: rank 1 exited with 1", "time": 10.2}
    first, third = (part(node, "STOPPED", record["stop"]["reason"], record) for node in ("gpu01", "gpu03"))
    attached = watch([])
    for name, known in (("gpu01", first), ("gpu03", third)):
        attached._on_update(StateChange(name, known))
    attached._reports["gpu02"].lost_reason = GONE

    for verdict in (attached._conclude(), conclude(RUN, {"gpu01": first, "gpu02": None, "gpu03": third})):
        assert verdict is not None and verdict.cause is not None
        assert (verdict.cause.failure.node, verdict.cause.failure.rank) == ("gpu02", 1)


def test_a_node_that_the_others_lost_and_that_ended_by_itself_is_not_to_be_stopped() -> None:
    """It is received over SSH: its rank has ended with the run, and nothing is left there."""
    verdict = conclude(RUN, parts_with(SILENT, CUT_OFF))

    assert verdict is not None
    assert verdict.node_states["gpu02"] == "STOPPED"
    assert verdict.cause is not None
    assert sorted(failure.node for failure in verdict.cause.ended) == ["gpu01", "gpu03"]
    assert (verdict.unwatched, verdict.away) == ((), ())


def test_processes_are_left_only_where_some_are() -> None:
    """Agent and guardian are gone: what still runs is named, and nothing is reported where nothing does."""
    for left in ([], [{"pid": 7, "name": "python", "state": "S"}]):
        second = part("gpu02", "LOST", "agent and guardian are not running", left=left)
        verdict = conclude(RUN, parts_with(GONE, second))
        assert verdict is not None
        assert verdict.unwatched == (("gpu02",) if left else ())
        assert verdict.away == ()


@pytest.mark.parametrize(
    ("second", "state"),
    [
        (CUT_OFF, "LOST"),
        (part("gpu02", "FAILED", KILLED), "FAILED"),
        (None, "LOST"),
    ],
)
def test_without_a_record_a_run_that_no_person_stopped_is_not_cancelled(
    second: NodeState | None, state: str
) -> None:
    """A list of many runs leaves records out; what one node alone reports of the hub does not count."""
    parts: dict[str, NodeState | None] = {
        name: part(name, "STOPPED", f"gpu02 is lost: {SILENT}") for name in ("gpu01", "gpu03")
    }
    assert name_state(RUN, {**parts, "gpu02": second and part("gpu02", second.state, second.reason)}) == state
    failed = {name: part(name, "STOPPED", "gpu02: rank 1 exited with 1") for name in ("gpu01", "gpu03")}
    assert name_state(RUN, {**failed, "gpu02": part("gpu02", CUT_OFF.state, CUT_OFF.reason)}) == "FAILED"
    by_hand = {name: part(name, "STOPPED", "stopped by ann@laptop") for name in ("gpu01", "gpu02", "gpu03")}
    assert name_state(RUN, by_hand) == "STOPPED"


def test_what_one_node_reports_of_the_hub_is_that_nodes_view() -> None:
    """gpu02 is cut off and notices first: the note blames no hub that answers; then the hub names gpu02."""
    notices: list[str] = []
    attached = watch(notices)
    attached._on_update(stopping("gpu02", f"node 0 (gpu01) is lost: {SILENT}"))
    attached._on_update(stopping("gpu01", f"gpu02 is lost: {SILENT}"))
    attached._on_update(stopping("gpu03", f"gpu02 is lost: {SILENT}"))

    assert notices == [
        f"gpu02 has lost its connection to gpu01: {SILENT}",
        f"gpu02 is lost: {SILENT}; stopping all nodes",
    ]


def test_a_lost_node_is_announced_once() -> None:
    """The hub reports why the nodes stop; then that this machine does not reach the node either."""
    notices: list[str] = []
    attached = watch(notices)
    attached._on_update(stopping("gpu01", f"gpu02 is lost: {SILENT}"))
    attached._on_update(stopping("gpu03", f"gpu02 is lost: {SILENT}"))
    attached._mark_lost(attached._reports["gpu02"], SILENT)
    attached._mark_lost(attached._reports["gpu03"], GONE)
    assert notices == [
        f"gpu02 is lost: {SILENT}; stopping all nodes",
        f"gpu03 is lost: {GONE}; its processes could not be stopped from here",
    ]


def test_the_record_ends_the_watch_also_where_a_node_does_not_come_back() -> None:
    """gpu03 has ended its part and lost power: the record of the others is the end; who responds is waited for."""
    ended = {"run": RUN, "hub": "gpu01", "attempt": 1, "whole": True, "state": "SUCCEEDED", "stop": None}
    ended["parts"] = [recorded(node.name, "SUCCEEDED", "") for node in NODES]
    attached = watch([])
    attached._streams.last_received.update(dict.fromkeys(("gpu01", "gpu02", "gpu03"), 100.0))
    assert not attached._is_over(100.0)
    for node in ("gpu01", "gpu02"):
        attached._on_update(StateChange(node, part(node, "SUCCEEDED", "", ended)))
    assert not attached._is_over(101.0)
    assert not attached._is_over(104.0)  # gpu01 and gpu02 still send lines
    for node in ("gpu01", "gpu02"):
        attached._reports[node].done = True
    assert not attached._is_over(105.0)
    assert attached._is_over(107.0)
    verdict = attached._conclude()
    assert (verdict.state, verdict.exit_code) == ("SUCCEEDED", 0)


def test_a_hub_that_does_not_answer_here_either_is_lost() -> None:
    """What the other nodes report of it is then the reason of the stop, once."""
    notices: list[str] = []
    attached = watch(notices)
    attached._streams.broke_at["gpu01"] = 1.0
    for node in ("gpu02", "gpu03"):
        attached._on_update(stopping(node, f"node 0 (gpu01) is lost: {SILENT}"))

    assert notices == [f"gpu01 is lost: {SILENT}; stopping all nodes"]


def test_a_node_is_not_given_up_while_the_others_go_on() -> None:
    """However long it does not answer here; once they have ended without a record it has a short time to come back."""
    notices: list[str] = []
    attached = watch(notices)
    reopened: list[str] = []
    attached._streams.reopen = lambda name, _: reopened.append(name)  # type: ignore[method-assign]  # no node is there
    now, away = time.monotonic(), attached._reports["gpu02"]
    attached._streams.broke_at["gpu02"] = now - 7200.0
    attached._streams.last_received.update(gpu01=now, gpu03=now)
    attached._on_stream_end(away, None)
    assert (away.done, reopened, notices) == (False, ["gpu02"], [])

    for name in ("gpu01", "gpu03"):
        attached._reports[name].done = True
    attached._streams.broke_at["gpu02"] = time.monotonic() - RETURN_LIMIT / 2
    attached._on_stream_end(away, None)
    assert (away.done, reopened) == (False, ["gpu02", "gpu02"])
    attached._streams.broke_at["gpu02"] -= RETURN_LIMIT
    attached._on_stream_end(away, None)
    assert away.done
    assert notices[-1].startswith("gpu02 is lost: the connection was lost and not restored")
