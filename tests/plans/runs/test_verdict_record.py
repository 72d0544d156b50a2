"""The nodes' record of a run's end: read with distrust, put together, judged as a watcher would judge."""

from __future__ import annotations

from typing import Any

import pytest
from ends import cause_of, conclude_ended, read_record, recorded_cause

from clusterctl.plans.runs.state import NodeState, parse_state
from clusterctl.plans.runs.verdict import assemble_record, choose_record, conclude
from clusterctl.protocol.end_record import parse_record
from clusterctl.protocol.root_cause import restart_reason
from clusterctl.protocol.untrusted import Untrusted

RAISED = {
    "rank": 1,
    "exit": 1,
    "signal": None,
    "time": 12.6,
    "last_at": 12.5,
    "suspended": False,
    "tracebacks": [{"at": 10.0, "lines": ["Traceback (most recent call last):", "ValueError: bad loss"]}],
    "tail": ["ValueError: bad loss", "cleaning up"],
}
CLOSED = {
    "rank": 0,
    "exit": 1,
    "signal": None,
    "time": 10.2,
    "last_at": 10.2,
    "tracebacks": [
        {
            "at": 10.1,
            "lines": ["Traceback (most recent call last):", "RuntimeError: Connection closed by peer"],
        }
    ],
    "tail": ["RuntimeError: Connection closed by peer"],
}


def part(node: str, rank: int, state: str, *failures: dict[str, Any], reason: str = "") -> dict[str, Any]:
    """Write one node's part."""
    about = {"node": node, "node_rank": rank, "state": state, "reason": reason, "time": 13.0}
    return {**about, "stopped_at": None, "failures": list(failures)}


def record(*parts: dict[str, Any], whole: bool = True) -> dict[str, Any]:
    """Write a record."""
    return {"run": "a-1", "hub": "gpu01", "whole": whole, "stop": {"time": 10.3}, "parts": list(parts)}


def state(node: str, rank: int, word: str, gang: Any = True) -> NodeState:
    """Read a node's state."""
    return parse_state(
        Untrusted({"run": "a-1", "node": node, "node_rank": rank, "nnodes": 2, "state": word, "gang": gang})
    )


def test_the_cause_is_what_was_reported_first() -> None:
    """The rank that raised and died last is the cause, also when only the other node still answers."""
    reported = record(part("gpu01", 0, "FAILED", CLOSED), part("gpu02", 1, "FAILED", RAISED))
    parts = {"gpu01": state("gpu01", 0, "FAILED", reported), "gpu02": None}
    verdict = conclude_ended("a-1", parts)
    assert (verdict.state, verdict.node_states) == ("FAILED", {"gpu01": "FAILED", "gpu02": "FAILED"})
    assert verdict.cause is not None
    failure = verdict.cause.failure
    assert (failure.node, failure.rank, failure.exception) == ("gpu02", 1, "ValueError: bad loss")
    assert (failure.raised_at, failure.tail[-1]) == (10.0, "cleaning up")


def test_a_lost_hub_leaves_what_the_others_know() -> None:
    """Each of the others has only its own part: they are put together, and node 0 is lost."""
    lost = part("gpu01", 0, "LOST", reason="the connection ended")
    parts = {
        f"gpu0{rank + 1}": state(
            f"gpu0{rank + 1}",
            rank,
            "STOPPED",
            record(lost, part(f"gpu0{rank + 1}", rank, "STOPPED"), whole=False),
        )
        for rank in (1, 2)
    }
    best = assemble_record({"gpu01": None, **parts}, (), {"gpu02": 2.0, "gpu03": 2.0}, {})

    assert {one.node: one.state for one in best.parts} == {
        "gpu01": "LOST",
        "gpu02": "STOPPED",
        "gpu03": "STOPPED",
    }
    assert [(failure.node, failure.lost, failure.time) for failure in best.failures] == [
        ("gpu01", True, 11.0)
    ]
    verdict = conclude_ended("a-1", {"gpu01": None, **parts})
    assert verdict.state == "LOST"


