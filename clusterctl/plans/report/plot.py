"""Lines over time or steps as SVG, the same for the file of a report and for the page of `ui`.

Across, all positions are shares of the drawing, whose margins are its padding: texts keep their size however wide a
plot is, and only the lines, in an SVG of their own, are stretched. A sample is a title in the file; the script of `ui`
reads samples from an attribute instead.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import isfinite
from typing import Literal

from clusterctl.plans.report.axes import (
    Format,
    ValueAxis,
    choose_range,
    choose_ticks,
    format_number,
    make_value_axis,
    render_time,
    time_step,
)
from clusterctl.plans.report.markup import Html, element, join
from clusterctl.translation import tr

MAX_LINES = 8  # with a colour of their own
SIGN, CHARACTER = 12, 7  # pixels that a sign and a character take
LATIN = 0x2E7F  # characters beyond are twice as wide
ABOVE, BELOW = 18, 22  # pixels for signs and for times
GAP = 3.5  # distances between two points that count as a gap
THINNEST = 0.004  # of the width, of a stall that is shorter
SPARKS, SPARK_HEIGHT = 60, 24  # values of a sparkline; pixels
NEAR_ZERO = 0.1  # of the last step: a first step below it is as good as none
MAX_BAND = 60  # points of a band
MIN_EPOCHS = 1e-6  # from the first to the last of a plot
MIN_SCRIPTED = 60  # samples of a plot with a script

Point = tuple[float, float | None]
Axis = Literal["", "step", "epoch"]


@dataclass(frozen=True)
class Size:
    """How large a plot is: its class, width of the lines' drawing, height in pixels, most ticks, most samples.

    `room` is how many pixels its times have where it is narrowest.
    """

    name: str
    width: int
    height: int
    times: int
    values: int
    samples: int
    room: int


WIDE = Size("plot wide", 1100, 140, 8, 5, 60, 300)
NORMAL = Size("plot", 400, 140, 4, 5, 30, 260)
FOLDED = replace(NORMAL, samples=15)
SMALL = Size("plot small", 200, 70, 2, 3, 20, 110)


@dataclass(frozen=True)
class Line:
    """One line; points are in the order of time, None is a gap.

    `progress` has the step or the epoch of each point, or is empty.
    """

    label: str
    points: tuple[Point, ...]
    progress: tuple[float, ...] = ()

    @property
    def positions(self) -> tuple[float, ...]:
        """Return where each point is across: its progress, or its time."""
        return self.progress or tuple(time for time, _ in self.points)


@dataclass(frozen=True)
class Band:
    """The space between the lowest and the highest of several lines."""

    label: str
    points: tuple[tuple[float, float, float], ...]


@dataclass(frozen=True)
class Mark:
    """A moment that is shown on all plots, under a short sign; `failed` is what ended the run or an attempt."""

    time: float
    label: str
    failed: bool = False
    sign: str = ""


@dataclass(frozen=True)
class Scale:
    """The time of a page, written since `begin`; plots begin with the training, and in `stalls` no rank makes progress.

    `has_script`: a script shows the samples.
    """

    begin: float
    end: float
    marks: tuple[Mark, ...] = ()
    stalls: tuple[tuple[float, float], ...] = ()
    trains_from: float | None = None
    has_script: bool = False

    @property
    def seconds(self) -> float:
        """Return its length in seconds."""
        return max(1.0, self.end - self.begin)

    @property
    def plotted_from(self) -> float:
        """Return where plots begin."""
        begin = self.begin if self.trains_from is None else max(self.begin, self.trains_from)
        return min(begin, self.end - 1.0)


@dataclass(frozen=True)
class Plot:
    """What is drawn in one frame; `top` is the highest value of the scale, None for that of the lines.

    `axis`: across is the progress of the lines, which all have it, in steps or in epochs; empty where it is the time.
    """

    title: str
    lines: tuple[Line, ...]
    format: Format
    top: float | None = None
    band: Band | None = None
    from_zero: bool = True
    note: str = ""
    axis: Axis = ""
    is_cause: bool = False

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to draw."""
        return not any(value is not None for line in self.lines for _, value in line.points) and not self.band

    @property
    def values(self) -> list[float]:
        """Return all values."""
        values = [value for line in self.lines for _, value in line.points if value is not None]
        if self.band is not None:
            values += [value for _, low, high in self.band.points for value in (low, high)]
        return values


