"""The verdict of a run, from what its nodes say."""

from __future__ import annotations

from clusterctl.plans.cause import Failure
from clusterctl.plans.state import NodeState, parse_state
from clusterctl.plans.verdict import judge, to_json

LOST = Failure("gpu02", None, None, None, 5.0, (), "lost: the connection broke", lost=True)


def part(state: str, reason: str = "") -> NodeState:
    """Build a node's part."""
    return parse_state({"run": "r", "state": state, "reason": reason})


def test_success_needs_every_node() -> None:
    """One part that did not succeed, or does not answer, is enough."""
    assert judge("r", {"a": part("SUCCEEDED"), "b": part("SUCCEEDED")}, []).exit_code == 0
    assert judge("r", {"a": part("SUCCEEDED"), "b": part("CANCELLED")}, []).exit_code == 1
    assert judge("r", {"a": part("SUCCEEDED"), "b": None}, []).exit_code == 1


def test_a_failure_that_was_seen_is_never_success() -> None:
    """A rank that failed outweighs states that say otherwise."""
    failed = Failure("a", 0, 1, None, 1.0, ())

    assert judge("r", {"a": part("SUCCEEDED")}, [failed]).state == "FAILED"


def test_a_lost_node_makes_the_run_lost_and_is_named_so() -> None:
    """The others were stopped because of it; that they were cancelled is not the news."""
    verdict = judge("r", {"gpu01": part("CANCELLED"), "gpu02": None}, [LOST], stopped_at=5.0)

    assert (verdict.state, dict(verdict.parts)) == ("LOST", {"gpu01": "CANCELLED", "gpu02": "LOST"})
    assert verdict.cause is not None
    assert verdict.cause.failure.node == "gpu02"
    assert to_json(verdict)["exit_code"] == 1
