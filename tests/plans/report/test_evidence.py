"""A run that hung, one that was restarted and one with a slow rank: what its report shows of that, and where."""

from __future__ import annotations

from dataclasses import replace

from reported import (
    BEGAN,
    HOSTILE,
    Tags,
    make_hang,
    make_restarted,
    make_run,
    make_stalled,
)

from clusterctl.plans.diagnose.hang import Judgement
from clusterctl.plans.diagnose.slow import Lateness, Slowness
from clusterctl.plans.report.page import render_report
from clusterctl.plans.report.reported_run import MAX_MARKS, find_moments, make_scale
from clusterctl.plans.runs.cause import Explanation
from clusterctl.plans.runs.speed import SpeedVerdict, Wait


def test_a_hung_run_shows_which_rank_was_where() -> None:
    """The sentence is in the result; then a row for each kind of rank, and their stacks, that of the suspect open."""
    records = {name: make_stalled(name, over=False) for name in ("gpu01", "gpu02")}
    run = make_run(records, verdict=None, explanation=Explanation(), hang=make_hang())
    page = render_report(run, None, "cctl", ())
    text = Tags(page).text
    when = "when no rank had made progress for 10m, rank 1 (gpu02) was at train.py:5 in load_batch()"
    assert text.index("(CC-HANG-004)") < text.index(when) < text.index("Where the ranks were")
    assert text.index("Where the ranks were") < text.index("About the run")
    rows = page.partition("Where the ranks were")[2].partition("</tbody>")[0].split("<tr")[2:]
    assert ['class="bad"' in row for row in rows] == [True, False]
    assert "load_batch" in rows[0] and "in all_reduce #4 of default_pg for" in rows[1]
    stacks = page.partition("Where the ranks were")[2].partition("</section>")[0].split("<details")[1:]
    assert [stack.startswith(' open=""') for stack in stacks] == [True, False]
    assert "line 5 in load_batch" in stacks[0]


def test_a_stall_is_marked_on_all_plots_as_long_as_it_lasts() -> None:
    """From the last progress until the ranks go on, or the run ends; two nodes that noticed it are one."""
    both = {"gpu01": make_stalled("gpu01", over=True), "gpu02": make_stalled("gpu02", over=True)}
    run = make_run(both)
    assert make_scale(run).stalls == ((BEGAN + 5, BEGAN + 50),)
    assert make_scale(make_run({"gpu01": make_stalled("gpu01", over=False)})).stalls == (
        (BEGAN + 5, BEGAN + 52),
    )
    sentences = [moment.sentence for moment in find_moments(run)]
    assert sentences[-2:] == ["no rank has made progress for 40 s", "the ranks make progress again"]
    page = render_report(run, None, "cctl", ())
    assert page.count('class="stall"') == page.count('role="img"')


def test_the_end_of_each_attempt_is_marked_with_its_number() -> None:
    """On every plot, and named once in words; of very many the last ones."""
    page = render_report(make_restarted(2), None, "cctl", ())
    plots = page.count('<figure class="plot')
    for number in (1, 2):
        assert page.count(f'class="sign failed">{number}<') == plots
    listed = page.partition('class="marks"')[2].partition("</ul>")[0]
    assert listed.count("<li>") == 3 and "attempt 1 ended: gpu03 is lost 1" in listed
    assert len(make_scale(make_restarted(500)).marks) == MAX_MARKS + 1


def test_slow_ranks_are_named_with_how_they_arrive() -> None:
    """As `diagnose --slow` does; without a slow rank nothing is marked."""
    facts = {"ranks": "rank 1 (gpu02)", "share": "99 %", "count": 235, "delay": "27", "loss": "19 %"}
    rows = (Lateness(1, "gpu02", 0.99, 0.0275, 0.19), Lateness(0, "gpu01", 0.01, 0.005, 0.0))
    named = Slowness(Judgement("CC-HANG-011", "", {**facts, "node": "gpu02"}, (1,)), rows, 235, 33.6)
    page = render_report(make_run({}, slow=named), None, "cctl", ())
    part = page.partition("Slow ranks")[2].partition("</section>")[0]
    assert "rank 1 (gpu02) arrives last in 99 % of 235 collectives" in part
    assert "27.5 ms" in part and part.count('<tr class="bad"') == 1
    none = replace(named, judgement=Judgement("CC-HANG-012", "", facts))
    part = render_report(make_run({}, slow=none), None, "cctl", ()).partition("Slow ranks")[2]
    assert 'class="bad"' not in part.partition("</section>")[0]


def test_the_speed_stands_with_the_result_and_once() -> None:
    """The sentence of `diagnose --slow` is left out where the speed is shown; the table of the ranks stays."""
    rows = (Lateness(1, "gpu02", 0.99, 0.0275, 0.19),)
    named = Slowness(Judgement("CC-HANG-011", "", {"ranks": "rank 1 (gpu02)", "share": "99 %", "count": 235,
                     "delay": "27", "loss": "19 %", "node": "gpu02"}, (1,)), rows, 235, 33.6)  # fmt: skip
    speed = SpeedVerdict({"steps/s": 2.4}, wait=Wait(0.31, 0.31, (1,), ("gpu02" + HOSTILE,)))
    page = render_report(make_run({}, slow=named, speed=speed), None, "cctl", ())
    seen = Tags(page)
    assert "Speed ranks waited 31 % of each step for rank 1 (gpu02" in seen.text
    assert page.index('class="speed"') < page.index("About the run")
    part = page.partition("Slow ranks")[2].partition("</section>")[0]
    assert "arrives last" not in part and "27.5 ms" in part
    assert "script" not in seen.tags and "onload" not in seen.attributes


def test_hostile_evidence_does_nothing() -> None:
    """Names of functions, groups and nodes, and whole stacks, are texts."""
    run = make_run({}, hang=make_hang(HOSTILE))
    seen = Tags(render_report(run, None, "cctl", ()))
    assert "script" not in seen.tags and "onload" not in seen.attributes
    assert "alert(1)" in seen.text
