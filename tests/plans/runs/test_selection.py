"""Which run is meant, and what the nodes' lists amount to."""

from __future__ import annotations

import pytest

from clusterctl.errors import UsageError
from clusterctl.plans.runs.selection import Owner, choose_live_run, choose_run, gather_runs, sort_own_first
from clusterctl.plans.runs.state import NodeState, parse_state
from clusterctl.plans.runs.verdict import name_state
from clusterctl.protocol.run_id import RunId
from clusterctl.protocol.untrusted import Untrusted

ME = Owner("ann@laptop", "1a")


def part(
    run: str,
    node: str,
    state: str = "SUCCEEDED",
    *,
    by: str = ME.name,
    mark: str = "",
    submitted: float = 1.0,
) -> NodeState:
    """Build one node's part of a two-node run."""
    whose = {"launched_by": by, "launched_id": mark, "submitted": submitted}
    return parse_state(Untrusted({"run": run, "node": node, "state": state, "nnodes": 2, **whose}))


RUNS = gather_runs(
    {
        "gpu01": [
            part("a-20260102T000000-00bb", "gpu01", submitted=2.0),
            part("a-20260101T000000-00aa", "gpu01"),
            part("z-20260109T000000-00cc", "gpu01", by="bob@x", submitted=9.0),
        ],
        "gpu02": [part("a-20260101T000000-00aa", "gpu02")],
    },
    silent=["gpu03"],
)


def test_runs_come_newest_first_and_silent_nodes_show_where_a_part_is_missing() -> None:
    """A run of two nodes with one answer may have its other part on the silent node."""
    assert list(RUNS) == ["z-20260109T000000-00cc", "a-20260102T000000-00bb", "a-20260101T000000-00aa"]
    assert RUNS["a-20260102T000000-00bb"] == {"gpu01": RUNS["a-20260102T000000-00bb"]["gpu01"], "gpu03": None}
    assert set(RUNS["a-20260101T000000-00aa"]) == {"gpu01", "gpu02"}


def test_the_default_is_the_newest_of_ones_own() -> None:
    """Someone else's newer run is not taken by default, only by name."""
    assert choose_run(RUNS, None, ME) == "a-20260102T000000-00bb"
    assert choose_run(RUNS, "z", ME) == "z-20260109T000000-00cc"


def test_the_short_id_that_ps_shows_names_a_run() -> None:
    """Wherever a run is named, also where it is to be stopped; it counts as the beginning of another's name does."""
    live = gather_runs({"gpu01": [part("r-20260101T000000-0a01", "gpu01", "RUNNING")]}, [])
    twins = {**RUNS, **gather_runs({"gpu01": [part("00bb-20260103T000000-0001", "gpu01")]}, [])}

    assert choose_run(RUNS, "00bb", ME) == "a-20260102T000000-00bb"
    assert choose_live_run(live, "0a01", ME) == "r-20260101T000000-0a01"
    with pytest.raises(UsageError) as caught:
        choose_run(twins, "00bb", ME)
    assert caught.value.code == "CC-USE-024"


@pytest.mark.parametrize(
    ("name", "mark", "own"),
    [
        ("ann@laptop", "1a", True),
        ("ann@laptop", "2b", False),  # another laptop of the same name
        ("ann@hotel", "1a", True),  # the same laptop under another name
        ("ann@laptop", "", True),  # a launcher that could keep no id
        ("bob@laptop", "", False),
    ],
)
def test_whose_a_run_is_goes_by_the_id_then_by_the_name(name: str, mark: str, own: bool) -> None:
    """Where both sides have an id it decides; where one has none the name does."""
    runs = gather_runs({"gpu01": [part("r-20260101T000000-0001", "gpu01", by=name, mark=mark)]}, [])
    other = gather_runs({"gpu01": [part("r-20260101T000000-0001", "gpu01", by="zoe@x", submitted=9.0)]}, [])[
        "r-20260101T000000-0001"
    ]

    assert list(sort_own_first({"z-1": other, **runs}, ME)) == (
        ["r-20260101T000000-0001", "z-1"] if own else ["z-1", "r-20260101T000000-0001"]
    )


def test_a_namesakes_run_is_explained() -> None:
    """Someone of one's own name is another: a message with `no run of ann` alone would look wrong beside `ps`."""
    runs = gather_runs({"gpu01": [part("r-20260101T000000-0001", "gpu01", "RUNNING", mark="2b")]}, [])
    for choose in (choose_run, choose_live_run):
        with pytest.raises(UsageError) as caught:
            choose(runs, None, ME)
        assert "of yours (ann@laptop)" in caught.value.message
        assert "another state directory" in caught.value.fix


@pytest.mark.parametrize(("wanted", "code"), [("a-", "CC-USE-024"), ("nope", "CC-USE-023")])
def test_a_prefix_must_match_exactly_one_run(wanted: str, code: str) -> None:
    """An ambiguous or unknown prefix lists what there is."""
    with pytest.raises(UsageError) as caught:
        choose_run(RUNS, wanted, ME)

    assert caught.value.code == code
    assert "a-20260101T000000-00aa" in caught.value.fix


def test_stop_takes_the_only_live_run_of_ones_own() -> None:
    """Two live runs must be named, others' runs too, none is reported."""
    live = gather_runs(
        {
            "gpu01": [
                part("a-20260101T000000-0001", "gpu01", "RUNNING"),
                part("b-20260101T000000-0001", "gpu01", "RUNNING", by="bob@x"),
            ]
        },
        [],
    )
    both = gather_runs(
        {
            "gpu01": [
                part("a-20260101T000000-0001", "gpu01", "RUNNING"),
                part("a-20260101T000000-0002", "gpu01", "WAITING"),
            ]
        },
        [],
    )

    assert choose_live_run(live, None, ME) == "a-20260101T000000-0001"
    with pytest.raises(UsageError, match="2 runs are active"):
        choose_live_run(both, None, ME)
    with pytest.raises(UsageError, match="no active run"):
        choose_live_run(RUNS, None, ME)


@pytest.mark.parametrize(
    ("states", "whole"),
    [
        (["SUCCEEDED", "SUCCEEDED"], "SUCCEEDED"),
        (["SUCCEEDED", "FAILED"], "FAILED"),
        (["RUNNING", "FAILED"], "RUNNING"),
        (["STOPPED", "SUCCEEDED"], "STOPPED"),
        (["SUCCEEDED", None], "UNKNOWN"),
        (["LOST", "STOPPED"], "LOST"),
    ],
)
def test_the_worst_part_names_the_run(states: list[str | None], whole: str) -> None:
    """Success needs every node; a live part keeps the run live."""
    parts = {f"n{i}": part("r", f"n{i}", state) if state else None for i, state in enumerate(states)}

    assert name_state(RunId("r"), parts) == whole


@pytest.mark.parametrize(
    "raw", [{}, {"state": 3, "ranks": [1], "left": "x"}, {"ranks": {"x": {}, "1": "no", "2": {"exit": True}}}]
)
def test_a_broken_state_record_is_unknown_not_an_error(raw: dict[str, object]) -> None:
    """What a node sends is read with distrust."""
    assert parse_state(Untrusted(raw)).state == "UNKNOWN"


@pytest.mark.parametrize("run", ["../x-20260101T000000-0001", "/tmp/x-20260101T000000-0001", "x", "", "x\n"])
def test_what_names_no_run_is_left_out(run: str) -> None:
    """A node that sends a path instead of a name gives no run to choose."""
    assert gather_runs({"gpu01": [part(run, "gpu01", "RUNNING")]}, []) == {}
