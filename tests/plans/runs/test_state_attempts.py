"""Runs that were started again: who counts, what is reported, how they are called."""

from __future__ import annotations

from typing import Any

import pytest
from ends import judge

from clusterctl.node.gang.attempts import Roster
from clusterctl.plans.launch.placement import warn_of_losses
from clusterctl.plans.runs.selection import gather_runs, is_complete, may_have_processes
from clusterctl.plans.runs.state import (
    GIVEN_UP,
    NodeState,
    attempts_of,
    find_smaller,
    parse_state,
    roster_of,
    taking_part,
)
from clusterctl.plans.runs.verdict import conclude_over, name_state, verdict_to_json
from clusterctl.protocol.root_cause import Failure
from clusterctl.protocol.run_id import RunId
from clusterctl.protocol.untrusted import Untrusted

FIRST = {"attempt": 1, "reason": "node_lost", "text": "gpu02 is lost", "node": "gpu02", "progress": True}


RUN = "r-20260101T000000-0001"


def roster(*ranks: int | None, lost: str = "") -> list[dict[str, Any]]:
    """Write who has which rank, by the order of the seats."""
    names = [f"gpu0{seat + 1}" for seat in range(len(ranks))]
    return [
        {"slot": seat, "node": name, "node_rank": ranks[seat], "lost": name == lost}
        for seat, name in enumerate(names)
    ]


def part(state: str, **more: Any) -> NodeState:
    """Build a node's part of a run on two nodes with a spare."""
    return parse_state(Untrusted({"run": RUN, "state": state, "nnodes": 2, "slots": 3, "gang": True, **more}))


REPLACED = {"attempt": 2, "roster": roster(0, None, 1, lost="gpu02"), "attempts": [FIRST]}


def test_a_run_that_goes_on_with_fewer_nodes() -> None:
    """The latest attempt counts, not what a lost node that is back still has; the end names how many there are."""
    now = {"attempt": 2, "roster": roster(0, None, 1, lost="gpu02"), "nnodes": 2, "planned_nodes": 3}
    parts = {name: part("SUCCEEDED", node=name, **now) for name in ("gpu01", "gpu03")}
    parts["gpu02"] = part("RUNNING", node="gpu02", attempt=1, nnodes=3, roster=roster(0, 1, 2))
    assert find_smaller(parts) == {"nodes": 2, "of": 3}
    verdict = judge("r", parts, [])
    assert (verdict.state, verdict_to_json(verdict)["smaller"]) == ("SUCCEEDED", {"nodes": 2, "of": 3})
    assert find_smaller({"gpu01": part("RUNNING", **{**now, "nnodes": 3})}) is None
    assert find_smaller({"gpu01": part("RUNNING"), "gpu02": None}) is None
    assert find_smaller({"gpu01": None}) is None


def test_an_idle_spare_does_not_count() -> None:
    """Neither while the run lives nor at its end, also if it does not answer."""
    reported = {"roster": roster(0, 1, None)}
    done = {"gpu01": part("SUCCEEDED", **reported), "gpu02": part("SUCCEEDED", **reported)}

    for spare in (part("SUCCEEDED", spare=True), part("LOST", spare=True), None):
        parts = {**done, "gpu03": spare}
        verdict = judge("r", parts, [])
        assert (name_state(RunId("r"), parts), verdict.state, verdict.spares) == (
            "SUCCEEDED",
            "SUCCEEDED",
            ("gpu03",),
        )
    assert list(taking_part({**done, "gpu03": None})) == ["gpu01", "gpu02"]
    silent = {"gpu01": done["gpu01"], "gpu02": None, "gpu03": part("SUCCEEDED")}
    assert name_state(RunId("r"), silent) == "UNKNOWN"


def test_a_node_whose_place_was_taken_does_not_count() -> None:
    """The run has succeeded without it, also if it comes back and reports its own end; it is still called lost."""
    done = {"gpu01": part("SUCCEEDED", **REPLACED), "gpu03": part("SUCCEEDED", **REPLACED)}
    old = part("STOPPED", roster=roster(0, 1, None), reason="node 0 (gpu01) is lost")
    failed = Failure("gpu02", None, None, None, 5.0, (), "lost: it was silent", lost=True)

    for gone in (None, old):
        verdict = judge("r", {**done, "gpu02": gone}, [failed])
        assert (verdict.state, verdict.exit_code, verdict.cause) == ("SUCCEEDED", 0, None)
        assert verdict.node_states["gpu02"] == "LOST"
    reported = verdict_to_json(verdict)
    assert (reported["attempt"], reported["spares"], reported["gave_up"]) == (2, [], None)
    assert reported["attempts"] == [{**FIRST, "began": None, "ended": None}]


def test_attempts_without_progress_have_an_exit_code() -> None:
    """A scheduler above can tell a job that gets nowhere from one that failed."""
    for gave_up, code in (("no_progress", 6), ("max", 1), ("", 1)):
        parts = {name: part("FAILED", gave_up=gave_up, **REPLACED) for name in ("gpu01", "gpu03")}
        assert judge("r", parts, []).exit_code == code


def test_spares_are_parts_of_a_run_too() -> None:
    """A node that is silent may be one; all have been given the run when all three tell of it."""
    one, two = part("RUNNING", node="gpu01"), part("RUNNING", node="gpu02")

    assert gather_runs({"gpu01": [one], "gpu02": [two]}, ["gpu03"])[RUN]["gpu03"] is None
    assert may_have_processes("gpu03", {"gpu01": one, "gpu02": two}, ["gpu03"])


