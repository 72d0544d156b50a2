"""The parts of the page from plain values: many nodes fold, hostile names are texts, and both languages."""

from __future__ import annotations

import time
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from clusterctl.cli.actions.monitor.report import report_run
from clusterctl.cli.actions.monitor.status import Diagnosis
from clusterctl.cli.actions.monitor.ui.fragments import (
    render_away,
    render_diagnosis,
    render_missing,
    render_nodes,
    render_plots,
    render_problem,
    render_summary,
)
from clusterctl.cli.actions.monitor.ui.overview import render_run_rows
from clusterctl.cli.actions.monitor.ui.skeleton import render_page
from clusterctl.client.rpc.cluster import Answers
from clusterctl.client.run_evidence import Records
from clusterctl.console.run.hang import show_diagnosis, show_gpus
from clusterctl.console.run.listing import summarize_runs
from clusterctl.console.run.status import render_age
from clusterctl.errors import NodeError
from clusterctl.plans.diagnose.evidence import Entry, Frame, GroupRecord, NodeEvidence, RankEvidence
from clusterctl.plans.diagnose.hang import Judgement, judge
from clusterctl.plans.diagnose.kept import STALL, KeptDiagnosis
from clusterctl.plans.report.result import render_head
from clusterctl.plans.runs.history import Launched, NodeRecord, ScalarPoint, Scalars
from clusterctl.plans.runs.rows import list_node_rows
from clusterctl.plans.runs.selection import Owner
from clusterctl.plans.runs.speed import SpeedVerdict, Wait
from clusterctl.plans.runs.state import Parts, RankActivity, find_stalls, parse_state
from clusterctl.protocol.messages.facts import GpuUsage
from clusterctl.protocol.ranks import Rank
from clusterctl.protocol.run_id import RunId
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.translation import use_language

RUN = RunId("digits-20261123T070708-923c")
HOSTILE = "</td><script>alert(1)</script>\x1b[31m\u202e"
NOW = time.time()
NODES = {"gpu000": 0, "gpu001": 8}  # with their first ranks


