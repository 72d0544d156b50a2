"""The plots of the machines of a run, for the report and the page of `ui`; not the numbers that it has printed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Literal

from clusterctl.plans.report.axes import (
    Format,
    format_bytes,
    format_degrees,
    format_number,
    format_percent,
    format_rate,
    format_watts,
)
from clusterctl.plans.report.markup import Child, Html, element, join
from clusterctl.plans.report.plot import (
    FOLDED,
    SMALL,
    Band,
    Line,
    Plot,
    Point,
    Scale,
    plots_in_rows,
    render_legend,
    render_plot,
)
from clusterctl.plans.report.reported_run import ReportedRun
from clusterctl.plans.runs.history import History, NodeRecord, Values, pick
from clusterctl.specs.nodeset import group_values
from clusterctl.translation import tr, trn

MAX_LINES = 4  # of one plot; more are shown as their mean and their range
MAX_SMALL = 12  # nodes with a small plot of each quantity
MAX_DETAILED = 3  # nodes with all their plots
MAX_POINTS = 120  # of a line of one node; of more some are one
BUCKETS = 90  # moments at which nodes are compared
UNUSUAL = 10.0  # percent between a node and the others that is worth a word
MORE, OF_NODE = "more", "node/"  # names of folds: further quantities of all nodes, all of one node
Reader = Callable[[NodeRecord], list[tuple[Point, ...]]]


@dataclass(frozen=True)
class Quantity:
    """What all nodes are compared by: its title, what a line of a node is, how to read them, how high it can get."""

    title: str
    label: str
    read: Reader
    format: Format
    top: Callable[[NodeRecord], float | None] = lambda _: None


def node_plots(record: NodeRecord) -> list[Plot]:
    """Return the plots of one node; what it does not have is left out."""
    history = record.history
    plots = [
        _plot_of_each(history, "gpu", "busy", tr("GPU busy"), format_percent, 100.0),
        _plot_of_each(history, "gpu", "memory", tr("GPU memory"), format_bytes, _gpu_memory(history)),
        _plot_of_each(history, "gpu", "power", tr("GPU power"), format_watts),
        _plot_of_each(history, "gpu", "temperature", tr("GPU temperature"), format_degrees),
        _network_plot(record),
        _processor_plot(history),
        _memory_plot(history),
        _plot_of_each(history, "rank", "rss", tr("memory of the ranks"), format_bytes),
        _plot_of_each(history, "rank", "cpu", tr("processors used by the ranks"), format_number),
        _disk_plot(history),
    ]
    return [plot for plot in plots if not plot.is_empty]


def _points(history: History, values: Values, factor: float = 1.0) -> tuple[Point, ...]:
    """Put values at their times; of very many some that follow each other become their mean."""
    points = [
        (time, None if value is None else value * factor)
        for time, value in zip(history.times, values, strict=False)
    ]
    width = -(-len(points) // MAX_POINTS) or 1
    if width == 1:
        return tuple(points)
    parts = [points[number : number + width] for number in range(0, len(points), width)]
    return tuple(
        (part[0][0], fmean(known) if (known := pick([value for _, value in part])) else None)
        for part in parts
    )


def _gpu_memory(history: History) -> float | None:
    sizes = [size for _, size in history.machine.gpus if size]
    return max(sizes) if sizes else None


def _plot_of_each(
    history: History,
    group: Literal["gpu", "rank"],
    quantity: str,
    title: str,
    form: Format,
    top: float | None = None,
) -> Plot:
    """Draw a quantity of each GPU or each rank; many are one line."""
    prefix, plural = ("GPU ", "GPU") if group == "gpu" else ("r", tr("ranks"))
    lines = [
        Line(f"{prefix}{name}", _points(history, history.values(group, name, quantity)))
        for name in history.list_names(group, quantity)
    ]
    note = _describe_gpu_events(history) if quantity == "busy" else ""
    return _fold(Plot(title, tuple(lines), form, top, note=note), plural)


def _describe_gpu_events(history: History) -> str:
    """Return what else was seen of the GPUs: errors of the driver, lowered clocks."""
    notes = []
    for name in history.list_names("gpu", "xid"):
        xids = {int(value) for value in pick(history.values("gpu", name, "xid")) if value}
        if xids:
            notes.append(tr("GPU {n}: Xid {numbers}", n=name, numbers=", ".join(map(str, sorted(xids)))))
    for name in history.list_names("gpu", "throttle"):
        values = pick(history.values("gpu", name, "throttle"))
        slowed = sum(value >= 1.5 for value in values)
        if slowed:
            notes.append(
                tr(
                    "GPU {n}: clocks lowered by heat or hardware in {share:.0f} % of the time",
                    n=name,
                    share=100 * slowed / len(values),
                )
            )
    return tr("; ").join(notes)


def _fold(plot: Plot, what: str) -> Plot:
    """Show many lines as their mean in the range of all."""
    if len(plot.lines) <= MAX_LINES:
        return plot
    band, middle = _spread([line.points for line in plot.lines], fmean)
    label = tr("mean of {n} {what}", n=len(plot.lines), what=what)
    line = Line(label, middle)
    return Plot(
        plot.title, (line,), plot.format, plot.top, Band(tr("lowest to highest"), band), note=plot.note
    )


def _spread(
    lines: Sequence[Sequence[Point]], middle: Callable[[list[float]], float]
) -> tuple[tuple[tuple[float, float, float], ...], tuple[Point, ...]]:
    """Return lowest, highest and middle of lines at the times of the first."""
    band: list[tuple[float, float, float]] = []
    points: list[Point] = []
    for row in zip(*lines, strict=False):
        known = [value for _, value in row if value is not None]
        if known:
            band.append((row[0][0], min(known), max(known)))
            points.append((row[0][0], middle(known)))
    return tuple(band), tuple(points)


def network_lines(record: NodeRecord) -> list[Line]:
    """Return the traffic of the training NICs, or of all; RDMA bypasses the kernel and is counted separately."""
    history = record.history
    names = history.list_names("nic", "received")
    chosen = [name for name in record.launched.nics if name in names] or [
        name for name in names if any(pick(history.values("nic", name, "received")))
    ]
    lines = []
    for group, ports in (("nic", chosen[:2]), ("rdma", history.list_names("rdma", "received")[:2])):
        for port in ports:
            for quantity, text in (("received", tr("received")), ("sent", tr("sent"))):
                values = history.values(group, port, quantity)
                if group == "nic" or any(pick(values)):
                    lines.append(Line(f"{port} {text}", _points(history, values)))
    return lines


def _network_plot(record: NodeRecord) -> Plot:
    notes = []
    history = record.history
    for group in ("nic", "rdma"):
        for quantity, text in (("errors", tr("errors")), ("drops", tr("dropped packets"))):
            for name in history.list_names(group, quantity):
                count = sum(pick(history.values(group, name, quantity))) * history.width
                if count >= 1:
                    notes.append(f"{name}: {count:.0f} {text}")
    return Plot(tr("network"), tuple(network_lines(record)), format_rate, note=tr("; ").join(notes))


def _processor_plot(history: History) -> Plot:
    title = tr("CPU")
    if history.machine.cores:
        title = trn("CPU ({n} core)", "CPU ({n} cores)", history.machine.cores)
    line = Line(tr("busy"), _points(history, history.values("node", "", "cpu"), 100.0))
    return Plot(title, (line,), format_percent, 100.0)


def _memory_plot(history: History) -> Plot:
    line = Line(tr("in use"), _points(history, history.values("node", "", "memory")))
    return Plot(tr("memory"), (line,), format_bytes, history.machine.memory)


def _disk_plot(history: History) -> Plot:
    lines = [
        Line(label, _points(history, history.values("disk", "", quantity)))
        for quantity, label in (("read", tr("read")), ("written", tr("written")))
    ]
    return Plot(tr("disks"), tuple(lines), format_rate)


def _gpu_lines(quantity: str) -> Reader:
    def read(record: NodeRecord) -> list[tuple[Point, ...]]:
        history = record.history
        names = history.list_names("gpu", quantity)
        return [_points(history, history.values("gpu", name, quantity)) for name in names]

    return read


def _network_sum(record: NodeRecord) -> list[tuple[Point, ...]]:
    lines = network_lines(record)
    rows = zip(*(line.points for line in lines), strict=False)
    total = tuple((row[0][0], sum(pick([value for _, value in row]))) for row in rows)
    return [total] if lines else []


def _node_line(quantity: str, factor: float = 1.0) -> Reader:
    def read(record: NodeRecord) -> list[tuple[Point, ...]]:
        points = _points(record.history, record.history.values("node", "", quantity), factor)
        return [points] if points else []

    return read


def list_quantities() -> list[Quantity]:
    """List what all nodes are compared by, in the order in which it is shown."""
    gpus = tr("mean of the GPUs")
    return [
        Quantity(tr("GPU busy"), gpus, _gpu_lines("busy"), format_percent, lambda _: 100.0),
        Quantity(
            tr("GPU memory"),
            gpus,
            _gpu_lines("memory"),
            format_bytes,
            lambda record: _gpu_memory(record.history),
        ),
        Quantity(tr("network, received and sent"), "", _network_sum, format_rate),
        Quantity(tr("CPU"), "", _node_line("cpu", 100.0), format_percent, lambda _: 100.0),
        Quantity(
            tr("memory"), "", _node_line("memory"), format_bytes, lambda record: record.history.machine.memory
        ),
    ]


def compare_nodes(
    quantity: Quantity, records: Mapping[str, NodeRecord], shown: Sequence[str], scale: Scale
) -> list[Plot]:
    """Return a plot of each node that is shown, and before them one of all if there are more; with one scale."""
    begin, end = scale.plotted_from, scale.end
    lines = {
        name: [align(points, begin, end) for points in quantity.read(record)]
        for name, record in records.items()
    }
    plots = [_node_plot(name, lines[name], quantity) for name in shown if lines[name]]
    if len(shown) < len(records):
        middles = [_spread(own, fmean)[1] if len(own) > 1 else own[0] for own in lines.values() if own]
        band, middle = _spread(middles, median)
        label = trn("median of {n} node", "median of {n} nodes", len(middles))
        title = trn("{n} node", "all {n} nodes", len(records))
        plots.insert(
            0, Plot(title, (Line(label, middle),), quantity.format, None, Band(tr("lowest to highest"), band))
        )
    plots = [plot for plot in plots if not plot.is_empty]
    tops = [quantity.top(record) or 0.0 for record in records.values()]
    highest = max([*tops, *(value for plot in plots for value in plot.values)], default=0.0)
    return [replace(plot, top=highest) for plot in plots]


def _node_plot(name: str, lines: Sequence[tuple[Point, ...]], quantity: Quantity) -> Plot:
    if len(lines) == 1:
        return Plot(name, (Line(quantity.label, lines[0]),), quantity.format)
    band, middle = _spread(lines, fmean)
    return Plot(
        name, (Line(quantity.label, middle),), quantity.format, None, Band(tr("lowest to highest"), band)
    )


@dataclass(frozen=True)
class Fold:
    """Plots that are folded below a summary, and a name that no other fold of the run has."""

    name: str
    summary: tuple[Child, ...]
    content: Html
    is_open: bool = False


def render_machines(run: ReportedRun, scale: Scale) -> tuple[list[Child], list[Fold]]:
    """Draw the machines: a quantity of all nodes in small plots of one scale; folded are other ones, and some nodes.

    Of one node all is shown; of many the node of the failure and those most unlike the others. Only the node of the
    failure is open.
    """
    records = {name: record for name, record in run.records.items() if record.history.times}
    if len(records) < 2:
        plots = [
            plots_in_rows([render_plot(plot, scale) for plot in node_plots(one)]) for one in records.values()
        ]
        return [*plots], []
    causes = cause_nodes(run)
    unlike = list(dict.fromkeys([*filter(records.__contains__, causes), *unusual_nodes(records, MAX_SMALL)]))
    shown = [name for name in records if len(records) <= MAX_SMALL or name in unlike[: MAX_SMALL - 1]]
    drawn: dict[str, list[Child]] = {}
    for quantity in list_quantities():
        plots_of_nodes = compare_nodes(quantity, records, shown, scale)
        marked = [replace(plot, is_cause=plot.title in causes) for plot in plots_of_nodes]
        if marked:
            drawn[quantity.title] = _render_small(quantity.title, marked, scale)
    content, titles = list[Child](), list(drawn)
    content += drawn[titles[0]] if titles else []
    if len(shown) < len(records):
        text = tr("Shown alone: the node of the failure, and the nodes most unlike the others.")
        content.append(element("p", text, class_="faint"))
    rest = join([child for title in titles[1:] for child in drawn[title]])
    folds = [Fold(MORE, (tr(", ").join(titles[1:]),), rest)] if titles[1:] else []
    return content, [*folds, *_fold_nodes(records, unlike, causes, scale)]


def _fold_nodes(
    records: Mapping[str, NodeRecord], unlike: Sequence[str], causes: Sequence[str], scale: Scale
) -> list[Fold]:
    """Fold all plots of the node of the failure and of those unlike the others, or of one node."""
    differences = describe_unusual(records)
    detailed = [name for name in unlike if name in causes or name in differences] or unlike[:1]
    folds = []
    for name in detailed[:MAX_DETAILED]:
        heading = element("b", name, class_="bad" if name in causes else None)
        difference = element("span", differences.get(name, ""), class_="faint")
        details = plots_in_rows([render_plot(plot, scale, FOLDED) for plot in node_plots(records[name])])
        folds.append(Fold(f"{OF_NODE}{name}", (heading, " ", difference), details, name in causes))
    return folds


def render_fold(fold: Fold, *, is_sent: bool = True) -> Html:
    """Draw a fold; of one that is not sent yet the place where the page of `ui` puts its plots."""
    summary = element("summary", *fold.summary, data_key=fold.name)
    content = fold.content if is_sent else element("div", id=f"fold/{fold.name}", class_="fold")
    name = None if is_sent else fold.name
    return element("details", summary, content, open="" if fold.is_open else None, data_fold=name)


def _render_small(title: str, plots: Sequence[Plot], scale: Scale) -> list[Child]:
    legend = next((plot for plot in plots if plot.band), None)
    keys = render_legend(legend) if legend else []
    drawn = [render_plot(plot, scale, SMALL) for plot in plots]
    return [
        element("p", element("b", title), " ", *keys, class_="quantity"),
        element("div", *drawn, class_="plots nodes-plots"),
    ]


def cause_nodes(run: ReportedRun) -> list[str]:
    """Name the nodes of the failure, or those that the others waited for."""
    cause = run.verdict.cause if run.verdict else None
    if cause is not None and cause.failure.node:
        return [cause.failure.node]
    if run.hang is None or not run.hang.judgement.hangs:
        return []
    suspects = set(run.hang.judgement.suspects)
    return list(dict.fromkeys(rank.node for rank in run.hang.all_ranks if rank.rank in suspects))


def align(points: Iterable[Point], begin: float, end: float, buckets: int = BUCKETS) -> tuple[Point, ...]:
    """Put points at the same moments as those of other nodes: the mean in each part of the time."""
    width = max(1.0, (end - begin) / buckets)
    known = ((time, value) for time, value in points if value is not None and begin <= time <= end)
    parts = group_values((int((time - begin) / width), value) for time, value in known)
    return tuple(
        (begin + (number + 0.5) * width, fmean(parts[number]) if number in parts else None)
        for number in range(buckets)
    )


def _busy(records: Mapping[str, NodeRecord]) -> dict[str, float]:
    """Return how busy the GPUs of each node were, or its processors where it has none."""
    busy: dict[str, float] = {}
    for name, record in records.items():
        lines = _gpu_lines("busy")(record) or _node_line("cpu", 100.0)(record)
        known = pick([value for points in lines for _, value in points])
        if known:
            busy[name] = fmean(known)
    return busy


def unusual_nodes(records: Mapping[str, NodeRecord], most: int) -> list[str]:
    """Name the nodes whose GPUs, or processors, were busy most unlike the others'."""
    busy = _busy(records)
    middle = median(busy.values()) if busy else 0.0
    return sorted(busy, key=lambda name: -abs(busy[name] - middle))[:most]


def describe_unusual(records: Mapping[str, NodeRecord]) -> dict[str, str]:
    """Return of each node that was busy much more or less than the others by how much."""
    busy = _busy(records)
    middle = median(busy.values()) if busy else 0.0
    return {
        name: tr(
            "{own} busy, the median is {median}", own=format_percent(value), median=format_percent(middle)
        )
        for name, value in busy.items()
        if abs(value - middle) >= UNUSUAL
    }
