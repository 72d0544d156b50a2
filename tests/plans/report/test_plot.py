"""Plots from plain values: where lines, ticks and signs are, and what can be read without a script."""

from __future__ import annotations

import re
from dataclasses import replace

from reported import BEGAN, make_record, make_run, make_stalled

from clusterctl.plans.report.axes import format_number, format_percent
from clusterctl.plans.report.charts import render_fold, render_machines
from clusterctl.plans.report.markup import join
from clusterctl.plans.report.numbers import render_scalars, scalar_plot
from clusterctl.plans.report.plot import (
    NORMAL,
    SMALL,
    SPARKS,
    WIDE,
    Line,
    Mark,
    Plot,
    Scale,
    render_plot,
    render_sparkline,
)
from clusterctl.plans.report.reported_run import make_scale
from clusterctl.plans.runs.history import NodeRecord, ScalarPoint, Scalars


def make_scalars(name: str = "loss", steps: tuple[int | None, ...] = (0, 10, 20, 30)) -> Scalars:
    """Make a number that falls from 4, every 5 s."""
    points = tuple(
        ScalarPoint(BEGAN + 20 + 5 * number, step, 4.0 - number) for number, step in enumerate(steps)
    )
    return Scalars(name, "log", len(points), points)


def read_titles(markup: str) -> list[str]:
    """Return what the pointer shows at the samples."""
    return re.findall("<title>([^<]*)</title>", markup.partition('class="samples"')[2])


def test_a_sample_has_its_step_time_and_value_without_a_script() -> None:
    """Each is an area, next to each other over the whole width; of many samples as many as there is room for."""
    drawn = render_plot(scalar_plot(make_scalars()), Scale(BEGAN, BEGAN + 60)).markup
    assert read_titles(drawn) == [
        "20 s, step 0: 4", "25 s, step 10: 3", "30 s, step 20: 2", "35 s, step 30: 1",
    ]  # fmt: skip
    areas = [
        tuple(map(float, match))
        for match in re.findall('<rect x="([0-9.]+)%" width="([0-9.]+)%"><title>', drawn)
    ]
    assert sum(width for _, width in areas) == 100 and areas[0][0] == 0
    many = tuple((BEGAN + number, float(number)) for number in range(2000))
    plot = Plot("GPU", (Line("r0", many), Line("r1", many[:1000])), format_percent)
    for size in (WIDE, NORMAL, SMALL):
        titles = read_titles(render_plot(plot, Scale(BEGAN, BEGAN + 2000), size).markup)
        assert len(titles) == size.samples <= 60
    assert titles[0] == "0: r0 0 %, r1 0 %" and titles[-1] == "33m19s: r0 1999 %, r1 -"


def test_the_page_of_ui_has_samples_for_its_script() -> None:
    """Thousandths across, seconds since the launch, when it was, and of each line its height and its value."""
    scale = Scale(BEGAN, BEGAN + 60, has_script=True)
    drawn = render_plot(scalar_plot(make_scalars(steps=(0, 10))), scale).markup
    assert 'data-samples="0|20.0|20 s, step 0|0 4;1000|25.0|25 s, step 10|' in drawn
    assert 'class="samples"' not in drawn and 'tabindex="0"' in drawn


def test_numbers_are_drawn_over_their_steps() -> None:
    """After a restart that goes back to a checkpoint a new line begins; a mark stands at the step that was reached."""
    again = make_scalars(steps=(0, 10, 20, 15, 25))
    mark = Mark(BEGAN + 31, "attempt 1 ended", sign="1")
    drawn = render_plot(scalar_plot(again), Scale(BEGAN, BEGAN + 60, (mark,))).markup
    path = drawn.partition('class="line c0"')[0].rpartition('d="')[2]
    assert path.count("M") == 2
    assert '<text x="80%" y="-4" class="sign">1</text>' in drawn  # step 20 of 0 to 25
    assert ">step 0</text>" in drawn and ">10</text>" in drawn
    over_time = scalar_plot(make_scalars(steps=(0, None, 20, 30)))
    assert not over_time.axis


def test_the_last_value_stands_at_its_step_or_in_its_epoch() -> None:
    """Trainer prints an epoch only; a loss without both has its value alone."""
    assert scalar_plot(make_scalars()).note == "last: 1 at step 30"
    points = (ScalarPoint(BEGAN, None, 2.0, 0.25), ScalarPoint(BEGAN + 5, None, 1.5, 1.123456))
    assert scalar_plot(Scalars("loss", "log", 2, points)).note == "last: 1.5 in epoch 1.123"
    assert scalar_plot(make_scalars(steps=(None, None))).note == "last: 3"


def test_two_runs_are_compared_at_the_same_step() -> None:
    """Each has its name in the legend and in what the pointer shows."""
    plot = scalar_plot(make_scalars(), [("4f2a", make_scalars(steps=(0, 20, 40, 60)), 0.0)], name="923c")
    titles = read_titles(render_plot(plot, Scale(BEGAN, BEGAN + 60)).markup)
    assert titles[0].endswith("923c 4, 4f2a 4") and titles[2].endswith("step 20: 923c 2, 4f2a 3")


