"""The numbers that a run has printed as plots, over their steps or epochs and over the time; not its machines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, pairwise

from clusterctl.plans.report.axes import format_number
from clusterctl.plans.report.markup import NOTHING, Child, Html, element, join
from clusterctl.plans.report.plot import WIDE, Axis, Line, Plot, Scale, plots_in_rows, render_plot
from clusterctl.plans.runs.history import NodeRecord, Scalars
from clusterctl.translation import tr, trn

MAX_SCALARS = 12
OfOther = tuple[str, Scalars, float]  # name of the other run, its numbers, and the seconds to move them by
OVER_TIME = "time"  # name of the fold of the numbers over the time
FIRST_NAMES = ("loss", "train_loss", "eval_loss", "lm_loss", "val_loss")


def choose_scalars(records: Mapping[str, NodeRecord]) -> list[Scalars]:
    """Choose the numbers of the run: each name once, of the node with the lowest rank that has it, losses first."""
    chosen: dict[str, Scalars] = {}
    ranked = sorted(records.values(), key=lambda record: min(record.output, default=1 << 30))
    for record in ranked:
        for scalars in record.scalars:
            if scalars.points and scalars.name not in chosen:
                chosen[scalars.name] = scalars
    return sorted(chosen.values(), key=lambda scalars: _scalar_order(scalars.name))[:MAX_SCALARS]


def _scalar_order(name: str) -> tuple[int, str]:
    if name in FIRST_NAMES:
        return FIRST_NAMES.index(name), name
    return len(FIRST_NAMES) + ("loss" not in name), name


def scalar_plot(
    scalars: Scalars,
    others: Sequence[OfOther] = (),
    name: str = "",
    *,
    over_time: bool = False,
) -> Plot:
    """Draw a number over its steps or epochs, or over the time; `others` are the same of other runs.

    `name` is that of the run if there are several.
    """
    all_scalars = [(name, scalars, 0.0), *others]
    axes = {_find_axis(one) for _, one, _ in all_scalars}
    axis: Axis = "" if over_time or len(axes) > 1 else axes.pop()
    lines = [_scalar_line(label, one, shift, axis) for label, one, shift in all_scalars]
    notes = [_describe_last(label, one) for label, one, _ in all_scalars]
    note = tr("; ").join(filter(None, notes))
    return Plot(scalars.name, tuple(lines), format_number, from_zero=False, note=note, axis=axis)


def _find_axis(scalars: Scalars) -> Axis:
    """Return what each value has, a step or else an epoch, if there is more than one of them."""
    steps, epochs = {point.step for point in scalars.points}, {point.epoch for point in scalars.points}
    if None not in steps and len(steps) > 1:
        return "step"
    return "epoch" if None not in epochs and len(epochs) > 1 else ""


def _scalar_line(label: str, scalars: Scalars, shift: float, axis: Axis) -> Line:
    points = tuple((point.time + shift, point.value) for point in scalars.points)
    if axis == "step":
        return Line(label, points, tuple(float(point.step or 0) for point in scalars.points))
    epochs = [point.epoch or 0.0 for point in scalars.points]
    return Line(label, points, _part_epochs(epochs) if axis == "epoch" else ())


def _part_epochs(epochs: Sequence[float]) -> tuple[float, ...]:
    """Put values of the same epoch at even distances up to the next: Trainer writes an epoch with two digits."""
    groups = [(epoch, len(list(same))) for epoch, same in groupby(epochs)]
    widths = [max(0.0, after[0] - one[0]) for one, after in pairwise(groups)]
    widths.append(widths[-1] if widths else 0.0)
    return tuple(
        epoch + width * number / count
        for (epoch, count), width in zip(groups, widths, strict=True)
        for number in range(count)
    )


def _describe_last(label: str, scalars: Scalars) -> str:
    """Return the last value, and how many are not finite."""
    last = next((point for point in reversed(scalars.points) if point.value is not None), None)
    lost = sum(point.value is None for point in scalars.points)
    texts = [trn("{n} value is not finite", "{n} values are not finite", lost)] if lost else []
    if last is not None and last.value is not None:
        value = format_number(last.value)
        if last.step is not None:
            texts.insert(0, tr("last: {value} at step {n}", value=value, n=last.step))
        elif last.epoch is not None:
            texts.insert(0, tr("last: {value} in epoch {n}", value=value, n=f"{last.epoch:.4g}"))
        else:
            texts.insert(0, tr("last: {value}", value=value))
    text = tr("; ").join(texts)
    return tr("{subject}: {text}", subject=label, text=text) if label and text else text


def render_scalars(records: Mapping[str, NodeRecord], scale: Scale, group: str) -> list[Child]:
    """Draw the numbers of a run; nothing where it has none. `group` is the name of its switch, one in a page."""
    plots, over_time = plot_both((one, ()) for one in choose_scalars(records))
    return [render_both_axes(plots, over_time, scale, group), _render_cut_note(records)] if plots else []


def render_numbers(records: Mapping[str, NodeRecord], scale: Scale) -> tuple[Html, Html]:
    """Draw the numbers for a page with a switch of its own: over steps or epochs, and over the time.

    The second is empty where the first has no steps either.
    """
    plots, over_time = plot_both((one, ()) for one in choose_scalars(records))
    has_both = any(plot.axis for plot in plots)
    drawn = [render_scalar_plots(plots, scale), _render_cut_note(records)] if plots else []
    return join(drawn), render_scalar_plots(over_time, scale) if has_both else NOTHING


def plot_both(
    chosen: Iterable[tuple[Scalars, Sequence[OfOther]]], name: str = ""
) -> tuple[list[Plot], list[Plot]]:
    """Return plots of numbers, each with the same of other runs: over steps or epochs, and over the time."""
    both = [
        [scalar_plot(one, others, name, over_time=is_over_time) for is_over_time in (False, True)]
        for one, others in chosen
    ]
    return [plots[0] for plots in both], [plots[1] for plots in both]


def _render_cut_note(records: Mapping[str, NodeRecord]) -> Html | None:
    """Return a note where numbers may be missing."""
    cut = any(record.scalars_cut for record in records.values())
    return element("p", tr("Not all of the logs could be read in time."), class_="warn") if cut else None


def render_both_axes(plots: Sequence[Plot], over_time: Sequence[Plot], scale: Scale, group: str) -> Html:
    """Draw plots over steps or epochs with a switch, which needs no script, to the same over the time."""
    if not any(plot.axis for plot in plots):
        return render_scalar_plots(plots, scale)
    both = [
        element("div", render_scalar_plots(shown, scale), class_=kind)
        for shown, kind in ((plots, "over-steps"), (over_time, "over-time"))
    ]
    return element("div", render_switch(group), *both, class_="numbers")


def render_switch(group: str) -> Html:
    """Return the choice between both axes; the style shows the plots of the one that is chosen."""
    choices = [
        element(
            "label",
            element("input", type="radio", name=group, class_=kind, checked="" if is_on else None),
            f" {text}",
        )
        for text, kind, is_on in (
            (tr("steps or epochs"), "choose-steps", True),
            (tr("time"), "choose-time", False),
        )
    ]
    return element(
        "p", tr("x axis:"), " ", *choices, class_="axis-switch", role="group", aria_label=tr("x axis:")
    )


def render_scalar_plots(plots: Sequence[Plot], scale: Scale) -> Html:
    """Draw plots of numbers, a loss first and as wide as the page."""
    wide = plots[:1] if plots and ("loss" in plots[0].title or len(plots) == 1) else []
    first = [render_plot(plot, scale, WIDE) for plot in wide]
    return join([*first, plots_in_rows([render_plot(plot, scale) for plot in plots[len(wide) :]])])
