"""The first page of a large cluster from plain values: how much is sent at first and for a change, and what folds."""

from __future__ import annotations

import re
import time
from dataclasses import replace

import pytest

from clusterctl.cli.actions.monitor.ui.feed import Cursor, View
from clusterctl.cli.actions.monitor.ui.listing import ListFollower
from clusterctl.cli.actions.monitor.ui.overview import (
    MAX_MACHINE_ROWS,
    Usage,
    render_machine_rows,
    render_run_rows,
    render_runs_note,
    render_strip,
)
from clusterctl.cli.actions.monitor.ui.server import _events
from clusterctl.cli.actions.monitor.ui.skeleton import render_page
from clusterctl.client.rpc.cluster import Cluster
from clusterctl.console.run.listing import RunSummary
from clusterctl.node.history.progress import PLACES
from clusterctl.plans.facts.utilization import NodeUsage, parse_sample
from clusterctl.plans.runs.progress import Progress
from clusterctl.protocol.run_id import RunId
from clusterctl.specs.inventory.model import Inventory, Node

NOW = 1_790_000_000.0
MAX_PAGE, MAX_UPDATE = 300_000, 20_000  # bytes
LIVE_RUNS = 25  # of 8 nodes each


def make_progress(step: int) -> Progress:
    """Make losses as a node reads them."""
    return Progress(step, 100_000, tuple(3 / (1 + place + step) for place in range(PLACES + 1)))


def make_runs(count: int, step: int = 100) -> list[RunSummary]:
    """Make runs, the newest live; of each the losses are known."""
    return [
        RunSummary(
            run_id=RunId(f"pretrain-{number:03}-20261123T070708-{number:04x}"),
            state="RUNNING" if number < LIVE_RUNS else "FAILED",
            job=f"pretrain-{number:03}",
            attempt=1,
            nodes="8/8",
            launched_by="you" if number % 2 else f"colleague{number % 9}@workstation",
            is_own=bool(number % 2),
            cause=""
            if number < LIVE_RUNS
            else f"r{number} gpu{number:03}: CUDA out of memory (tried 20.00 GiB)",
            submitted=NOW - 60 * number,
            began=NOW - 50 * number if number < LIVE_RUNS else None,
            seconds=500.0 * number,
            progress=make_progress(step if number < LIVE_RUNS else 100) if number < 2 * LIVE_RUNS else None,
        )
        for number in range(count)
    ]


def make_machines(count: int, busy: int) -> list[NodeUsage]:
    """Make nodes with 8 GPUs each."""
    gpus = [
        {"index": number, "busy": busy, "memory_used": 40_000, "memory": 81_559, "temperature": 61}
        for number in range(8)
    ]
    sample = parse_sample({"cpu": 0.4, "memory": 64 << 30, "memory_free": 32 << 30, "gpus": gpus})
    assert sample is not None
    nodes = [Node(name=f"gpu{number:03}", index=number, host=f"10.0.0.{number}") for number in range(count)]
    return [NodeUsage(node).with_sample(sample, time.monotonic() + 1000) for node in nodes]


def test_a_large_cluster_is_light() -> None:
    """200 nodes and 500 runs: the page and all its contents, and then a change of all runs that live."""
    view, cursor = View(""), Cursor()
    used = {f"gpu{number:03}": Usage("0001", "pretrain-001", "you") for number in range(8 * LIVE_RUNS)}
    view.publish_rows("runs", render_run_rows(make_runs(500)))
    view.publish_rows("machines", render_machine_rows(make_machines(200, 57), used, {}, 15.0))
    first = view.read(cursor, 0)
    assert first is not None and len(first[0]) > 500
    assert len(_events(view, *first)) + len(render_page("lab").encode()) <= MAX_PAGE
    view.publish_rows("runs", render_run_rows(make_runs(500, step=101)))
    view.publish_rows("machines", render_machine_rows(make_machines(200, 58), used, {}, 15.0))
    update = view.read(cursor, 0)
    assert update is not None and len(_events(view, *update)) <= MAX_UPDATE
    changed = [name for name in update[0] if name.startswith("runs/")]
    assert len(changed) == LIVE_RUNS
    view.publish_rows("runs", render_run_rows(make_runs(500, step=101)))
    assert view.read(cursor, 0) == ({}, [])