def test_what_a_node_reports_of_attempts_is_read_with_distrust() -> None:
    """Nonsense is left out; the ranks are those of its files."""
    odd = [FIRST | {"ranks": {"1": {}, "x": 2}, "progress": 3}, 7, {"attempt": "x"}]
    read = parse_state(Untrusted({"attempts": odd, "roster": [3, {"node": 4}], "gave_up": 5}))

    assert [(one.number, one.ranks, one.progress) for one in read.attempts] == [
        (0, (), None),
        (1, (1,), None),
    ]
    assert (read.gave_up_reason, len(read.roster)) == ("", 1)
    assert attempts_of({"a": read, "b": None}) == read.attempts


def test_a_run_is_complete_without_nodes_that_are_not_its_own() -> None:
    """By count, or by the roster: then a lost node need not be waited for, and a stranger is no part of it."""
    plain = {"nnodes": 2, "slots": 0}
    half = {"gpu01": part("RUNNING", **plain)}
    replaced = {"gpu01": part("RUNNING", **REPLACED), "gpu03": part("RUNNING", **REPLACED)}

    assert not is_complete({})
    assert not is_complete(half)
    assert is_complete({**half, "gpu02": part("RUNNING", **plain)})
    assert is_complete(replaced)
    assert not is_complete({"gpu01": replaced["gpu01"]})
    reported = {name: [state] for name, state in replaced.items()}
    assert list(gather_runs(reported, ["gpu02", "gpu77"])[RUN]) == ["gpu01", "gpu03", "gpu02"]


def test_a_stop_between_two_attempts_is_a_stop() -> None:
    """What the attempt before had failed of was to be tried again: the hub has written how the run ended."""
    reported = {"roster": roster(0, 1, None), "reason": "stopped by ann@laptop"}
    failed = {"rank": 0, "exit": 1, "signal": None, "time": 5.0}
    ended = {"node": "gpu01", "node_rank": 0, "state": "FAILED", "reason": "rank 0 exited with 1"}
    for state in ("STOPPED", "TIMEOUT"):
        record = {"run": RUN, "hub": "gpu01", "whole": True, "state": state, "stop": None}
        record["parts"] = [{**ended, "time": 5.1, "stopped_at": None, "failures": [failed]}]
        parts = {name: part(state, node=name, **reported, gang=record) for name in ("gpu01", "gpu02")}
        verdict = conclude_over(RunId(RUN), parts)
        assert (verdict.state, verdict.cause) == (state, None)


def test_a_roster_counts_where_no_other_node_sends_one() -> None:
    """The others are silent: what the last one knows is all there is."""
    alone = {
        "gpu01": part("RUNNING", roster=roster(0, None, 1, lost="gpu02"), attempt=2),
        "gpu02": None,
        "gpu03": None,
    }
    assert [seat.lost for seat in roster_of(alone)] == [False, True, False]


def test_a_node_that_was_cut_off_calls_no_one_lost() -> None:
    """It has lost half of the others, so that it is cut off itself; whatever it is first or last to report."""
    others = {
        name: part("RUNNING", node=name, roster=roster(0, None, 1, lost="gpu02"), attempt=1)
        for name in ("gpu01", "gpu03")
    }
    alone = [{**slot, "lost": slot["node"] != "gpu02"} for slot in roster(0, 1, None)]
    cut_off = part("LOST", node="gpu02", roster=alone, attempt=1)
    for parts in ({"gpu02": cut_off, **others}, {**others, "gpu02": cut_off}):
        assert [slot.node for slot in roster_of(parts) if slot.lost] == ["gpu02"]
    assert not is_complete({"gpu02": cut_off})
    assert is_complete(others)


def test_the_roster_of_the_latest_attempt_counts() -> None:
    """A node that missed it is behind."""
    behind = part("LOST", node="gpu02", roster=roster(0, 1, None), attempt=1)
    ahead = part("RUNNING", node="gpu01", **REPLACED)
    assert roster_of({"gpu02": behind, "gpu01": ahead}) == ahead.roster


def lose_all(nodes: int, spares: int) -> tuple[int, str | None]:
    """Lose one node after the other; gives how many the nodes themselves survive, and why there is no more."""
    roster = [
        {"slot": seat, "node": f"n{seat}", "node_rank": seat if seat < nodes else None}
        for seat in range(nodes + spares)
    ]
    course = Roster({"slot": 0, "slots": nodes + spares, "nnodes": nodes, "attempt": 1, "roster": roster})
    for lost in range(nodes + spares):
        here = set(range(lost + 1, nodes + spares))
        why = course.find_shortage(here, here)
        if why is not None:
            return lost, why
    return nodes + spares, None


@pytest.mark.parametrize(
    ("nodes", "spares", "survived", "why", "said"),
    [
        (2, 2, 1, "majority", "only 1 of 2 spares can replace lost nodes"),
        (1, 1, 0, "majority", "only 0 of 1 spares can replace lost nodes"),
        (2, 5, 3, "majority", "only 3 of 5 spares can replace lost nodes"),
        (2, 3, 2, "majority", "only 2 of 3 spares can replace lost nodes"),
        (3, 2, 2, "nodes", ""),
        (2, 1, 1, "nodes", ""),
        (4, 0, 0, "nodes", ""),
    ],
)
def test_how_many_losses_are_survived(nodes: int, spares: int, survived: int, why: str, said: str) -> None:
    """What launch reports beforehand is what the nodes do; each of the two reasons has a text of its own."""
    assert lose_all(nodes, spares) == (survived, why)
    assert warn_of_losses(nodes, spares).startswith(said)
    assert bool(warn_of_losses(nodes, spares)) == bool(said)
    assert len({GIVEN_UP["nodes"], GIVEN_UP["majority"]}) == 2
