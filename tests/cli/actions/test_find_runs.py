"""`logs good` where several runs begin with `good`: which there are, and the command for the newest."""

from __future__ import annotations

import time

import click
import pytest

from clusterctl.cli.actions.find_runs import choose_found_run
from clusterctl.cli.context.settings import Settings
from clusterctl.errors import UsageError
from clusterctl.plans.runs.selection import choose_live_run, choose_run, gather_runs
from clusterctl.plans.runs.state import parse_state
from clusterctl.protocol.untrusted import Untrusted

DAYS = {"good-20260101T000000-0001": 5, "good-20260102T000000-0002": 3, "bad-20260101T000000-0003": 0}
STATES = [
    parse_state(
        Untrusted(
            {
                "run": run,
                "node": "gpu01",
                "state": "SUCCEEDED",
                "submitted": time.time() - 86400 * days - 3600,
            }
        )
    )
    for run, days in DAYS.items()
]
RUNS = gather_runs({"gpu01": STATES}, [])


def test_an_ambiguous_prefix_lists_the_runs_with_state_and_age() -> None:
    """The newest first; the command to paste reaches the same inventory with the same verb."""
    context = click.Context(click.Command("logs"), info_name="logs", obj=Settings(lab="two"))
    with context, pytest.raises(UsageError) as caught:
        choose_found_run(choose_run, RUNS, "good")

    first, second = caught.value.evidence.splitlines()
    assert caught.value.message == "'good' matches 2 runs"
    assert first.startswith("good-20260102T000000-0002  SUCCEEDED, launched") and "3d01h ago" in first
    assert second.startswith("good-20260101T000000-0001  ") and "5d01h ago" in second
    assert caught.value.fix == "the newest: clusterctl --lab two logs good-20260102T000000-0002"


def test_other_choices_are_left_alone() -> None:
    """A whole name, an unambiguous prefix, and a prefix that no run has."""
    assert choose_found_run(choose_live_run, RUNS, "good-20260101") == "good-20260101T000000-0001"
    assert choose_found_run(choose_run, RUNS, "b") == "bad-20260101T000000-0003"
    with pytest.raises(UsageError, match="no run 'x'"):
        choose_found_run(choose_run, RUNS, "x")
