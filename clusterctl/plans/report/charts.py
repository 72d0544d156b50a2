"""The plots of a report: of every node, of many nodes together, of numbers that the run has printed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import mean, median
from typing import Literal

from clusterctl.plans.report.plot import (
    Band,
    Format,
    Line,
    Plot,
    Point,
    format_bytes,
    format_degrees,
    format_number,
    format_percent,
    format_rate,
    format_watts,
)
from clusterctl.plans.runs.history import History, NodeRecord, Scalars, Values, pick
from clusterctl.specs.nodeset import group_values
from clusterctl.translation import tr, trn

MAX_LINES = 4  # of one plot; more are shown as their mean and their range
MAX_SCALARS = 12
BUCKETS = 160  # moments at which many nodes are compared
FIRST_NAMES = ("loss", "train_loss", "eval_loss", "lm_loss", "val_loss")
Reader = Callable[[NodeRecord], Sequence[Point]]


def node_plots(record: NodeRecord) -> list[Plot]:
    """Return the plots of one node; what it does not have is left out."""
    history = record.history
    plots = [
        _plot_of_each(history, "gpu", "busy", tr("GPU"), format_percent, 100.0),
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
    return tuple(
        (time, None if value is None else value * factor)
        for time, value in zip(history.times, values, strict=False)
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
    band, middle = _spread([line.points for line in plot.lines], mean)
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


def _mean_gpu(quantity: str) -> Reader:
    def read(record: NodeRecord) -> Sequence[Point]:
        history = record.history
        columns = [history.values("gpu", name, quantity) for name in history.list_names("gpu", quantity)]
        rows = zip(*columns, strict=True) if columns else ()
        means = [mean(known) if (known := pick(row)) else None for row in rows]
        return tuple(zip(history.times, means, strict=False))

    return read


def _network_sum(record: NodeRecord) -> Sequence[Point]:
    lines = network_lines(record)
    rows = zip(*(line.points for line in lines), strict=False)
    return tuple((row[0][0], sum(pick([value for _, value in row]))) for row in rows) if lines else ()


def _processors(record: NodeRecord) -> Sequence[Point]:
    return _points(record.history, record.history.values("node", "", "cpu"), 100.0)


def _memory(record: NodeRecord) -> Sequence[Point]:
    return _points(record.history, record.history.values("node", "", "memory"))


def overview_plots(records: Mapping[str, NodeRecord], begin: float, end: float) -> list[Plot]:
    """Return plots of many nodes: their median and their range."""
    rows: list[tuple[str, Reader, Format, float | None]] = [
        (tr("GPU, mean of each node"), _mean_gpu("busy"), format_percent, 100.0),
        (tr("GPU memory, mean of each node"), _mean_gpu("memory"), format_bytes, None),
        (tr("network, received and sent"), _network_sum, format_rate, None),
        (tr("CPU"), _processors, format_percent, 100.0),
        (tr("memory"), _memory, format_bytes, None),
    ]
    plots = []
    for title, reader, form, top in rows:
        lines = [align(points, begin, end) for record in records.values() if (points := reader(record))]
        band, middle = _spread(lines, median)
        label = trn("median of {n} node", "median of {n} nodes", len(lines))
        plot = Plot(title, (Line(label, middle),), form, top, Band(tr("lowest to highest"), band))
        if middle:
            plots.append(plot)
    return plots


def align(points: Iterable[Point], begin: float, end: float, buckets: int = BUCKETS) -> tuple[Point, ...]:
    """Put points at the same moments as those of other nodes: the mean in each part of the time."""
    width = max(1.0, (end - begin) / buckets)
    known = ((time, value) for time, value in points if value is not None and begin <= time <= end)
    parts = group_values((int((time - begin) / width), value) for time, value in known)
    return tuple(
        (begin + (number + 0.5) * width, mean(parts[number]) if number in parts else None)
        for number in range(buckets)
    )


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


def scalar_plot(scalars: Scalars, others: Sequence[tuple[str, Scalars, float]] = ()) -> Plot:
    """Draw one number over the run's time; `others` are the same of other runs, with the seconds to move them by."""
    lines = [Line("" if not others else tr("first run"), _scalar_points(scalars, 0.0))]
    lines += [Line(label, _scalar_points(other, shift)) for label, other, shift in others]
    lost = sum(point.value is None for point in scalars.points)
    note = trn("{n} value is not finite", "{n} values are not finite", lost) if lost else ""
    last = next((point for point in reversed(scalars.points) if point.value is not None), None)
    if last is not None and last.value is not None:
        value = format_number(last.value)
        ending = (
            tr("last: {value}", value=value)
            if last.step is None
            else tr("last: {value} at step {n}", value=value, n=last.step)
        )
        note = f"{ending}; {note}" if note else ending
    return Plot(scalars.name, tuple(lines), format_number, from_zero=False, note=note)


def _scalar_points(scalars: Scalars, shift: float) -> tuple[Point, ...]:
    return tuple((point.time + shift, point.value) for point in scalars.points)


def unusual_nodes(records: Mapping[str, NodeRecord], most: int) -> list[str]:
    """Name the nodes whose GPUs, or processors, were busy most unlike the others'."""
    busy: dict[str, float] = {}
    for name, record in records.items():
        points = _mean_gpu("busy")(record) or _processors(record)
        known = pick([value for _, value in points])
        if known:
            busy[name] = mean(known)
    if not busy:
        return []
    middle = median(busy.values())
    return sorted(busy, key=lambda name: -abs(busy[name] - middle))[:most]
