"""The timeline: the phases of each node as a bar; names stand above the bars where the page is narrow.

Places are shares of the width, so that a bar fills whatever room there is and no text is scaled with it.
"""

from __future__ import annotations

from collections.abc import Sequence

from clusterctl.plans.report.axes import render_time, time_step
from clusterctl.plans.report.markup import Child, Html, element
from clusterctl.plans.report.plot import Scale, draw_stall
from clusterctl.plans.report.reported_run import PHASE_TEXTS, Phase, ReportedRun, find_phases
from clusterctl.specs.nodeset import fold_names, group_values
from clusterctl.specs.text import render_seconds
from clusterctl.translation import tr

ROW, BAR = 20, 14  # pixels
AXIS = 16  # pixels, below the last bar
MAX_ROWS = 24
MAX_TIMES = 8  # below the bars
LAST_TIME = 0.9  # of the width; what begins later would be cut

Row = tuple[tuple[str, ...], list[Phase]]  # nodes, and what they did


def group_phases(run: ReportedRun, end: float) -> list[Row]:
    """Return the phases of the nodes; of many nodes those with alike phases share a bar."""
    by_node = {name: find_phases(record.journal, end) for name, record in run.records.items()}
    by_node = {name: phases for name, phases in by_node.items() if phases}
    if len(by_node) <= MAX_ROWS:
        return [((name,), phases) for name, phases in by_node.items()]
    groups = group_values(
        (tuple((phase.name, round(phase.end / 5)) for phase in phases), name)
        for name, phases in by_node.items()
    )
    largest = sorted(groups.values(), key=len, reverse=True)[:MAX_ROWS]
    return [(tuple(names), by_node[names[0]]) for names in largest]


def render_timeline(run: ReportedRun, scale: Scale) -> Html | None:
    """Return the timeline; None where no node has a journal."""
    rows = group_phases(run, run.ended_at or run.now)
    if not rows:
        return None
    lanes: list[Child] = []
    for number, (names, phases) in enumerate(rows):
        text = fold_names(names) if len(names) > 1 else names[0]
        is_last = number == len(rows) - 1
        lanes += [element("span", text, class_="lane-name"), _lane(text, phases, scale, is_last=is_last)]
    caption = element("figcaption", *_legend(rows, scale))
    return element("figure", caption, element("div", *lanes, class_="lanes"), _marks(scale))


def _lane(text: str, phases: Sequence[Phase], scale: Scale, *, is_last: bool) -> Html:
    """Draw the bar of a node with all that is marked; below the last one stand the times."""
    drawing = [_bar(text, phase, scale) for phase in phases]
    drawing += [
        draw_stall(_percent(begin, scale), _span(begin, end, scale), ROW) for begin, end in scale.stalls
    ]
    for mark in scale.marks:
        share = _percent(mark.time, scale)
        kind = "mark failed" if mark.failed else "mark"
        line = element("line", x1=share, x2=share, y1=0, y2=ROW, class_=kind)
        drawing.append(element("g", element("title", mark.label), line))
    height = ROW + AXIS if is_last else ROW
    drawing += _times(scale) if is_last else []
    label = tr("phases of {nodes}", nodes=text)
    return element("svg", *drawing, width="100%", height=height, role="img", aria_label=label, class_="lane")


def _percent(time: float, scale: Scale) -> str:
    """Return the place of a moment as a share of the width."""
    return f"{100 * min(1.0, max(0.0, (time - scale.begin) / scale.seconds)):.2f}%"


def _span(begin: float, end: float, scale: Scale) -> str:
    left, right = (min(scale.end, max(scale.begin, time)) for time in (begin, end))
    return f"{max(0.15, 100 * (right - left) / scale.seconds):.2f}%"


def _bar(text: str, phase: Phase, scale: Scale) -> Html:
    span = render_seconds(phase.end - phase.begin)
    what = tr("{what}: {span}", what=tr(PHASE_TEXTS[phase.name]), span=span)
    title = element("title", tr("{subject}: {text}", subject=text, text=what))
    place, width = _percent(phase.begin, scale), _span(phase.begin, phase.end, scale)
    bar = element("rect", x=place, y=(ROW - BAR) / 2, width=width, height=BAR, class_=phase.name)
    return element("g", title, bar)


def _times(scale: Scale) -> list[Html]:
    """Write the times; every second one is hidden where the page is narrow."""
    step = time_step(scale.seconds, MAX_TIMES)
    drawing = []
    for number in range(int(LAST_TIME * scale.seconds / step) + 1):
        kind = "axis extra" if number % 2 else "axis" if number else "axis first"
        x = _percent(scale.begin + number * step, scale)
        drawing.append(element("text", render_time(number * step), x=x, y=ROW + 13, class_=kind))
    return drawing


def _legend(rows: Sequence[Row], scale: Scale) -> list[Child]:
    used = {phase.name for _, phases in rows for phase in phases}
    texts = {name: tr(text) for name, text in PHASE_TEXTS.items() if name in used}
    if scale.stalls:
        texts["stall"] = tr("no rank makes progress")
    keys: list[Child] = []
    for name, text in texts.items():
        keys += [element("span", element("i", class_=f"swatch {name}"), " ", text, class_="key"), " "]
    return keys


def _marks(scale: Scale) -> Html | None:
    """Name what is marked, in words: a title is not seen on paper, nor without a mouse."""
    if not scale.marks:
        return None
    rows = [
        element(
            "li",
            element("b", mark.sign, class_="bad" if mark.failed else "warn"),
            " ",
            element("span", render_time(mark.time - scale.begin), class_="mono"),
            " ",
            mark.label,
        )
        for mark in scale.marks
    ]
    return element("ul", *rows, class_="marks", aria_label=tr("marked on all plots"))
