"""A run whose ranks ran alone is no success, if all of its nodes report that, and the same in every account of it."""

from __future__ import annotations

from typing import Any

import pytest
from ends import conclude_ended

from clusterctl.console.run.verdict import render_alone, render_suspicion
from clusterctl.node.gang.attempts import make_record
from clusterctl.plans.runs.state import NodeState, parse_state
from clusterctl.plans.runs.verdict import Verdict, describe_alone, verdict_to_json
from clusterctl.protocol.end_record import judge_end, parse_record
from clusterctl.protocol.messages.gang import read_part, read_record
from clusterctl.protocol.run_id import RunId
from clusterctl.protocol.untrusted import Untrusted

ALONE = {"ranks": 2, "largest": 1, "planned": 4}
RUN = RunId("r")


def part(state: str = "SUCCEEDED", **facts: Any) -> NodeState:
    """Build a node's part of a run of two nodes."""
    return parse_state(Untrusted({"run": "r", "nnodes": 2, "state": state, **facts}))


def end_of(**parts: NodeState | None) -> Verdict:
    """Conclude how a run of these nodes ended."""
    return conclude_ended(RUN, parts)


def test_all_nodes_must_report_it() -> None:
    """Then the run failed, whatever its parts; one that does not report it may have been in a group."""
    verdict = end_of(a=part(node="a", alone=ALONE), b=part(node="b", alone={**ALONE, "ranks": 3}))

    assert (verdict.state, verdict.exit_code, verdict.cause) == ("FAILED", 1, None)
    assert verdict.alone == {"ranks": 5, "largest": 1, "planned": 4}
    assert verdict_to_json(verdict)["alone"] == {"ranks": 5, "largest": 1, "planned": 4, "code": "CC-RUN-053"}
    for other, state in (
        (part(node="b"), "SUCCEEDED"),
        (part("FAILED", node="b", alone=ALONE), "FAILED"),
        (None, "UNKNOWN"),
    ):
        verdict = end_of(a=part(node="a", alone=ALONE), b=other)
        assert (verdict.state, verdict.alone) == (state, None)


@pytest.mark.parametrize(
    "wrong",
    [
        True,
        {},
        {"ranks": 2, "largest": 1},
        {**ALONE, "ranks": -1},
        {**ALONE, "ranks": 1 << 40},
        {**ALONE, "largest": 4},
        {**ALONE, "planned": "4"},
    ],
)
def test_what_no_node_of_ours_writes_counts_as_nothing(wrong: object) -> None:
    """Neither in a state nor in a record; those of older versions have no such key."""
    assert part(alone=wrong).alone is None
    assert part().alone is None


def record(**facts: Any) -> dict[str, Any]:
    """Build the record of a hub."""
    parts = [
        {"node": name, "node_rank": rank, "state": "SUCCEEDED", "time": 5.0, "failures": [], **facts}
        for rank, name in enumerate("ab")
    ]
    return {"run": "r", "hub": "a", "whole": True, "parts": parts}


def test_the_record_tells_of_a_node_that_does_not_answer(bounds: Any) -> None:
    """Through the messages of the gang as through the file; without it an older record is a success."""
    passed: Any = read_record(Untrusted(record(alone=ALONE)), bounds)
    own = read_part(Untrusted(record(alone=ALONE)["parts"][0]), bounds)
    for alone, state in ((ALONE, "FAILED"), (None, "SUCCEEDED")):
        facts = {"alone": alone} if alone else {}
        reported = record(**facts)
        recorded = parse_record(Untrusted(reported))
        assert recorded is not None and judge_end(recorded).state == state
        for known in (reported, {**reported, "state": state}):
            verdict = end_of(a=part(node="a", gang=known, **facts), b=None)
            assert (verdict.state, verdict.alone is not None) == (state, alone is not None)

    assert [one["alone"] for one in passed["parts"]] == [ALONE, ALONE]
    assert own["alone"] == ALONE


def test_a_suspicion_is_a_warning_of_a_success() -> None:
    """Of all nodes; one that is certain makes it no more than that."""
    suspected = {**ALONE, "largest": 0}
    for other in (suspected, ALONE):
        verdict = end_of(a=part(node="a", alone=suspected), b=part(node="b", alone=other))
        assert (verdict.state, verdict.exit_code, verdict.alone) == (
            "SUCCEEDED",
            0,
            {"ranks": 4, "largest": 0, "planned": 4},
        )
        assert verdict_to_json(verdict)["alone"] == {
            "ranks": 4,
            "largest": 0,
            "planned": 4,
            "code": "CC-RUN-050",
        }
        (warning, fix) = render_suspicion(verdict)
        assert warning.startswith("warning: the ranks of the 4 nodes may have run alone: ")
        assert "(CC-RUN-050)" in warning and "${node_rank}" in fix
        assert render_alone(verdict, "clusterctl") == []
    spec: Any = {"run": "r", "hub": "a"}
    assert make_record(spec, record(alone=suspected)["parts"], None, whole=True)["state"] == "SUCCEEDED"
    assert end_of(a=part(node="a", alone=suspected), b=part(node="b")).alone is None


def test_the_hub_writes_the_state_into_the_record() -> None:
    """As every verb shows it then: FAILED only if all parts report it."""
    spec: Any = {"run": "r", "hub": "a"}
    alone, together = record(alone=ALONE)["parts"], record()["parts"]

    assert make_record(spec, alone, None, whole=True)["state"] == "FAILED"
    assert make_record(spec, [alone[0], together[1]], None, whole=True)["state"] == "SUCCEEDED"


def test_what_it_says() -> None:
    """Ranks that were each alone, and groups that are too small; with the key that allows it."""
    assert describe_alone({"ranks": 4, "largest": 1, "planned": 4})[0].startswith("4 ranks ran alone: ")
    message, fix = describe_alone({"ranks": 8, "largest": 2, "planned": 8})
    assert message.startswith("the 8 ranks formed process groups of 2, 8 were planned")
    assert "`alone: ok`" in fix


@pytest.fixture
def bounds() -> Any:
    """Bounds of a run of the nodes a and b."""
    from clusterctl.protocol.messages.gang import Bounds

    return Bounds("r", ("a", "b"), 2, 2, 10, 1, 60.0, 60.0)
