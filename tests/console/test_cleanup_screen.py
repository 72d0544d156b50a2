"""What `clean` reports before it asks."""

from __future__ import annotations

import pytest

from clusterctl.client.cleanup import NodeStorage, UnusedStorage
from clusterctl.console.cleanup import show_cleanup_plan, show_warm, warm_to_json
from clusterctl.plans.cleanup import CleanupPlan, WarmServer, parse_stored_run
from clusterctl.protocol.untrusted import Untrusted

TIME = "-20261120T110000-00ab"


def test_runs_that_are_kept_for_one_reason_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """A node that was set up again knows none of the old runs: hundreds of lines would bury the question."""
    held = [
        parse_stored_run(node, Untrusted({"run": f"r{number}{TIME}"}))
        for number in range(5)
        for node in ("gpu01", "gpu03")
    ]
    lone = parse_stored_run("gpu01", Untrusted({"run": f"x{TIME}"}))
    show_cleanup_plan(CleanupPlan((), (*((part, "doubtful") for part in held), (lone, "it lives"))), {})

    assert capsys.readouterr().out.splitlines() == [
        f"r0{TIME}, r1{TIME}, r2{TIME} and 2 more  kept on gpu[01,03]: doubtful",
        f"x{TIME}  kept on gpu01: it lives",
    ]


@pytest.mark.parametrize(
    ("age", "shown"),
    [(5.0, "5 s"), (60.0, "1m"), (7200.0, "2h"), (90000.0, "1d01h")],
)
def test_how_long_a_run_was_still(capsys: pytest.CaptureFixture[str], age: float, shown: str) -> None:
    """In its two largest units."""
    part = parse_stored_run("gpu01", Untrusted({"run": f"r{TIME}", "age": age, "bytes": 10}))
    show_cleanup_plan(CleanupPlan(((part, "old"),), ()), {})

    assert f"ended {shown} ago, " in capsys.readouterr().out


def test_a_run_has_the_state_that_ps_gives_it(capsys: pytest.CaptureFixture[str]) -> None:
    """The worst of its parts, also of one that stays, and not that of the node which answered first."""
    about = {"run": f"r{TIME}", "nnodes": 2}
    shown = [
        parse_stored_run(
            node, Untrusted({"run": f"r{TIME}", "state": {**about, "node": node, "state": state}})
        )
        for node, state in (("gpu01", "STOPPED"), ("gpu02", "FAILED"))
    ]
    parts, nothing = [part for part in shown if part], UnusedStorage(0, 0)
    found = {part.node: NodeStorage("place", (part,), nothing, nothing, nothing) for part in parts}
    show_cleanup_plan(CleanupPlan(((parts[0], "old"),), ()), found)

    assert capsys.readouterr().out.startswith(f"r{TIME}  FAILED, ended ")


def test_equal_nodes_that_are_warm_share_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """It has the oldest and the shortest time."""
    servers = {
        "gpu01": (WarmServer(7, "/opt/python", "2.13.0", ("transformers",), 60.0, 840.0, 150_000_000),),
        "gpu02": (WarmServer(8, "/opt/python", "2.13.0", ("transformers",), 30.0, 870.0, 140_000_000),),
        "gpu03": (WarmServer(9, "/opt/python", "2.14.0", (), 30.0, 870.0, 140_000_000),),
    }
    show_warm(servers)
    assert capsys.readouterr().out.splitlines() == [
        "gpu[01-02]: warm for 1m, ends in 14m: torch 2.13.0, transformers in /opt/python, 150.0 MB",
        "gpu03: warm for 30 s, ends in 14m30s: torch 2.14.0 in /opt/python, 140.0 MB",
    ]
    assert [entry["node"] for entry in warm_to_json(servers)] == ["gpu01", "gpu02", "gpu03"]
