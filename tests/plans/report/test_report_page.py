"""A report from plain values: what it must say, how large it gets, and that hostile values do nothing."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from reported import BEGAN, HOSTILE, Tags, explain, make_record, make_run

from clusterctl.plans.report.axes import format_bytes
from clusterctl.plans.report.charts import align, node_plots
from clusterctl.plans.report.page import render_report
from clusterctl.plans.report.plot import Line, Plot, Scale, render_plot
from clusterctl.plans.report.reported_run import find_moments, find_phases, make_scale
from clusterctl.plans.runs.history import (
    Launched,
    Machine,
    ScalarPoint,
    Scalars,
    parse_journal,
)


def test_the_result_and_its_cause_come_first() -> None:
    """Then who, when and what; the failure is marked on every plot, and the rank's last lines are there."""
    page = render_report(
        make_run({"gpu01": make_record("gpu01"), "gpu02": make_record("gpu02")}), None, "cctl", ()
    )
    text = Tags(page).text
    head = (
        "digits",
        "FAILED",
        "ran for 46.0 s",
        "step 49",
        "nodes 2 (gpu[01-02])",
        "by ann@laptop",
        "id 923c",
    )
    places = [text.index(part) for part in (*head, "rank 1 on gpu02: ValueError: bad batch")]
    assert places == sorted(places)
    assert text.index("ValueError: bad batch") < text.index("Traceback: bad batch")
    for fact in (
        "8f3a8f3a8f3a8f3a",
        "2 x H100",
        "network in the inventory, 10.0.0.0/24",
        "eth0 10.0.0.1",
        "NCCL_DEBUG=INFO",
        "2.13",
    ):
        assert fact in text, fact
    for fact in ("train.py --lr 0.1", "cctl logs 923c", "GPU 0: Xid 79", "last: 0.06 at step 49"):
        assert fact in text, fact
    assert page.count('class="mark failed"') == page.count('role="img"')
    assert set(Tags(page).tags) & {"script", "img", "link", "iframe", "a"} == set()


def test_hostile_values_do_nothing() -> None:
    """Names, lines, reasons and numbers that a node sends are texts, whatever is in them."""
    record = make_record("gpu01")
    hostile = replace(
        record,
        launched=Launched(
            (HOSTILE,), HOSTILE, HOSTILE, {HOSTILE: HOSTILE}, (HOSTILE,), HOSTILE, 1, (), {"code": HOSTILE}
        ),
        output={0: {"stdout": (HOSTILE,) * 30, "stderr": (HOSTILE,)}},
        scalars=(
            Scalars(HOSTILE, HOSTILE, 1, (ScalarPoint(BEGAN, 1, 1e30), ScalarPoint(BEGAN + 1, None, None))),
        ),
        journal=parse_journal(json.dumps({"time": BEGAN, "event": "stopping", "reason": HOSTILE}).encode()),
        history=replace(
            record.history,
            columns={("nic", HOSTILE, "received"): (1e30, -1e30) * 30, ("rank", HOSTILE, "rss"): (0.0,) * 60},
            machine=Machine(1, 1, ((HOSTILE, None),)),
        ),
    )
    run = make_run(
        {HOSTILE: hostile, "gpu02": hostile}, silent={"gpu01": HOSTILE}, explanation=explain((HOSTILE,))
    )
    honest = Tags(render_report(make_run({"gpu01": record, "gpu02": record}), None, "cctl", ()))
    for page in (render_report(run, None, HOSTILE, ()), render_report(run, run, HOSTILE, ())):
        seen = Tags(page)
        assert set(seen.tags) <= {*honest.tags, "thead", "td", "th", "h3", "article"}
        assert seen.attributes <= honest.attributes
        assert "alert(1)" in seen.text and "\x1b" not in page and "\u202e" not in page


def test_a_run_without_samples_says_so_and_shows_the_rest() -> None:
    """As of an older version, or of nodes that do not answer."""
    text = Tags(render_report(make_run({}, silent={"gpu01": "no answer"}), None, "cctl", ())).text
    assert "No samples of the machines are on record" in text and "gpu01: no record: no answer" in text
    assert "ValueError: bad batch" in text and "ann@laptop" in text