@dataclass(frozen=True)
class _Frame:
    """A plot with its axes: across from `low` to `high`, seconds, steps or epochs."""

    plot: Plot
    scale: Scale
    size: Size
    low: float
    high: float
    values: ValueAxis

    def share(self, position: float) -> float:
        """Return how far across a time, a step or an epoch is, from 0 to 1."""
        return min(1.0, max(0.0, (position - self.low) / (self.high - self.low)))

    def position(self, time: float) -> float:
        """Return how far across a moment is: of steps the one that was reached then."""
        if not self.plot.axis:
            return self.share(time)
        line = self.plot.lines[0]
        number = bisect_right(line.points, time, key=lambda point: point[0])
        return self.share(line.progress[max(0, number - 1)])

    def x(self, position: float) -> float:
        """Return a position in the drawing of the lines."""
        return self.share(position) * self.size.width

    def y(self, value: float) -> float:
        """Return the position of a value in pixels."""
        return self.size.height * (1 - self.values.share(value))

    @cached_property
    def samples(self) -> list[_Sample]:
        """Return the samples that can be read: a script shows more of them than there are titles."""
        most = max(MIN_SCRIPTED, 2 * self.size.samples) if self.scale.has_script else self.size.samples
        return _choose_samples(self, most)


@dataclass(frozen=True)
class _Sample:
    """The values of all lines at one point of the first that has one there."""

    position: float
    time: float
    progress: float | None
    values: tuple[float | None, ...]


def render_plot(plot: Plot, scale: Scale, size: Size = NORMAL) -> Html:
    """Return a plot as SVG, with title, legend and note."""
    frame = _make_frame(plot, scale, size)
    band = [_draw_band(plot.band, frame)] if plot.band else []
    lines = [_draw_line(line, number, frame) for number, line in enumerate(plot.lines)]
    box = f"0 0 {size.width} {size.height}"
    drawing = [
        *_draw_values(frame),
        *_draw_positions(frame),
        *(draw_stall(render_percent(left), render_percent(width), size.height) for left, width in _find_stalls(frame)),
        element(
            "svg", *band, *lines, viewBox=box, preserveAspectRatio="none", width="100%", height=size.height,
            class_="lines",
        ),
        *(_draw_mark(mark, frame) for mark in _marks(frame)),
        *_draw_signs(frame),
        _draw_titles(frame) if not scale.has_script else None,
    ]  # fmt: skip
    picture = element(
        "svg",
        *drawing,
        role="img",
        aria_label=_describe(frame),
        height=ABOVE + size.height + BELOW,
        class_="drawing",
        tabindex=0 if scale.has_script else None,
        data_samples=_write_samples(frame) if scale.has_script else None,
        data_height=size.height if scale.has_script else None,
        data_axis=(plot.axis or None) if scale.has_script else None,
    )
    title = element("b", plot.title, class_="bad" if plot.is_cause else None)
    legend = render_legend(plot) if size is not SMALL else []  # small plots share one
    caption = element("figcaption", title, " ", *legend)
    note = element("p", plot.note, class_="faint") if plot.note else None
    return element("figure", caption, picture, note, class_=size.name)


def _make_frame(plot: Plot, scale: Scale, size: Size) -> _Frame:
    low, high = scale.plotted_from, scale.end
    if plot.axis:
        steps = [step for line in plot.lines for step in line.progress]
        low, high = min(steps), max(steps)
        low = 0 if 0 < low <= NEAR_ZERO * high else low
        high = max(high, low + (1 if plot.axis == "step" else MIN_EPOCHS))
    shown = plot.values
    if not plot.axis:
        seen = [
            value for line in plot.lines for time, value in line.points if value is not None and time >= low
        ]
        shown = seen if plot.band is None and seen else shown
    lowest, highest = choose_range(shown, plot.top, from_zero=plot.from_zero)
    return _Frame(plot, scale, size, low, high, make_value_axis(lowest, highest, plot.format, size.values))


