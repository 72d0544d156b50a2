"""Lines over time as SVG: a scale, a legend, and marks of what happened, the same on all plots of a page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, isfinite

from clusterctl.plans.report.markup import Html, element, join
from clusterctl.specs.text import render_duration
from clusterctl.translation import tr

WIDTH, HEIGHT = 460, 138
LEFT, RIGHT, TOP, BOTTOM = 62, 6, 14, 18
MAX_LINES = 8  # with a colour of their own
SIGN = 11  # room of a sign
SPARKS, SPARK_HEIGHT = 60, 24  # values of a sparkline; pixels
GAP = 3.5  # distances between two points that count as a gap

Point = tuple[float, float | None]
Format = Callable[[float], str]
format_percent: Format = "{:.0f} %".format
format_number: Format = "{:.3g}".format
format_watts: Format = "{:.0f} W".format
format_degrees: Format = "{:.0f} °C".format
STEPS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200, 86400)


@dataclass(frozen=True)
class Line:
    """One line; points are in the order of time, None is a gap."""

    label: str
    points: tuple[Point, ...]


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
    """The time that all plots of a page show; in `stalls` no rank made progress."""

    begin: float
    end: float
    marks: tuple[Mark, ...] = ()
    stalls: tuple[tuple[float, float], ...] = ()

    @property
    def seconds(self) -> float:
        """Return its length in seconds."""
        return max(1.0, self.end - self.begin)

    def x(self, time: float) -> float:
        """Return the place of a moment."""
        inner = WIDTH - LEFT - RIGHT
        return LEFT + inner * min(1.0, max(0.0, (time - self.begin) / self.seconds))


@dataclass(frozen=True)
class Plot:
    """What is drawn in one frame; `top` is the highest value of the scale, None for that of the lines."""

    title: str
    lines: tuple[Line, ...]
    format: Format
    top: float | None = None
    band: Band | None = None
    from_zero: bool = True
    note: str = ""

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to draw."""
        return not any(value is not None for line in self.lines for _, value in line.points) and not self.band


def render_plot(plot: Plot, scale: Scale) -> Html:
    """Return a plot as SVG, with title, legend and note."""
    low, high = _range(plot)

    def y(value: float) -> float:
        share = (value - low) / (high - low)
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * min(1.0, max(0.0, share))

    drawing = [
        *(_draw_stall(begin, end, scale) for begin, end in scale.stalls),
        *_grid(plot, low, high, y, scale),
        *([_draw_band(plot.band, scale, y)] if plot.band else []),
        *(_draw_line(line, number, scale, y) for number, line in enumerate(plot.lines)),
        *(_draw_mark(mark, scale) for mark in scale.marks),
        *_draw_signs(scale),
    ]
    picture = element(
        "svg", *drawing, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=_describe(plot, low, high)
    )
    caption = element("figcaption", element("b", plot.title), " ", *_legend(plot))
    note = element("p", plot.note, class_="faint") if plot.note else None
    return element("figure", caption, picture, note, class_="plot")


def _range(plot: Plot) -> tuple[float, float]:
    values = [value for line in plot.lines for _, value in line.points if value is not None]
    if plot.band is not None:
        values += [value for _, low, high in plot.band.points for value in (low, high)]
    lowest, highest = min(values, default=0.0), max(values, default=1.0)
    low = 0.0 if plot.from_zero and lowest >= 0 else lowest
    high = highest if plot.top is None else max(plot.top, highest)
    if high <= low:
        high = low + (abs(low) or 1.0)
    return low, high if plot.top is not None else high + (high - low) * 0.05


def _grid(plot: Plot, low: float, high: float, y: Callable[[float], float], scale: Scale) -> list[Html]:
    drawing = []
    for share in (0.0, 0.5, 1.0):
        value = low + (high - low) * share
        place = round(y(value), 1)
        drawing.append(element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=place, y2=place, class_="grid"))
        drawing.append(
            element("text", plot.format(value), x=LEFT - 4, y=place + 3, class_="axis", text_anchor="end")
        )
    step = time_step(scale.seconds)
    for number in range(int(scale.seconds / step) + 1):
        place = round(scale.x(scale.begin + number * step), 1)
        anchor = "start" if number == 0 else "middle"
        if place < WIDTH - 20:
            text = render_time(number * step)
            drawing.append(element("text", text, x=place, y=HEIGHT - 5, class_="axis", text_anchor=anchor))
    return drawing


def _draw_line(line: Line, number: int, scale: Scale, y: Callable[[float], float]) -> Html:
    return element("path", d=_path(line.points, scale, y), class_=f"line c{number % MAX_LINES}")


def _path(points: Sequence[Point], scale: Scale, y: Callable[[float], float]) -> str:
    """Write a path: whole pixels are enough across, tenths upwards; a gap in time is a gap in the line."""
    known = [
        (time, value) for time, value in points if value is not None and scale.begin <= time <= scale.end
    ]
    limit = _usual_distance(points) * GAP
    words: list[str] = []
    before: float | None = None
    for time, value in known:
        command = "L" if before is not None and time - before <= limit else "M"
        words.append(f"{command}{scale.x(time):.0f} {y(value):.1f}".replace(".0", ""))
        if command == "M":
            words.append("h1")  # a point that stands alone can be seen
        before = time
    return "".join(words)