def test_a_live_run_has_no_verdict() -> None:
    """One part has ended and recorded it, the other lives."""
    own = record(part("gpu01", 0, "SUCCEEDED"), whole=False)
    assert (
        conclude("a-1", {"gpu01": state("gpu01", 0, "SUCCEEDED", own), "gpu02": state("gpu02", 1, "RUNNING")})
        is None
    )


@pytest.mark.parametrize(
    "raw",
    [
        None, True, [], {}, {"parts": {}}, {"parts": [1, None, []]}, {"parts": [{}], "stop": 3},
        {"parts": [{"failures": 7}]}, {"parts": [{"failures": [{"tracebacks": {"a": 1}, "tail": 3}]}]},
        {"parts": [{"failures": [{"tracebacks": [{"lines": [1, "x"], "at": "y"}], "time": "z", "rank": True}]}]},
        {"parts": [{"time": float("nan"), "failures": [{"time": 10**400, "last_at": float("inf")}]}]},
    ],
)  # fmt: skip
def test_nonsense_is_no_error(raw: object) -> None:
    """A node may write anything."""
    found = parse_record(Untrusted(raw))
    assert found is None or all(isinstance(part.node, str) for part in found.parts)


SILENT = "it was silent for 20 s"


def test_a_hub_that_lost_all_others_is_itself_cut_off() -> None:
    """Two of three nodes are not cut off at once; a failure of its own explains why it reaches no one."""
    killed = {"rank": None, "reason": "the agent was killed", "time": 9.0}
    lost = [part(f"gpu0{n + 1}", n, "LOST", reason=SILENT) for n in (1, 2)]
    for own, blamed in (
        (part("gpu01", 0, "STOPPED"), "gpu01"),
        (part("gpu01", 0, "FAILED", killed), "gpu02"),
    ):
        reported = read_record({**record(own, *lost), "stop": None})
        cause = recorded_cause(reported)
        assert cause.failure.node == blamed
    two = read_record(record(part("gpu01", 0, "STOPPED"), lost[0]))
    alone = recorded_cause(two)
    assert alone.failure.node == "gpu02"


def test_what_the_kernel_killed_for_memory_is_on_record() -> None:
    """And whether a rank ended after its node was ordered to: both are read from the record as they were seen."""
    oom_killed = {"rank": 0, "exit": None, "signal": 9, "time": 9.0, "oom_killed": True}
    leaves = {"rank": 1, "exit": 143, "signal": None, "time": 11.0}
    reported = read_record(record({**part("gpu01", 0, "FAILED", oom_killed, leaves), "stopped_at": 10.0}))
    assert [(one.oom_killed, one.after_stop) for one in reported.failures] == [(True, False), (False, True)]


def test_of_nodes_that_the_inventory_does_not_have_nothing_is_taken() -> None:
    """A record of such nodes alone is none."""
    honest = read_record(record(part("gpu01", 0, "FAILED"), part("gpu02", 1, "STOPPED")))
    lie = read_record(
        {**record(*(part(f"x{number}", number, "SUCCEEDED") for number in range(50))), "attempt": 9999}
    )
    for records in ([honest, lie], [lie, honest]):
        assert choose_record(records, {"gpu01", "gpu02"}) == honest


def test_a_node_that_answers_us_but_not_its_peers_explains_its_loss() -> None:
    """Its guardian has recorded that the agent was killed: that is shown, and the state and the node stay the same."""
    raised = {**RAISED, "rank": 0, "tracebacks": [{"at": 10.2, "lines": RAISED["tracebacks"][0]["lines"]}]}
    lost = {**part("gpu02", 1, "LOST", reason="the connection ended"), "time": 9.1, "last_seen": 9.1}
    reported = record(part("gpu01", 0, "FAILED", raised), lost)
    killed = parse_state(
        Untrusted(
            {"run": "a-1", "node": "gpu02", "node_rank": 1, "nnodes": 2, "since": 9.0, "state": "FAILED"}
            | {"reason": "the agent was killed"}
        )
    )
    for second, reason in ((killed, "the agent was killed"), (None, "lost: the connection ended")):
        verdict = conclude_ended("a-1", {"gpu01": state("gpu01", 0, "FAILED", reported), "gpu02": second})
        assert verdict.cause is not None
        assert (verdict.cause.failure.node, verdict.cause.failure.reason) == ("gpu02", reason)
        assert restart_reason(verdict.cause) == "node_lost"
        assert verdict.state == "FAILED"


