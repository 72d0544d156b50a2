"""The verdict of a run, from what its nodes say."""

from __future__ import annotations

from typing import Any

import pytest
from ends import judge

from clusterctl.plans.runs.state import NodeState, parse_state
from clusterctl.plans.runs.verdict import conclude, conclude_over, verdict_to_json
from clusterctl.protocol.root_cause import Failure
from clusterctl.protocol.run_id import RunId
from clusterctl.protocol.untrusted import Untrusted

LOST = Failure("gpu02", None, None, None, 5.0, (), "lost: the connection broke", lost=True)


def part(state: str, reason: str = "") -> NodeState:
    """Build a node's part."""
    return parse_state(Untrusted({"run": "r", "state": state, "reason": reason}))


def test_success_needs_every_node() -> None:
    """One part that did not succeed, or does not answer, is enough."""
    assert judge("r", {"a": part("SUCCEEDED"), "b": part("SUCCEEDED")}, []).exit_code == 0
    assert judge("r", {"a": part("SUCCEEDED"), "b": part("STOPPED")}, []).exit_code == 1
    assert judge("r", {"a": part("SUCCEEDED"), "b": None}, []).exit_code == 1


def test_a_lost_node_makes_the_run_lost_and_is_named_so() -> None:
    """The others were stopped because of it; that they were cancelled is not the news."""
    verdict = judge("r", {"gpu01": part("STOPPED"), "gpu02": None}, [LOST], stopped_at=5.0)

    assert (verdict.state, dict(verdict.node_states)) == ("LOST", {"gpu01": "STOPPED", "gpu02": "LOST"})
    assert verdict.cause is not None
    assert verdict.cause.failure.node == "gpu02"
    assert verdict_to_json(verdict)["exit_code"] == 1


def test_a_time_limit_is_the_verdict_unless_a_rank_failed_by_itself() -> None:
    """Nodes reach their limit within milliseconds; what the first one's end does to the others is no cause."""
    parts = {"a": part("TIMEOUT", "time limit of 12h"), "b": part("FAILED", "rank 1 exited with 1")}
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
    for state, reason in (("STOPPED", "stopped by me@laptop"), ("TIMEOUT", "time limit of 1h")):
        for failure in (leaves, raises):
            verdict = judge("r", {"a": part(state, reason)}, [failure], stopped_at=10.0)
            assert (verdict.state, verdict.cause) == (state, None)


def test_who_leaves_when_asked_is_not_the_cause() -> None:
    """Neither before a guardian's death that is known late, nor before a lost node, nor a rank whose clock is ahead."""
    parts = {"a": part("STOPPED", "b: rank 1 failed"), "b": part("FAILED", "rank 1 exited with 1")}
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
        reported = {"run": "r", "state": "LOST", "reason": "agent and guardian are not running", "left": left}
        verdict = judge("r", {"a": parse_state(Untrusted(reported)), "gpu02": None}, [LOST], stopped_at=10.0)
        assert dict(verdict.node_states) == {"a": "LOST", "gpu02": "LOST"}
        assert (verdict.unwatched, verdict.away) == (("a",) if left else (), ("gpu02",))


def test_ranks_that_were_stopped_do_not_explain_a_node_that_failed_without_one() -> None:
    """There the reason of the node is shown, and not a SIGTERM that was our own."""
    parts = {
        "a": part("FAILED", "rank 3 saw WORLD_SIZE 2, planned were 4"),
        "b": part("STOPPED", "a: rank 3"),
    }
    stopped = Failure("b", 1, None, 15, 10.3, after_stop=True)
    verdict = judge("r", parts, [stopped], stopped_at=10.0)

    assert (verdict.state, verdict.cause, verdict.reasons["a"]) == ("FAILED", None, parts["a"].reason)


RUN = RunId("r")
SILENT = "it was silent for 20 s"


def recorded(node: str, state: str, *failures: dict[str, Any], reason: str = "", at: float = 13.0) -> Any:
    """Write one node's part of a record."""
    rank = int(node[-1]) - 1
    about = {"node": node, "node_rank": rank, "state": state, "reason": reason, "time": at}
    return {**about, "stopped_at": None, "failures": list(failures)}


def record(*parts: Any, stopped_at: float | None = None, whole: bool = True) -> Any:
    """Write a record of gpu01's gang."""
    stop = None if stopped_at is None else {"time": stopped_at}
    return {"run": RUN, "hub": "gpu01", "whole": whole, "stop": stop, "parts": list(parts)}


def kept(node: str, state: str, gang: Any = True, **facts: Any) -> NodeState:
    """Read a node's state, with the record that it keeps."""
    about = {"run": RUN, "node": node, "node_rank": int(node[-1]) - 1, "nnodes": 2, "state": state}
    return parse_state(Untrusted({**about, "gang": gang, **facts}))