def _usual_distance(points: Sequence[Point]) -> float:
    distances = sorted(after[0] - before[0] for before, after in pairwise(points))
    return max(1.0, distances[len(distances) // 2]) if distances else 1.0


def _draw_band(band: Band, scale: Scale, y: Callable[[float], float]) -> Html:
    upper = [f"{scale.x(time):.0f} {y(high):.0f}" for time, _, high in band.points]
    lower = [f"{scale.x(time):.0f} {y(low):.0f}" for time, low, _ in reversed(band.points)]
    return element("path", d=f"M{'L'.join(upper + lower)}Z" if upper else "", class_="band")


def _draw_mark(mark: Mark, scale: Scale) -> Html:
    place = round(scale.x(mark.time), 1)
    kind = "mark failed" if mark.failed else "mark"
    line = element("line", x1=place, x2=place, y1=TOP, y2=HEIGHT - BOTTOM, class_=kind)
    return element("g", element("title", mark.label), line)


def _draw_signs(scale: Scale) -> list[Html]:
    """Write the signs above the marks; where two are too close the later one, as the end of a run is the last."""
    drawing, limit = [], float(WIDTH + SIGN)
    for mark in sorted(scale.marks, key=lambda mark: -mark.time):
        place = min(round(scale.x(mark.time), 1), WIDTH - SIGN / 2)
        if mark.sign and limit - place >= SIGN * max(1.0, len(mark.sign) * 0.75):
            limit, kind = place, "sign failed" if mark.failed else "sign"
            drawing.append(element("text", mark.sign, x=place, y=TOP - 3, class_=kind, text_anchor="middle"))
    return drawing


def _draw_stall(begin: float, end: float, scale: Scale) -> Html:
    left, right = round(scale.x(begin), 1), round(scale.x(end), 1)
    width = round(max(1.0, right - left), 1)
    area = element("rect", x=left, y=TOP, width=width, height=HEIGHT - TOP - BOTTOM, class_="stall")
    return element("g", element("title", tr("no rank makes progress")), area)


def _legend(plot: Plot) -> list[Html]:
    lines = [
        element("span", "■ ", line.label, " ", class_=f"key c{number % MAX_LINES}")
        for number, line in enumerate(plot.lines)
        if line.label
    ]
    return lines + ([element("span", "■ ", plot.band.label, class_="key faint")] if plot.band else [])


def _describe(plot: Plot, low: float, high: float) -> str:
    names = ", ".join(line.label for line in plot.lines if line.label)
    return tr(
        "{title}: {lines}, from {low} to {high}",
        title=plot.title,
        lines=names or plot.title,
        low=plot.format(low),
        high=plot.format(high),
    )


def time_step(seconds: float) -> float:
    """Choose the distance of the times that are written below a plot: about five fit."""
    return next((float(step) for step in STEPS if seconds / step <= 5), 86400.0 * ceil(seconds / 5 / 86400))


def render_time(seconds: float) -> str:
    """Write a time since the beginning at an axis."""
    return render_duration(seconds) if round(seconds) else "0"


def format_bytes(value: float) -> str:
    """Write bytes with a unit of a thousand."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(value) < 999.5 or unit == "TB":
            return f"{value:.3g} {unit}"
        value /= 1000
    return ""


def format_rate(value: float) -> str:
    """Write bytes per second."""
    return f"{format_bytes(value)}/s"


def render_sparkline(values: Sequence[float | None]) -> Html:
    """Draw the course of a number as a small line without axes; nothing where fewer than two values are known."""
    known = [value for value in values if value is not None and isfinite(value)]
    if len(known) < 2:
        return join([])
    step = (len(known) - 1) / (min(len(known), SPARKS) - 1)
    chosen = [known[round(number * step)] for number in range(min(len(known), SPARKS))]
    low, high = min(chosen), max(chosen)
    across, room = 100 / (len(chosen) - 1), SPARK_HEIGHT - 4
    places = (
        f"{number * across:.0f} {2 + room * (high - value) / ((high - low) or 1.0):.1f}".replace(".0", "")
        for number, value in enumerate(chosen)
    )
    path = element("path", d=f"M{'L'.join(places)}", class_="line c0")
    label = tr("from {first} to {last}", first=format_number(known[0]), last=format_number(known[-1]))
    box = f"0 0 100 {SPARK_HEIGHT}"
    return element(
        "svg", path, viewBox=box, preserveAspectRatio="none", role="img", aria_label=label, class_="sparkline"
    )


def plots_in_rows(plots: Sequence[Html]) -> Html:
    """Put plots next to each other."""
    return element("div", *plots, class_="plots") if plots else join([])