class Text(HTMLParser):
    """What is read on a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text = ""
        self.feed(page)

    def handle_data(self, data: str) -> None:
        """Keep it."""
        self.text += data


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


def draw_nodes(parts: Parts, judgement: Judgement | None = None) -> str:
    """Draw the table of nodes."""
    stalls = find_stalls(parts, {}, NOW)
    return render_nodes(list_node_rows(parts, stalls, None, render_age, judgement)).markup


def make_hang(suspect: int, world: int) -> list[RankEvidence]:
    """Make ranks of which all but one wait in an all_reduce, which that one has not entered."""
    entry = Entry(4, None, "all_reduce", "[[1]]", "Float", done=False, age=601.0)
    group = GroupRecord("0", "default_pg", (), (entry,))
    loads, waits = Frame("train.py", 4, "load_batch"), Frame("train.py", 12, "<module>")
    return [
        RankEvidence(rank, f"gpu{rank // 8:03}", process="S", stack=f"stack of {HOSTILE}", frames=(loads,))
        if rank == suspect
        else RankEvidence(rank, f"gpu{rank // 8:03}", process="S", frames=(waits,), groups=(group,))
        for rank in range(world)
    ]


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


def test_the_rank_that_the_others_wait_for_is_marked() -> None:
    """Its node has a row of its own; that all ranks are silent for a time of their own does not unfold the others."""
    names = [f"gpu{number:03}" for number in range(200)]
    parts = {
        name: replace(
            part, rank_activity=tuple(RankActivity(one.rank, "x", NOW - 700 - one.rank) for one in part.ranks)
        )
        for name, part in make_parts(names).items()
        if part
    }
    page = draw_nodes(parts, judge(make_hang(9, 1600), (), 1600))
    assert page.count("<tr>") == 3
    assert '<span class="cell bad">r9 running, suspect</span>' in page
    assert "r0-7, 16-1599 running, waits" in page
    assert "r0: no output for 11m40s" in page and "and 1588 more ranks" in page


def test_a_stall_that_some_of_equal_nodes_report_is_shown() -> None:
    """Also if the first of the row does not report it yet."""
    parts = dict(make_parts([f"gpu{number:03}" for number in range(200)]))
    part = parts["gpu007"]
    assert part is not None
    parts["gpu007"] = replace(part, diagnosed="stall", quiet_since=NOW - 700)
    page = draw_nodes(parts)
    assert page.count("<tr>") == 2 and "no progress for" in page


def test_an_answer_has_the_words_of_diagnose(capsys: pytest.CaptureFixture[str]) -> None:
    """The sentence comes first, as on a terminal; then the ranks, their stacks and who was asked."""
    ranks = make_hang(9, 16)
    judgement = judge(ranks, (), 16)
    nodes = {name: NodeEvidence(name, tuple(ranks[begin : begin + 8]), 0.2) for name, begin in NODES.items()}
    gpus = {"gpu000": (GpuUsage(index=0, busy=100, memory_used=1024, memory=81559),)}
    show_diagnosis(judgement, ranks, Answers(nodes, {}), "clusterctl", with_stacks=False)
    show_gpus(gpus)
    page = Text(
        render_diagnosis(Diagnosis(Answers(nodes, {}), judgement, gpus, 2), "14:03:05", "clusterctl").markup
    ).text
    printed = capsys.readouterr().out.splitlines()
    assert page.startswith(printed[0]) and printed[0].endswith("(CC-HANG-004)")
    assert "rank 9 (gpu001) has not entered all_reduce #4 of group default_pg" in printed[0]
    for line in (printed[1].strip(), *printed[-2:]):
        assert line.replace("`", "") in page
    assert "stacks of rank 9" in page and "14:03:05 queried 16 ranks" in page


def test_a_run_that_stalls_says_why_first() -> None:
    """Below its head; the same answer as a button gives, and where the rank was."""
    ranks = tuple(make_hang(9, 16))
    hang = KeptDiagnosis(STALL, 600.0, judge(ranks, (), 16), ranks[9:10], ranks)
    live = replace(
        report_run(RUN, make_parts(["gpu000", "gpu001"]), None, {}, Records({}, {}), "cctl"), hang=hang
    )
    text = Text(render_head(live, "h2").markup + render_summary(live, "", []).markup).text
    assert text.index("RUNNING") < text.index("(CC-HANG-004)") < text.index("when no rank had made progress")
    assert text.count(hang.judgement.sentence) == 1


def test_a_live_run_shows_its_speed() -> None:
    """In the result, where the report has it, once a run has samples."""
    speed = SpeedVerdict({"steps/s": 2.4}, wait=Wait(0.31, 0.31, (1,), ("gpu01",)))
    live = report_run(RUN, make_parts(["gpu000", "gpu001"]), None, {}, Records({}, {}), "cctl")
    text = Text(render_summary(replace(live, speed=speed), "", []).markup).text
    assert "Speed ranks waited 31 % of each step for rank 1 (gpu01); 2.4 steps/s" in text
    assert live.speed is None and "Speed" not in Text(render_summary(live, "", []).markup).text


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
    runs = summarize_runs({RUN: parts}, Owner("me"), ["gpu01"])
    drawn = [
        render_summary(run, HOSTILE, [HOSTILE]),
        *(html for parts in render_plots(run) for html in parts.values()),
        render_nodes(list_node_rows(parts, {"gpu01": {Rank(0): HOSTILE}}, None, render_age)),
        render_head(run, "h2"),
        *render_run_rows(runs).values(),
        render_problem(error),
        render_away([error]),
        render_missing(HOSTILE),
        render_diagnosis(
            Diagnosis(Answers({}, {}), judge(make_hang(0, 2), [HOSTILE], 2), {}, 2), HOSTILE, "clusterctl"
        ),
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
    (row,) = render_run_rows(summarize_runs({RUN: make_parts(["gpu01"])}, Owner("ann@laptop"))).values()
    assert 'href="#923c"' in row.markup


def test_the_page_is_in_the_language_of_the_user(request: pytest.FixtureRequest) -> None:
    """As everything that is printed."""
    assert '<html lang="en">' in render_page("lab") and "All runs" in render_page("lab")
    request.addfinalizer(lambda: use_language("en"))
    use_language("zh")
    assert '<html lang="zh">' in render_page("lab") and "所有任务" in render_page("lab")
