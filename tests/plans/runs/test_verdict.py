"""The verdict of a run, from what its nodes say."""

from __future__ import annotations

from clusterctl.plans.runs.state import NodeState, parse_state
from clusterctl.plans.runs.verdict import judge, verdict_to_json
from clusterctl.protocol.root_cause import Failure
from clusterctl.protocol.untrusted import Untrusted

LOST = Failure("gpu02", None, None, None, 5.0, (), "lost: the connection broke", lost=True)


def part(state: str, reason: str = "") -> NodeState:
    """Build a node's part."""
    return parse_state(Untrusted({"run": "r", "state": state, "reason": reason}))


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

    assert (verdict.state, dict(verdict.node_states)) == ("LOST", {"gpu01": "CANCELLED", "gpu02": "LOST"})
    assert verdict.cause is not None
    assert verdict.cause.failure.node == "gpu02"
    assert verdict_to_json(verdict)["exit_code"] == 1


def test_a_time_limit_is_the_verdict_unless_a_rank_failed_by_itself() -> None:
    """Nodes reach their limit within milliseconds; what the first one's end does to the others is no cause."""
    parts = {"a": part("TIMEOUT", "time limit of 12 h"), "b": part("FAILED", "rank 1 exited with 1")}
    ended = Failure("a", 0, None, 15, 10.1)
    follows = Failure(
        "b", 1, 1, None, 10.2, message="RuntimeError: Connection closed by peer", raised_at=10.2
    )
    raises = Failure("b", 1, 1, None, 9.0, exception="ValueError: bad loss", raised_at=9.0)

    verdict = judge("r", parts, [ended, follows], stopped_at=10.0)
    assert (verdict.state, verdict.cause, verdict.exit_code) == ("TIMEOUT", None, 1)
    assert judge("r", parts, [ended, raises], stopped_at=10.0).state == "FAILED"
    assert judge("r", {"a": parts["a"], "b": None}, [LOST], stopped_at=10.0).state == "LOST"


def test_ranks_that_leave_with_a_code_of_their_own_when_asked_are_no_failure() -> None:
    """A script that handles SIGTERM saves and exits with 143, or raises at once: it was stopped, or out of time."""
    leaves = Failure("a", 0, 143, None, 10.3, after_stop=True)
    raises = Failure("a", 0, 1, None, 10.1, exception="KeyboardInterrupt", raised_at=10.05, after_stop=True)
    for state, reason in (("CANCELLED", "stopped by me@laptop"), ("TIMEOUT", "time limit of 1 h")):
        for failure in (leaves, raises):
            verdict = judge("r", {"a": part(state, reason)}, [failure], stopped_at=10.0)
            assert (verdict.state, verdict.cause) == (state, None)


def test_who_leaves_when_asked_is_not_the_cause() -> None:
    """Neither before a guardian's death that is told late, nor before a lost node, nor a rank whose clock is ahead."""
    parts = {"a": part("CANCELLED", "b: rank 1 failed"), "b": part("FAILED", "rank 1 exited with 1")}
    leaves = Failure("a", 0, 143, None, 10.3, after_stop=True)
    for real in (
        Failure("b", None, None, None, 10.9, reason="the guardian was killed"),
        Failure("b", None, None, None, 11.0, reason="lost: silent", lost=True),
        Failure("b", 1, 1, None, 10.35),
    ):
        cause = judge("r", parts, [leaves, real], stopped_at=10.0).cause
        assert cause is not None
        assert cause.failure == real


def test_a_node_that_answers_without_its_agent_is_not_away() -> None:
    """Guardian and agent were killed there: what is left can be stopped at once."""
    for left in ([], [{"pid": 7, "name": "python", "state": "S"}]):
        told = {"run": "r", "state": "LOST", "reason": "agent and guardian are gone", "left": left}
        verdict = judge("r", {"a": parse_state(Untrusted(told)), "gpu02": None}, [LOST], stopped_at=10.0)
        assert dict(verdict.node_states) == {"a": "LOST", "gpu02": "LOST"}
        assert (verdict.unwatched, verdict.away) == (("a",) if left else (), ("gpu02",))


def test_ranks_that_were_stopped_do_not_explain_a_node_that_failed_without_one() -> None:
    """There the reason of the node is shown, and not a SIGTERM that was our own."""
    parts = {
        "a": part("FAILED", "rank 3 saw WORLD_SIZE 2, planned were 4"),
        "b": part("CANCELLED", "a: rank 3"),
    }
    stopped = Failure("b", 1, None, 15, 10.3, after_stop=True)
    verdict = judge("r", parts, [stopped], stopped_at=10.0)

    assert (verdict.state, verdict.cause, verdict.reasons["a"]) == ("FAILED", None, parts["a"].reason)
