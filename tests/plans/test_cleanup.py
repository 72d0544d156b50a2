"""Which runs may go is decided by plain rules, and what lives anywhere stays everywhere."""

from __future__ import annotations

from typing import Any

import pytest

from clusterctl.plans.cleanup import (
    CleanupPlan,
    RetentionPolicy,
    StoredRun,
    parse_orphans,
    parse_stored_run,
    plan_cleanup,
)
from clusterctl.plans.runs.selection import Owner
from clusterctl.protocol.untrusted import Untrusted

DAY = 86400.0
TIME = "-20261120T110000-00ab"
ME = Owner("me@laptop", "id-1")


def part(name: str, node: str = "gpu01", age: float = 1.0, blocked: str = "", **state: Any) -> StoredRun:
    """Make a part of a run of mine; `started=None` for one that was never started."""
    run = name + TIME
    known = {"run": run, "job": "digits", "nnodes": 1, "state": "SUCCEEDED", "submitted": 1000.0 - age}
    owner = {"launched_by": ME.name, "launched_id": ME.id}
    raw = None if state.get("state", "") is None else {**known, **owner, **state}
    read = parse_stored_run(
        node,
        Untrusted(
            {
                "run": run,
                "node_dir": f"0-{node}",
                "age": age * DAY,
                "state": raw,
                "bytes": 1,
                "blocked": blocked,
            }
        ),
    )
    assert read is not None
    return read


def going(choice: CleanupPlan) -> set[str]:
    """Name what goes."""
    return {f"{one.run_id.removesuffix(TIME)}@{one.node}: {why}" for one, why in choice.removals}


def test_the_newest_of_each_job_stay() -> None:
    """Counted for each job by itself."""
    parts = [part(f"r{n}", age=n) for n in range(1, 5)] + [part("other", age=9, job="other")]
    assert going(plan_cleanup(parts, RetentionPolicy(2), ME)) == {
        "r3@gpu01: beyond the newest",
        "r4@gpu01: beyond the newest",
    }


def test_what_is_old_goes_whatever_its_place() -> None:
    """Old is what was still for long, on all nodes."""
    parts = [part("old", age=31), part("half", "gpu01", 31, nnodes=2), part("half", "gpu02", 3, nnodes=2)]
    assert going(plan_cleanup(parts, RetentionPolicy(), ME)) == {"old@gpu01: old"}


def test_a_run_that_lives_on_one_node_stays_on_all() -> None:
    """However old the other part is."""
    parts = [part("r", "gpu01", 99, nnodes=2), part("r", "gpu02", 99, nnodes=2, state="RUNNING")]
    assert going(plan_cleanup(parts, RetentionPolicy(0, 0), ME)) == set()


def test_where_no_node_knows_only_the_age_counts() -> None:
    """A node that is silent or was restarted may still have it, on a home that nodes share too."""
    silent = [part("r", "gpu01", 5, nnodes=2)]
    unknown = [part("u", "gpu01", 5, state="UNKNOWN")]
    kept = plan_cleanup([*silent, *unknown], RetentionPolicy(0), ME)
    assert going(kept) == set()
    assert {one.run_id.removesuffix(TIME): why for one, why in kept.kept} == {
        "r": "only 1 of its 2 nodes reported it, so only its age counts",
        "u": "on one node its end was not recorded, so only its age counts",
    }
    assert plan_cleanup([*silent, *unknown], RetentionPolicy(1), ME).kept == kept.kept[:1]
    assert going(plan_cleanup([*silent, *unknown], RetentionPolicy(0, 4 * DAY), ME)) == {
        "r@gpu01: old",
        "u@gpu01: old",
    }


def test_what_was_never_started_goes_after_a_day() -> None:
    """A launch that is under way right now looks the same."""
    parts = [part("new", age=0.5, state=None), part("given-up", age=2, state=None)]
    assert going(plan_cleanup(parts, RetentionPolicy(), ME)) == {"given-up@gpu01: never started"}


