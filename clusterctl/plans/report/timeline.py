"""The time of each node as a bar of phases, with the moments of the run marked across all bars."""

from __future__ import annotations

from collections.abc import Sequence

from clusterctl.plans.report.markup import Child, Html, element, join
from clusterctl.plans.report.plot import Scale, render_time, time_step
from clusterctl.plans.report.reported_run import PHASE_TEXTS, Phase, ReportedRun, find_phases
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import render_seconds
from clusterctl.translation import tr

WIDTH, LEFT, RIGHT, ROW, BAR = 960, 150, 10, 20, 13
MOST_ROWS = 24
LONGEST_LABEL = 22


def group_phases(run: ReportedRun, end: float) -> list[tuple[tuple[str, ...], list[Phase]]]:
    """Return the phases of the nodes; of many nodes those with alike phases share a bar."""
    by_node = {name: find_phases(record.journal, end) for name, record in run.records.items()}
    by_node = {name: phases for name, phases in by_node.items() if phases}
    if len(by_node) <= MOST_ROWS:
        return [((name,), phases) for name, phases in by_node.items()]
    groups: dict[object, list[str]] = {}
    for name, phases in by_node.items():
        groups.setdefault(tuple((phase.name, round(phase.end / 5)) for phase in phases), []).append(name)
    largest = sorted(groups.values(), key=len, reverse=True)[:MOST_ROWS]
    return [(tuple(names), by_node[names[0]]) for names in largest]


def render_timeline(run: ReportedRun, scale: Scale) -> Html | None:
    """Draw it; None where no node has a journal."""
    rows = group_phases(run, run.ended_at or run.now)
    if not rows:
        return None
    height = ROW * len(rows) + 22
    drawing = [_stall(begin, end, scale, height) for begin, end in scale.stalls]
    drawing += [
        bar for number, (names, phases) in enumerate(rows) for bar in _row(number, names, phases, scale)
    ]
    drawing += _times(scale, height)
    for mark in scale.marks:
        place = _x(mark.time, scale)
        kind = "mark failed" if mark.failed else "mark"
        line = element("line", x1=place, x2=place, y1=0, y2=height - 16, class_=kind)
        drawing.append(element("g", element("title", mark.label), line))
    label = tr("phases of {nodes}", nodes=fold_names([name for names, _ in rows for name in names]))
    picture = element("svg", *drawing, viewBox=f"0 0 {WIDTH} {height}", role="img", aria_label=label)
    wide = element("div", picture, class_="scroll timeline", tabindex=0)
    return element("figure", element("figcaption", *_legend(rows, scale)), wide, _marks(scale))


def _stall(begin: float, end: float, scale: Scale, height: int) -> Html:
    left, right = _x(begin, scale), _x(end, scale)
    area = element(
        "rect", x=left, y=0, width=round(max(1.0, right - left), 1), height=height - 16, class_="stall"
    )
    return element("g", element("title", tr("no rank makes progress")), area)


def _marks(scale: Scale) -> Html | None:
    """Name what is marked, in words: a title is not seen on paper, nor without a mouse."""
    if not scale.marks:
        return None
    rows = [
        element(
            "li",
            element("b", mark.sign, class_="bad" if mark.failed else "warn"),
            " ",
            element("span", render_seconds(mark.time - scale.begin), class_="mono"),
            " ",
            mark.label,
        )
        for mark in scale.marks
    ]
    return join(
        [element("p", tr("Marked on all plots:"), class_="faint"), element("ul", *rows, class_="marks")]
    )


def _x(time: float, scale: Scale) -> float:
    share = min(1.0, max(0.0, (time - scale.begin) / scale.seconds))
    return round(LEFT + (WIDTH - LEFT - RIGHT) * share, 1)


def _row(number: int, names: Sequence[str], phases: Sequence[Phase], scale: Scale) -> list[Html]:
    top = number * ROW + 3
    text = fold_names(names) if len(names) > 1 else names[0]
    label = text if len(text) <= LONGEST_LABEL else f"{text[: LONGEST_LABEL - 1]}…"
    drawing = [element("text", label, x=0, y=top + BAR - 3, class_="label")]
    for phase in phases:
        begin, end = _x(phase.begin, scale), _x(phase.end, scale)
        title = element("title", f"{text}: {_describe(phase)}")
        bar = element(
            "rect", x=begin, y=top, width=round(max(1.0, end - begin), 1), height=BAR, class_=phase.name
        )
        drawing.append(element("g", title, bar))
    return drawing


def _describe(phase: Phase) -> str:
    return tr("{what}, {span:.1f} s", what=tr(PHASE_TEXTS[phase.name]), span=phase.end - phase.begin)


def _times(scale: Scale, height: int) -> list[Html]:
    step = time_step(scale.seconds)
    places = [number * step for number in range(int(scale.seconds / step) + 1)]
    return [
        element("text", render_time(time), x=_x(scale.begin + time, scale), y=height - 4, class_="axis")
        for time in places
        if _x(scale.begin + time, scale) < WIDTH - 30
    ]


def _legend(rows: Sequence[tuple[tuple[str, ...], list[Phase]]], scale: Scale) -> list[Child]:
    used = {phase.name for _, phases in rows for phase in phases}
    texts = {name: tr(text) for name, text in PHASE_TEXTS.items() if name in used}
    if scale.stalls:
        texts["stall"] = tr("no rank makes progress")
    keys: list[Child] = []
    for name, text in texts.items():
        keys += [element("span", element("i", class_=f"swatch {name}"), " ", text, class_="key"), " "]
    return keys