def render_percent(share: float) -> str:
    """Write a share of the width."""
    return f"{100 * share:.1f}%".replace(".0%", "%")


def _draw_values(frame: _Frame) -> list[Html]:
    drawing = []
    for value, text in frame.values.ticks:
        position = f"{frame.y(value):.1f}".replace(".0", "")
        drawing.append(element("line", x2="100%", y1=position, y2=position))
        drawing.append(element("text", text, x=-6, y=position))
    return [element("g", *drawing, class_="values")]


def _draw_positions(frame: _Frame) -> list[Html]:
    """Write times or steps below the lines, as many as there is room for; of a wide plot half may be hidden."""
    if frame.plot.axis:
        _, steps = choose_ticks(frame.low, frame.high, frame.size.times)
        texts = [(step, format_number(step)) for step in steps if step >= frame.low]
        texts[:1] = [(step, _name_progress(frame.plot.axis, text)) for step, text in texts[:1]]
    else:
        step = time_step(frame.high - frame.low, frame.size.times)
        first = -int(-(frame.low - frame.scale.begin) // step)
        times = [number * step for number in range(first, int((frame.high - frame.scale.begin) / step) + 1)]
        texts = [(frame.scale.begin + time, render_time(time)) for time in times]
    drawing, free = [], float("-inf")  # pixels from the left that are free, where the plot is narrowest
    for number, (position, text) in enumerate(texts):
        share = frame.share(position)
        kind = "axis first" if share < 0.06 else "axis last" if share > 0.92 else "axis"
        is_extra = number % 2 == 1 and frame.size is WIDE
        width = sum(CHARACTER * (2 if ord(sign) > LATIN else 1) for sign in text)
        left = share * frame.size.room - width * {"axis": 0.5, "axis first": 0.0, "axis last": 1.0}[kind]
        if left < free and not is_extra:
            continue
        free = free if is_extra else left + width + CHARACTER
        kind += " extra" if is_extra else ""
        drawing.append(element("text", text, x=render_percent(share), y=frame.size.height + 15, class_=kind))
    return drawing


def _name_progress(axis: Axis, text: str) -> str:
    return tr("step {n}", n=text) if axis == "step" else tr("epoch {n}", n=text)


def _draw_line(line: Line, number: int, frame: _Frame) -> Html:
    return element("path", d=_path(line, frame), class_=f"line c{number % MAX_LINES}")


def _path(line: Line, frame: _Frame) -> str:
    """Write a path: a gap in time is a gap in the line, and so is a step back, as after a restart."""
    known = [
        (position, value)
        for position, (_, value) in zip(line.positions, line.points, strict=True)
        if value is not None and frame.low <= position <= frame.high
    ]
    limit = float("inf") if frame.plot.axis else _usual_distance(line.points) * GAP
    drawn: list[list[tuple[float, float]]] = []
    before: float | None = None
    for position, value in known:
        if before is None or not 0 <= position - before <= limit:
            drawn.append([])
        drawn[-1].append((frame.x(position), frame.y(value)))
        before = position
    return "".join(map(_write_path, drawn))


def _write_path(points: Sequence[tuple[float, float]]) -> str:
    """Write a line by the distances between its points, in whole pixels across and in tenths: that is shortest.

    The first is a pixel wide, so that a point that stands alone can be seen.
    """
    positions = [(round(x), round(10 * y)) for x, y in points]
    (x, y), *_ = positions
    steps = [f"{after[0] - one[0]} {(after[1] - one[1]) / 10:g}" for one, after in pairwise(positions)]
    return f"M{x} {y / 10:g}h1" + (f"m-1 0l{' '.join(steps)}" if steps else "")


def _usual_distance(points: Sequence[Point]) -> float:
    distances = sorted(after[0] - before[0] for before, after in pairwise(points))
    return max(1.0, distances[len(distances) // 2]) if distances else 1.0


def _draw_band(band: Band, frame: _Frame) -> Html:
    shown = [(time, low, high) for time, low, high in band.points if frame.low <= time <= frame.high]
    shown = shown[:: -(-len(shown) // MAX_BAND) or 1]
    upper = [(frame.x(time), frame.y(high)) for time, _, high in shown]
    lower = [(frame.x(time), frame.y(low)) for time, low, _ in reversed(shown)]
    return element("path", d=f"{_write_path(upper + lower)}Z" if upper else "", class_="band")


def _marks(frame: _Frame) -> list[Mark]:
    return [mark for mark in frame.scale.marks if mark.time >= frame.scale.plotted_from]


def _draw_mark(mark: Mark, frame: _Frame) -> Html:
    position = render_percent(frame.position(mark.time))
    kind = "mark failed" if mark.failed else "mark"
    line = element("line", x1=position, x2=position, y2=frame.size.height, class_=kind)
    return element("g", element("title", mark.label), line)


def _draw_signs(frame: _Frame) -> list[Html]:
    """Write the signs above the marks; where two are too close the later one, as the end of a run is the last."""
    drawing, limit = [], float(frame.size.room + SIGN)
    for mark in sorted(_marks(frame), key=lambda mark: -mark.time):
        share = frame.position(mark.time)
        position = share * frame.size.room
        if mark.sign and limit - position >= SIGN * max(1.0, len(mark.sign) * 0.75):
            limit, kind = position, "sign failed" if mark.failed else "sign"
            kind += " last" if share > 0.98 else ""
            drawing.append(element("text", mark.sign, x=render_percent(share), y=-4, class_=kind))
    return drawing


def _find_stalls(frame: _Frame) -> Iterable[tuple[float, float]]:
    """Return where the stalls begin and how wide they are."""
    for begin, end in frame.scale.stalls:
        if end > frame.scale.plotted_from:
            left = min(frame.position(begin), 1 - THINNEST)
            yield left, max(THINNEST, frame.position(end) - left)


def draw_stall(x: str, width: str, height: int) -> Html:
    """Hatch the time in which no rank makes progress: a dashed line as thick as the drawing, skewed and cut."""
    middle = height // 2
    return element(
        "svg",
        element("title", tr("no rank makes progress")),
        element("rect", width="100%", height="100%"),
        element("line", x1=-height, x2=4000, y1=middle, y2=middle, stroke_width=height),
        x=x, width=width, height=height, class_="stall",
    )  # fmt: skip


def _choose_samples(frame: _Frame, most: int) -> list[_Sample]:
    """Choose points of the longest line, as far from each other as possible, with what the others have there."""
    leading = max(frame.plot.lines, key=lambda line: len(line.points), default=None)
    if leading is None:
        return []
    readers = [_reader(line) for line in frame.plot.lines]
    shown = [
        (position, number)
        for number, position in enumerate(leading.positions)
        if leading.points[number][1] is not None and frame.low <= position <= frame.high
    ]
    shown.sort()
    count = min(most, len(shown))
    chosen = [shown[round(number * (len(shown) - 1) / max(1, count - 1))] for number in range(count)]
    samples = []
    for position, number in chosen:
        time, progress = leading.points[number][0], position if leading.progress else None
        samples.append(
            _Sample(frame.share(position), time, progress, tuple(read(position) for read in readers))
        )
    return samples


def _reader(line: Line) -> Callable[[float], float | None]:
    """Return a function that gives the value of a line at the point next to a position; None where that is far."""
    points = sorted(
        (position, number)
        for number, position in enumerate(line.positions)
        if line.points[number][1] is not None
    )
    sorted_positions = [position for position, _ in points]
    distances = sorted(after - before for before, after in pairwise(sorted_positions))
    usual = (distances[len(distances) // 2] if distances else 0.0) or 1.0
    reach = (usual if line.progress else max(1.0, usual)) * GAP

    def read(position: float) -> float | None:
        index = bisect_left(sorted_positions, position)
        near = min(
            points[max(0, index - 1) : index + 1],
            key=lambda one: (abs(one[0] - position), -one[1]),
            default=None,
        )
        if near is None or abs(near[0] - position) > reach:
            return None
        return line.points[near[1]][1]

    return read


def _write_position(sample: _Sample, frame: _Frame) -> str:
    time = render_time(sample.time - frame.scale.begin)
    if sample.progress is None:
        return time
    progress = _name_progress(frame.plot.axis, format_number(sample.progress))
    return tr("{time}, {progress}", time=time, progress=progress)


def _write_value(value: float | None, frame: _Frame) -> str:
    return "-" if value is None else frame.plot.format(value)


def _draw_titles(frame: _Frame) -> Html:
    """Draw an area without colour for each sample, whose title is what the pointer shows there."""
    edges = [0.0, *((one.position + two.position) / 2 for one, two in pairwise(frame.samples)), 1.0]
    areas = []
    for sample, (left, right) in zip(frame.samples, pairwise(edges), strict=False):
        values = [
            f"{line.label} {_write_value(value, frame)}" if line.label and len(sample.values) > 1 else
            _write_value(value, frame)
            for line, value in zip(frame.plot.lines, sample.values, strict=True)
        ]  # fmt: skip
        title = element("title", f"{_write_position(sample, frame)}: {', '.join(values)}")
        areas.append(element("rect", title, x=render_percent(left), width=render_percent(right - left)))
    return element("g", *areas, class_="samples")


def _write_samples(frame: _Frame) -> str:
    """Write the samples for the script: thousandths across, seconds, when it was, and height and text of each value."""
    rows = []
    for sample in frame.samples:
        values = [
            "" if value is None else f"{frame.y(value):.0f} {frame.plot.format(value)}"
            for value in sample.values
        ]
        position = f"{1000 * sample.position:.0f}", f"{sample.time - frame.scale.begin:.1f}"
        rows.append("|".join([*position, _write_position(sample, frame), *values]))
    return ";".join(rows)


def render_legend(plot: Plot) -> list[Html]:
    """Name the lines and the band, each with its colour."""
    names = [(line.label, f"c{number % MAX_LINES}") for number, line in enumerate(plot.lines) if line.label]
    names += [(plot.band.label, "band")] if plot.band else []
    return [
        element("span", element("i", class_=f"swatch {kind}"), " ", label, class_="key")
        for label, kind in names
    ]


def _describe(frame: _Frame) -> str:
    plot = frame.plot
    names = ", ".join(line.label for line in plot.lines if line.label)
    low, high = min(plot.values, default=0.0), max(plot.values, default=0.0)
    return tr(
        "{title}: {lines}, from {low} to {high}",
        title=plot.title,
        lines=names or plot.title,
        low=plot.format(low),
        high=plot.format(high),
    )


def render_sparkline(values: Sequence[float | None]) -> Html:
    """Draw the course of a number as a small line without axes; nothing where fewer than two values are known."""
    known = [value for value in values if value is not None and isfinite(value)]
    if len(known) < 2:
        return join([])
    step = (len(known) - 1) / (min(len(known), SPARKS) - 1)
    chosen = [known[round(number * step)] for number in range(min(len(known), SPARKS))]
    low, high = min(chosen), max(chosen)
    across, room = 100 / (len(chosen) - 1), SPARK_HEIGHT - 4
    positions = (
        f"{number * across:.0f} {2 + room * (high - value) / ((high - low) or 1.0):.1f}".replace(".0", "")
        for number, value in enumerate(chosen)
    )
    path = element("path", d=f"M{'L'.join(positions)}", class_="line c0")
    label = tr("from {first} to {last}", first=format_number(known[0]), last=format_number(known[-1]))
    box = f"0 0 100 {SPARK_HEIGHT}"
    return element(
        "svg", path, viewBox=box, preserveAspectRatio="none", role="img", aria_label=label, class_="sparkline"
    )


def plots_in_rows(plots: Sequence[Html]) -> Html:
    """Put plots next to each other; the last row is as wide as the others."""
    kind = "plots pairs" if len(plots) == 4 else "plots"
    return element("div", *plots, class_=kind) if plots else join([])