def test_time_alone_changes_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """What counts is counted by the page."""
    runs = [*make_runs(2), replace(make_runs(1)[0], state="STALLED", quiet_since=NOW)]
    before = render_run_rows(runs)
    monkeypatch.setattr(time, "time", lambda: NOW + 3600)
    assert render_run_rows(runs) == before
    assert all("data-since=" in html.markup for html in before.values())


def test_a_row_that_is_gone_is_sent_once() -> None:
    """As an empty part, and only to a page that has it."""
    view, cursor = View(""), Cursor()
    view.publish_rows("runs", render_run_rows(make_runs(2)))
    view.read(cursor, 0)
    view.publish_rows("runs", render_run_rows(make_runs(1)))
    gone = {"runs/pretrain-001-20261123T070708-0001": ""}
    assert view.read(cursor, 0) == (gone, []) and view.read(cursor, 0) == ({}, [])
    view.publish_rows("runs", render_run_rows(make_runs(2)))
    fresh = view.read(Cursor(), 0)
    ids = [f"runs/pretrain-00{number}-20261123T070708-000{number}" for number in (0, 1)]
    assert fresh is not None and list(fresh[0]) == [
        *ids,
        "runs/",
    ]  # by which the page knows that these are all


def test_links_are_short_where_they_mean_one_run() -> None:
    """Two runs with the same short id have whole ids as their links."""
    first, second, third = make_runs(3)
    twin = replace(second, run_id=RunId("other-20261123T070708-0001"))
    drawn = {run_id: html.markup for run_id, html in render_run_rows([first, second, third, twin]).items()}
    assert 'href="#0000"' in drawn[first.run_id] and 'href="#0002"' in drawn[third.run_id]
    assert (
        f'href="#{second.run_id}"' in drawn[second.run_id] and f'href="#{twin.run_id}"' in drawn[twin.run_id]
    )


def test_machines_fold_and_each_says_whose_it_is() -> None:
    """Alike nodes share a row, the free ones another; one that is down says since when and why."""
    machines = make_machines(200, 57)
    machines[7] = NodeUsage(machines[7].node).with_error("CC-SSH-013 no connection")
    used = {f"gpu{number:03}": Usage("0001", "pretrain", "ann") for number in range(100)}
    rows = {
        name: html.markup for name, html in render_machine_rows(machines, used, {"gpu007": NOW}, 15.0).items()
    }
    assert len(rows) == 3 < MAX_MACHINE_ROWS
    assert "down since" in rows["gpu007"] and "CC-SSH-013" in rows["gpu007"]
    assert 'href="#0001"' in rows["gpu[000-006,008-099]"] and "57 %" in rows["gpu[000-006,008-099]"]
    assert "free" in rows["gpu[100-199]"] and "61 °C" in rows["gpu[100-199]"]


def test_a_machine_is_free_only_once_the_runs_are_known() -> None:
    """Then a line counts the machines, in use, free and down, with how busy their GPUs are."""
    machines = make_machines(4, 57)
    unknown = [html.markup for html in render_machine_rows(machines, None, {}, 15.0).values()]
    assert len(unknown) == 4 and "free" not in "".join(unknown)
    assert "chip" not in render_strip(machines, None, {}, 15.0).markup
    used = {"gpu000": Usage("0001", "pretrain", "ann")}
    line = render_strip(machines, used, {"gpu003": NOW}, 15.0).markup
    assert re.findall(">([^<]+)<", line) == ["4 nodes, 32 GPUs: 57 % busy", "1 in use", "2 free", "1 down"]


def test_progress_that_was_seen_stays_when_a_node_has_no_time_to_read_it() -> None:
    """Of the same attempt; when a run began stays too, within what clocks seem to move."""
    inventory = Inventory(file="lab.yaml", cluster="lab", nodes=())
    follower = ListFollower(Cluster(print), inventory, View(""), list, "clusterctl")  # type: ignore[arg-type]  # no runs are asked for
    (run,) = make_runs(1)
    follower._shown = {run.run_id: run}
    busy = replace(run, progress=None, began=NOW + 1)
    assert follower._steady(busy) == run
    assert follower._steady(replace(busy, began=NOW + 60)) == replace(run, began=NOW + 60)
    assert follower._steady(replace(busy, attempt=2)).progress is None


def test_an_empty_list_shows_the_next_step() -> None:
    """With the command to copy."""
    page = render_runs_note(0, "clusterctl --lab x").markup
    assert 'data-copy="clusterctl --lab x launch job.yaml"' in page and "<code>" in page
    assert render_runs_note(3, "clusterctl").markup == ""