def test_plots_begin_with_the_training() -> None:
    """The times below them are still those since the launch; the timeline begins with the launch."""
    record = make_stalled("gpu01", over=True)
    scale = make_scale(make_run({"gpu01": replace(record, journal=record.journal)}))
    assert (scale.begin, scale.plotted_from) == (BEGAN, BEGAN + 1)
    late = Scale(BEGAN, BEGAN + 100, trains_from=BEGAN + 40)
    points = tuple((BEGAN + number, 1.0) for number in range(100))
    drawn = render_plot(Plot("CPU", (Line("", points),), format_number), late).markup
    texts = re.findall('<text x="([0-9.]+%)" y="155"[^>]*>([^<]*)<', drawn)
    assert texts == [("0%", "40 s"), ("33.3%", "1m"), ("66.7%", "1m20s"), ("100%", "1m40s")]
    assert read_titles(drawn)[0] == "40 s: 1"


def test_a_stall_is_hatched_above_the_bars_and_below_the_lines() -> None:
    """Without an id, which two plots of a page could share."""
    scale = Scale(BEGAN, BEGAN + 100, stalls=((BEGAN + 10, BEGAN + 30),))
    points = tuple((BEGAN + number, 1.0) for number in range(100))
    drawn = render_plot(Plot("CPU", (Line("", points),), format_number), scale).markup
    assert '<svg x="10%" width="20%" height="140" class="stall">' in drawn and "id=" not in drawn
    assert drawn.index('class="stall"') < drawn.index('class="line c0"')


def test_the_loss_is_first_and_wide() -> None:
    """The others follow, four of them in pairs."""
    names = ("accuracy", "loss", "lr", "grad_norm", "tokens")
    record = NodeRecord("gpu01", scalars=tuple(map(make_scalars, names)))
    drawn = join(render_scalars({"gpu01": record}, Scale(BEGAN, BEGAN + 60), "axis")).markup
    over_steps, over_time = drawn.partition('class="over-steps">')[2].split('<div class="over-time">')
    for both in (over_steps, over_time):
        assert both.startswith('<figure class="plot wide"><figcaption><b>loss</b>')
        assert both.count('class="plot wide"') == 1 and '<div class="plots pairs">' in both
    assert "step 0<" in over_steps and "step 0<" not in over_time


def test_plots_without_steps_have_no_switch() -> None:
    """The time is all they have."""
    record = NodeRecord("gpu01", scalars=(make_scalars(steps=(None, None)),))
    drawn = join(render_scalars({"gpu01": record}, Scale(BEGAN, BEGAN + 60), "axis")).markup
    assert "<input" not in drawn and drawn.count("<figure") == 1


def test_numbers_of_a_trainer_are_drawn_over_its_epochs() -> None:
    """It prints no step, and an epoch with two digits: values of the same epoch stand in their order up to the next."""
    epochs = (0.5, 0.5, 1.0, 1.0, 1.5)
    points = tuple(
        ScalarPoint(BEGAN + 20 + 5 * number, None, 4.0 - number, epoch) for number, epoch in enumerate(epochs)
    )
    plot = scalar_plot(Scalars("loss", "log", len(points), points))
    assert plot.axis == "epoch" and plot.lines[0].progress == (0.5, 0.75, 1.0, 1.25, 1.5)
    drawn = render_plot(plot, Scale(BEGAN, BEGAN + 60)).markup
    assert read_titles(drawn)[:2] == ["20 s, epoch 0.5: 4", "25 s, epoch 0.75: 3"]
    assert ">epoch 0.5</text>" in drawn
    both = scalar_plot(Scalars("loss", "log", 5, points), [("4f2a", make_scalars(), 0.0)], name="923c")
    assert both.axis == ""  # steps and epochs are not the same


def test_all_nodes_are_compared_by_one_quantity_with_one_scale() -> None:
    """The node of the failure has all its plots, open; a node like the others has none."""
    names = [f"gpu{number:02}" for number in range(1, 5)]
    run = make_run({name: make_record(name) for name in names})
    content, folds = render_machines(run, make_scale(run))
    drawn = join([*content, *map(render_fold, folds)]).markup
    parts = drawn.split('class="quantity"')[1:]
    assert [re.search("<b>([^<]*)</b>", part)[1] for part in parts] == [  # type: ignore[index]  # each has one
        "GPU busy", "GPU memory", "network, received and sent", "CPU", "memory",
    ]  # fmt: skip
    for part in parts:
        small = part.partition("<details")[0].split('<figure class="plot small">')[1:]
        assert [figure.partition("</b>")[0].rpartition(">")[2] for figure in small] == names
        assert len({figure.partition('class="values"')[2].partition("</g>")[0] for figure in small}) == 1
    assert re.findall("<details([^>]*)><summary[^>]*><b[^>]*>([^<]*)", drawn) == [(' open=""', "gpu02")]


def test_a_sparkline_is_small_and_describes_itself() -> None:
    """Of many values some are drawn, the first and the last among them; one value is no line."""
    drawn = render_sparkline([2.5, None, float("nan"), *(2.0 - number / 1000 for number in range(999)), 0.25])
    assert drawn.markup.count("L") == SPARKS - 1 and len(drawn.markup) < 800
    assert 'role="img"' in drawn.markup and 'aria-label="from 2.5 to 0.25"' in drawn.markup
    assert "M0 2L" in drawn.markup and '100 22"' in drawn.markup  # from the top left to the bottom right
    assert [render_sparkline(values).markup for values in ([], [1.0], [None, 1.0])] == ["", "", ""]
    assert "nan" not in render_sparkline([1.0, 1.0, 1.0]).markup