def test_a_record_of_an_older_version_has_no_last_sign_of_life() -> None:
    """The moment at which the loss was noticed is taken for it."""
    lost = part("gpu02", 1, "LOST", reason=SILENT)
    for moment, shown in ((13.5, "gpu02"), (12.0, "gpu01")):
        raised = {
            **RAISED,
            "tracebacks": [{**RAISED["tracebacks"][0], "at": moment}],
            "last_at": moment,
            "rank": 0,
        }
        reported = read_record({**record(part("gpu01", 0, "FAILED", raised), lost), "stop": None})
        cause = cause_of(reported.failures, reported.stopped_at)
        assert cause.failure.node == shown


def test_the_record_of_the_latest_attempt_counts() -> None:
    """Whatever nodes keep of earlier ones, and however many; of the same attempt, that which lost fewest nodes."""
    kept = record(part("gpu01", 0, "FAILED"), part("gpu02", 1, "FAILED"))
    earlier, latest = (read_record({**kept, "attempts": [{}] * count}) for count in (1, 2))
    names = {"gpu01", "gpu02", "gpu03"}

    assert choose_record([earlier, earlier, latest], names) == latest
    cut_off = read_record(
        record(
            part("gpu01", 0, "LOST", reason=SILENT),
            part("gpu02", 1, "STOPPED"),
            part("gpu03", 2, "LOST", reason=SILENT),
        )
    )
    others = read_record(
        record(
            part("gpu01", 0, "STOPPED"),
            part("gpu02", 1, "LOST", reason=SILENT),
            part("gpu03", 2, "STOPPED"),
        )
    )
    for records in ([cut_off, others], [others, cut_off]):
        assert choose_record(records, names) == others


def test_an_incomplete_record_is_none() -> None:
    """What a node wrote before all parts had come, or without the hub, does not stand for the run."""
    own = read_record(record(part("gpu01", 0, "SUCCEEDED"), whole=False))
    assert choose_record([own], {"gpu01"}) is None


def test_every_time_is_shown_by_our_clock() -> None:
    """The record's by the hub's, and by its own what a node reports of why it was lost."""
    honest = record(part("gpu01", 0, "STOPPED"), part("gpu02", 1, "FAILED", RAISED))
    parts = {"gpu01": state("gpu01", 0, "STOPPED", honest), "gpu02": None}
    verdict = conclude_ended("a-1", parts, offsets={"gpu01": 2.0, "gpu02": 7.0})
    assert verdict.cause is not None
    assert (round(verdict.cause.failure.time, 3), verdict.cause.failure.raised_at) == (10.6, 8.0)

    of_hub = record(part("gpu01", 0, "STOPPED"), part("gpu02", 1, "LOST", reason=SILENT))
    about = {"run": "a-1", "node": "gpu02", "node_rank": 1, "nnodes": 2, "since": 12.0}
    killed = parse_state(
        Untrusted({**about, "state": "LOST", "reason": "agent and guardian are not running"})
    )
    parts = {"gpu01": state("gpu01", 0, "STOPPED", of_hub), "gpu02": killed}
    verdict = conclude_ended("a-1", parts, offsets={"gpu02": 7.0})
    assert verdict.cause is not None
    assert (verdict.cause.failure.reason, verdict.cause.failure.time) == (killed.reason, 5.0)


def test_of_parts_put_together_the_first_stop_counts() -> None:
    """Each node without the hub keeps when it was ordered to stop itself."""
    parts = {
        f"gpu0{rank + 1}": state(
            f"gpu0{rank + 1}",
            rank,
            "STOPPED",
            {
                **record({**part(f"gpu0{rank + 1}", rank, "STOPPED"), "stopped_at": at}, whole=False),
                "stop": None,
            },
        )
        for rank, at in ((0, 12.0), (1, 11.0))
    }
    assert assemble_record(parts, (), {}, {}).stopped_at == 11.0