def test_a_node_that_is_gone_after_the_end_changes_nothing() -> None:
    """Its connection broke, it lost power, or it was restarted: the record says how its part ended."""
    ended = record(recorded("gpu01", "SUCCEEDED"), recorded("gpu02", "SUCCEEDED"))
    for second in (None, kept("gpu02", "UNKNOWN", reason="the node was restarted during the run")):
        parts = {"gpu01": kept("gpu01", "SUCCEEDED", ended), "gpu02": second}
        verdict = conclude_over(RUN, parts, unreachable={} if second else {"gpu02": "the connection broke"})

        assert (verdict.state, verdict.exit_code, verdict.is_assembled) == ("SUCCEEDED", 0, False)
        assert dict(verdict.node_states) == {"gpu01": "SUCCEEDED", "gpu02": "SUCCEEDED"}
        assert verdict.away == ()


def test_what_a_node_that_was_cut_off_recorded_alone_does_not_count() -> None:
    """It stopped its ranks long before the others gave it up, or has a record of its own: the hub's stands."""
    killed = {"rank": 1, "exit": None, "signal": 9, "time": 10.0}
    others = record(recorded("gpu01", "STOPPED"), recorded("gpu02", "LOST", reason=SILENT), stopped_at=30.0)
    alone = record(recorded("gpu02", "STOPPED", killed), stopped_at=9.0, whole=False)
    verdict = conclude(
        RUN, {"gpu01": kept("gpu01", "STOPPED", others), "gpu02": kept("gpu02", "STOPPED", alone)}
    )

    assert verdict is not None and verdict.cause is not None
    assert (verdict.state, verdict.cause.failure.reason) == ("LOST", f"lost: {SILENT}")
    assert verdict.node_states["gpu02"] == "STOPPED"


def test_a_replaced_node_that_runs_on_shows_nothing_of_the_end() -> None:
    """It stopped when it was replaced: the rank that failed later, in the next attempt, was stopped by no one."""
    slots = [
        {"slot": 0, "node": "gpu01", "node_rank": 0},
        {"slot": 1, "node": "gpu02", "node_rank": None, "lost": True, "reason": SILENT},
        {"slot": 2, "node": "gpu03", "node_rank": 1},
    ]
    killed = {"rank": 0, "exit": None, "signal": 9, "time": 9.0}
    end = record(
        recorded("gpu01", "FAILED", killed),
        recorded("gpu03", "STOPPED"),
        stopped_at=9.1,
    )
    end["attempt"] = 2
    alone = record(recorded("gpu02", "STOPPED"), stopped_at=4.0, whole=False)
    verdict = conclude(
        RUN,
        {
            "gpu01": kept("gpu01", "FAILED", end, roster=slots, attempt=2, slots=3),
            "gpu02": kept("gpu02", "RUNNING", alone, slots=3),
            "gpu03": kept("gpu03", "STOPPED", end, roster=slots, attempt=2, slots=3),
        },
    )

    assert verdict is not None and verdict.cause is not None
    assert (verdict.cause.failure.node, verdict.cause.failure.signal, verdict.cause.stopped) == (
        "gpu01",
        9,
        False,
    )


@pytest.mark.parametrize(
    ("state", "named"),
    [("UNKNOWN", "LOST"), ("SUBMITTED", "LOST"), ("PREPARING", "LOST"), ("WAITING", "LOST"), ("RUNNING", "LOST")]
    + [(ended, ended) for ended in ("SUCCEEDED", "FAILED", "FAILED_SETUP", "STOPPED", "TIMEOUT", "LOST")],
)  # fmt: skip
def test_a_lost_node_that_reports_its_own_end_is_called_by_that(state: str, named: str) -> None:
    """Whatever else it reports was true before it was lost."""
    verdict = judge(RUN, {"gpu01": part("STOPPED"), "gpu02": part(state)}, [LOST], stopped_at=5.0)

    assert verdict.node_states["gpu02"] == named


@pytest.mark.parametrize(
    ("state", "failures", "unwatched"),
    [("LOST", [], True), ("FAILED", [], False), ("LOST", [LOST], True)],
    ids=["without its agent", "its agent could not end it", "nor do its peers receive it"],
)
def test_processes_are_unwatched_only_where_a_node_answers_without_its_agent(
    state: str, failures: list[Failure], unwatched: bool
) -> None:
    """What an agent could not end it has named itself; a node that is lost and answers reports what runs on."""
    left = [{"pid": 7, "name": "python", "state": "S"}]
    reported = parse_state(Untrusted({"run": "r", "state": state, "left": left}))
    verdict = judge(RUN, {"gpu01": part("STOPPED"), "gpu02": reported}, failures, stopped_at=5.0)

    assert verdict.unwatched == (("gpu02",) if unwatched else ())
