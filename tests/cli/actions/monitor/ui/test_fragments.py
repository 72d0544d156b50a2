"""The parts of the page from plain values: many nodes fold, hostile names are texts, and both languages."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from clusterctl.cli.actions.monitor.report import report_run
from clusterctl.cli.actions.monitor.ui.fragments import (
    render_away,
    render_missing,
    render_nodes,
    render_page,
    render_plots,
    render_problem,
    render_runs,
    render_summary,
)
from clusterctl.client.history import Records
from clusterctl.console.run_list import list_run_rows
from clusterctl.console.runs import list_node_rows
from clusterctl.errors import NodeError
from clusterctl.plans.runs.history import Launched, NodeRecord, ScalarPoint, Scalars
from clusterctl.plans.runs.selection import Owner
from clusterctl.plans.runs.state import Parts, parse_state
from clusterctl.protocol.run_id import RunId
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.translation import use_language

RUN = RunId("digits-20261123T070708-923c")
HOSTILE = "</td><script>alert(1)</script>\x1b[31m\u202e"
NOW = time.time()


def make_parts(names: list[str], **more: Any) -> Parts:
    """Make a run in which each node has eight ranks."""
    return {
        name: parse_state(
            Untrusted(
                {
                    "run": RUN, "job": "digits", "cluster": "lab", "nnodes": len(names), "state": "RUNNING",
                    "since": NOW - 60, "submitted": NOW - 70, "began": NOW - 60, "launched_by": "ann@laptop",
                    "node": name, "node_rank": number, "world_size": 8 * len(names),
                    "ranks": {str(number * 8 + local): {"local_rank": local, "pid": 7} for local in range(8)},
                    **more,
                }
            )
        )
        for number, name in enumerate(names)
    }  # fmt: skip


def draw_nodes(parts: Parts) -> str:
    """Draw the table of nodes."""
    return render_nodes(list_node_rows(parts, {}, None)).markup


def test_equal_nodes_of_many_are_one_row() -> None:
    """The one that differs has its own; of few nodes each rank is a cell."""
    names = [f"gpu{number:03}" for number in range(200)]
    parts = dict(make_parts(names))
    assert draw_nodes(parts).count("<tr>") == 2 and "r0-1599 running" in draw_nodes(parts)
    parts["gpu007"] = None
    page = draw_nodes(parts)
    assert page.count("<tr>") == 3 and "gpu[000-006,008-199]" in page and "no answer" in page
    few = draw_nodes(make_parts(["gpu01", "gpu02"]))
    assert few.count('class="cell live"') == 16 and "r15 running" in few


def test_what_nodes_name_does_nothing() -> None:
    """Names, reasons and numbers that a node sends are texts."""
    parts = make_parts(["gpu01"], job="x", reason=HOSTILE, launched_by=HOSTILE, stopping=HOSTILE)
    record = replace(
        NodeRecord("gpu01"),
        launched=Launched((HOSTILE,), about={"code": HOSTILE}),
        scalars=(Scalars(HOSTILE, HOSTILE, 1, (ScalarPoint(NOW, 1, 1.0),)),),
    )
    run = report_run(RUN, parts, None, {}, Records({"gpu01": record}, {}), "cctl")
    error = NodeError("CC-RUN-032", node="gpu01", evidence=HOSTILE)
    drawn = [
        render_summary(run, HOSTILE, [HOSTILE]),
        render_plots(run),
        render_nodes(list_node_rows(parts, {}, None)),
        render_runs(list_run_rows({RUN: parts}, Owner("me"), ["gpu01"])),
        render_problem(error),
        render_away([error]),
        render_missing(HOSTILE),
    ]
    for html in drawn:
        assert "<script" not in html.markup and "\x1b" not in html.markup and "\u202e" not in html.markup
    assert any("&lt;script&gt;" in html.markup for html in drawn)
    assert "<script>" not in render_page(HOSTILE)


def test_a_live_run_can_be_stopped_and_the_list_leads_to_it() -> None:
    """The question before a stop names the run; a run that has ended has none to press."""
    live = report_run(RUN, make_parts(["gpu01"]), None, {}, Records({}, {}), "cctl")
    page = render_summary(live, "", ["digits-...: RUNNING"]).markup
    assert 'data-live="yes"' in page and "Stop it?" in page
    ended = report_run(RUN, make_parts(["gpu01"], state="SUCCEEDED"), None, {}, Records({}, {}), "cctl")
    assert "data-live" not in render_summary(ended, "", []).markup
    rows = list_run_rows({RUN: make_parts(["gpu01"])}, Owner("ann@laptop"), ["gpu01"])
    assert f'href="#{RUN}"' in render_runs(rows).markup


def test_the_page_is_in_the_language_of_the_user(request: pytest.FixtureRequest) -> None:
    """As everything that is printed."""
    assert '<html lang="en">' in render_page("lab") and "All runs" in render_page("lab")
    request.addfinalizer(lambda: use_language("en"))
    use_language("zh")
    assert '<html lang="zh">' in render_page("lab") and "所有任务" in render_page("lab")