def test_runs_of_others_are_theirs() -> None:
    """Unless everybody's are asked for; they do not count among mine."""
    theirs = [part(f"t{n}", age=n, launched_by="you@desk", launched_id="id-2") for n in range(1, 4)]
    assert going(plan_cleanup([*theirs, part("mine", age=9)], RetentionPolicy(1), ME)) == set()
    assert len(going(plan_cleanup(theirs, RetentionPolicy(1), None))) == 2


def test_what_is_blocked_is_named() -> None:
    """With the node's reason."""
    choice = plan_cleanup(
        [part("r", age=40, blocked="some of its processes are still running")], RetentionPolicy(), ME
    )
    assert (going(choice), [why for _, why in choice.kept]) == (
        set(),
        ["some of its processes are still running"],
    )


def test_nonsense_is_no_reason_to_remove() -> None:
    """What a node reports wrongly makes a part young."""
    for age in ("old", float("nan"), -1.0, None, True):
        raw = {"run": "r" + TIME, "node_dir": None, "age": age, "state": "x", "bytes": "many"}
        one = parse_stored_run("gpu01", Untrusted(raw))
        assert one is not None
        assert one.age < 1e10
        assert going(plan_cleanup([one], RetentionPolicy(0), ME)) == set()


def test_what_names_no_run_is_no_part() -> None:
    """Neither is it removed, nor does it count among the newest."""
    for run in (7, None, "", "r", "../r" + TIME, "/r" + TIME):
        assert parse_stored_run("gpu01", Untrusted({"run": run, "node_dir": "0-gpu01", "age": 9.0})) is None


def test_what_names_no_run_is_no_orphan() -> None:
    """A process whose run id is a path is left out of what may be ended."""
    rows = [{"run": run, "pid": 5, "starttime": 1} for run in ("../r" + TIME, "r" + TIME)]
    assert [orphan.run for orphan in parse_orphans(rows, {}).own] == ["r" + TIME]


@pytest.mark.parametrize(
    ("own", "others", "impossible"),
    [
        ([], {}, 0),
        ([{"run": "no name of a run", "pid": 5, "starttime": 1}], {"bob": 2}, 0),
        ([{"run": "r" + TIME, "pid": 1 << 22, "starttime": 0}], {}, 0),
        ([{"run": "r" + TIME, "pid": pid, "starttime": 1} for pid in (0, -1, 2**22 + 1, 2**63, "7")], {}, 5),
        ([{"run": "r" + TIME, "pid": 5, "starttime": time} for time in (-1, None, 0.5, 2**64)], {}, 4),
        ([7, None, [], {}, "x"], {}, 5),
        ([], {"bob": 0, "eve": -1, "ann": "many", "eva": 3}, 3),
        (None, {}, 1),
        ([], None, 1),
        ("left", 7, 2),
    ],
)
def test_what_cannot_be_a_process_is_counted(own: object, others: object, impossible: int) -> None:
    """A node that lists such entries is not taken for one without orphans."""
    orphans = parse_orphans(own, others)

    assert orphans.impossible == impossible
    assert all(orphan.pid == 1 << 22 for orphan in orphans.own)


def test_runs_that_one_node_makes_up_crowd_out_its_own_alone() -> None:
    """Twenty newer ones of the same job, which gpu01 invents, leave what gpu02 holds where it is."""
    mine = [
        part("old", "gpu02", age=5),
        part("both", "gpu01", 6, nnodes=2),
        part("both", "gpu02", 6, nnodes=2),
    ]
    invented = [part(f"new{number}", "gpu01", age=0.1) for number in range(20)]
    gone = going(plan_cleanup([*invented, *mine], RetentionPolicy(10), ME))
    assert gone
    assert all(one.startswith("new") for one in gone)


def test_what_goes_is_in_order() -> None:
    """By job, then by time, however the nodes list it: the question is easier to answer."""
    parts = [part(run, node) for node in ("gpu01", "gpu02") for run in ("b-2", "a-9", "b-1")]
    assert [
        one.run_id.removesuffix(TIME) for one, _ in plan_cleanup(parts, RetentionPolicy(0), ME).removals
    ] == ["a-9"] * 2 + ["b-1"] * 2 + ["b-2"] * 2