def test_two_runs_side_by_side_with_differences_marked() -> None:
    """A row that differs has a mark, one that does not has none; both losses are in one plot."""
    other = replace(make_record("gpu01"), launched=Launched(about={"torch": "2.12"}))
    page = render_report(make_run({"gpu01": make_record("gpu01")}), make_run({"gpu01": other}), "cctl", ())
    differing, _, equal = page.partition("</table>")
    assert "2.13" in differing and "2.12" in differing and "ann@laptop" not in differing.partition("<h2")[2]
    assert "ann@laptop" in equal.partition("</details>")[0]


@pytest.mark.parametrize(("nodes", "most"), [(3, 160_000), (200, 500_000)])
def test_a_report_stays_small(nodes: int, most: int) -> None:
    """Each of few nodes has small plots; of many the whole and the most telling are shown."""
    records = {f"gpu{number:03}": make_record(f"gpu{number:03}", 300, 8) for number in range(nodes)}
    page = render_report(make_run(records), None, "cctl", ())
    assert len(page.encode()) < most
    small = page.count('<figure class="plot small"')
    assert small == 5 * min(nodes, 12) and ("all 200 nodes" in page) == (nodes == 200)


def test_phases_and_moments_of_a_journal() -> None:
    """A phase lasts until the next one; the same on two nodes is one moment."""
    run = make_run({"gpu01": make_record("gpu01"), "gpu02": make_record("gpu02")})
    phases = find_phases(run.records["gpu01"].journal, BEGAN + 60)
    assert [(phase.name, phase.end - phase.begin) for phase in phases] == [
        ("preparing", 4.0),
        ("waiting", 1.0),
        ("running", 44.0),
        ("stopping", 2.0),
    ]
    moments = find_moments(run)
    ends = [(moment.nodes, moment.sentence) for moment in moments if moment.ranks]
    assert ends == [(("gpu01", "gpu02"), "r1 ended: exit 1")]
    scale = make_scale(run)
    assert (scale.begin, scale.end) == (BEGAN, BEGAN + 52)
    assert [mark.time for mark in scale.marks if mark.failed] == [BEGAN + 50]


def test_checkpoints_do_not_hide_what_else_happened() -> None:
    """What is safe is a fact of the run; of what is skipped the first ones are moments."""
    names = [("safe", 300), ("skipped", 300), ("lost", 1)]
    entries = [
        {"time": BEGAN + number / 100, "event": "checkpoint", "state": word, "name": f"{word}-{number}"}
        for word, count in names
        for number in range(count)
    ]
    entries.append({"time": BEGAN + 40, "event": "resume", "name": "safe-1", "files": 2, "seconds": 1.0})
    journal = parse_journal("\n".join(map(json.dumps, entries)).encode())
    moments = find_moments(make_run({"gpu01": replace(make_record("gpu01"), journal=journal)}))

    assert [moment.sentence for moment in moments if moment.bad] == [
        "checkpoint skipped-0 was skipped",
        "checkpoint lost-0 is lost",
        *(f"checkpoint skipped-{number} was skipped" for number in range(1, 5)),
    ]
    assert [moment.sentence for moment in moments if not moment.bad] == [
        "resumes from checkpoint safe-1: 2 files (0 bytes) in 1.0 s"
    ]


def test_a_line_has_gaps_where_nothing_is_known() -> None:
    """And ends where the scale does."""
    points = tuple((float(time), 1.0) for time in (0, 1, 2, 3, 20, 21, 99))
    drawn = render_plot(Plot("x", (Line("a", points),), format_bytes), Scale(0.0, 50.0)).markup
    path = drawn.partition('class="line c0"')[0].rpartition('d="')[2]
    assert path.count("M") == 2
    assert "nan" not in drawn and "inf" not in drawn


def test_many_gpus_are_a_mean_in_a_range() -> None:
    """Eight lines over each other say less."""
    (busy, *_) = node_plots(make_record("gpu01", gpus=8))
    assert len(busy.lines) == 1 and busy.band is not None and busy.lines[0].label == "mean of 8 GPU"


def test_nodes_are_compared_at_the_same_moments() -> None:
    """The mean in each part of the time; nothing where nothing is known."""
    assert align([(0.0, 1.0), (0.4, 3.0), (9.9, None)], 0.0, 10.0, 10)[:2] == ((0.5, 2.0), (1.5, None))
