"""How busy the nodes are, on the screen: a row per node, alike nodes in one row where there are many; and as JSON.

The keys of the live screen are read here too: what they change is how the rows are drawn.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from clusterctl.console.terminal import make_table, print_fitted_table, print_table, stdout
from clusterctl.console.text import display_width, sanitize
from clusterctl.plans.facts.utilization import NodeUsage, group_alike, is_silent
from clusterctl.plans.runs.history import History
from clusterctl.protocol.messages.facts import GpuUsage
from clusterctl.protocol.messages.record import to_json
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import render_duration
from clusterctl.translation import tr, trn

if TYPE_CHECKING:
    from clusterctl.console.documents.nodes import HistoryDocument, TopDocument

BARS = "▁▂▃▄▅▆▇█"
SPARKLINE_WIDTH = 12
MAX_GPUS = 8  # whose shares are written one by one
OTHER_LINES = 10  # lines of the screen that are not rows of nodes
PLAIN_ROWS = 40  # where there is no screen
MAX_PROBLEMS = 5

LEFT_ALIGNED = 4  # columns, the others have numbers
EACH = 3  # the column with the GPUs one by one
HOT, FULL, BUSY, IDLE = 85.0, 95.0, 50.0, 5.0  # degrees Celsius, and per cent

Metric = Callable[[NodeUsage], float | None]


def _headings() -> tuple[str, ...]:
    return (
        tr("NODE"),
        tr("RUN"),
        f"GPU {BARS[0]}0 {BARS[-1]}100 %",
        tr("EACH GPU"),
        tr("GPU MEMORY"),
        "°C",
        "CPU",
        tr("MEMORY"),
        tr("IN"),
        tr("OUT"),
    )


@dataclass(frozen=True)
class TopLayout:
    """How the table is drawn: `runs` are the runs of the nodes, `title` stands above a live screen.

    `shares_machine`: the nodes are parts of one machine, so that each shows the CPU and memory of all.
    """

    max_rows: int = PLAIN_ROWS
    runs: Mapping[str, str] = field(default_factory=dict)
    title: str = ""
    busiest_first: bool = False
    shows_each: bool = True
    shares_machine: bool = False


@contextmanager
def reading_keys() -> Iterator[Callable[[], str]]:
    """Yield a function that returns the keys that were pressed since the last time; the terminal is left as it was."""
    if not sys.stdin.isatty():
        yield str
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    saved = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)

    def read() -> str:
        is_pressed = select.select([descriptor], [], [], 0)[0]
        return os.read(descriptor, 64).decode("ascii", "ignore") if is_pressed else ""

    try:
        yield read
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, saved)


class UtilizationView:
    """Redraws the table in place on a terminal."""

    def __init__(self, silence_limit: float, cluster: str, interval: float) -> None:
        self._silence_limit, self._cluster, self._interval = silence_limit, cluster, interval
        self._layout = TopLayout()
        self._live = Live(console=stdout(), auto_refresh=False)

    def press(self, keys: str) -> bool:
        """Do what keys mean; gives False for the one that quits."""
        for key in keys.lower():
            if key == "s":
                self._layout = replace(self._layout, busiest_first=not self._layout.busiest_first)
            elif key == "g":
                self._layout = replace(self._layout, shows_each=not self._layout.shows_each)
        return "q" not in keys.lower()

    def __enter__(self) -> UtilizationView:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, nodes: Sequence[NodeUsage], now: float, layout: TopLayout) -> None:
        """Draw how things stand."""
        shown = replace(
            self._layout,
            max_rows=max(3, stdout().height - OTHER_LINES),
            runs=layout.runs,
            shares_machine=layout.shares_machine,
            title=tr(
                "{cluster}   {time}   every {seconds:g} s",
                cluster=self._cluster,
                time=time.strftime("%H:%M:%S"),
                seconds=self._interval,
            ),
        )
        self._live.update(Group(*render_top(nodes, now, self._silence_limit, shown)), refresh=True)


def show_top(nodes: Sequence[NodeUsage], now: float, silence_limit: float, layout: TopLayout) -> None:
    """Print how things stand, once."""
    for renderable in render_top(nodes, now, silence_limit, layout):
        if isinstance(renderable, Table):
            print_fitted_table(stdout(), renderable)
        else:
            stdout().print(renderable)


def render_top(
    nodes: Sequence[NodeUsage], now: float, silence_limit: float, layout: TopLayout
) -> list[Table | Text]:
    """Return a table with at most about so many rows, a line for each thing that is wrong, and one about all nodes."""
    groups = group_alike(nodes, now, silence_limit, layout.max_rows)
    if layout.busiest_first:
        groups = sorted(groups, key=lambda group: -(group[0].history[-1] if group[0].history else -1.0))
    rows = [_render_row(group, now, silence_limit, layout.runs) for group in groups]
    headings = _headings()
    columns = [
        column for column in range(len(headings)) if not column or any(row[column].plain for row in rows)
    ]
    columns = [column for column in columns if column != EACH or layout.shows_each]
    texts = sum(column < LEFT_ALIGNED for column in columns)
    table = make_table(*(headings[column] for column in columns), no_wrap=True, numbers_from=texts)
    for row in rows:
        table.add_row(*(row[column] for column in columns))
    above = [_render_title(layout.title)] if layout.title else []
    below = [*_render_problems(nodes, now, silence_limit), _summarize(nodes, now, silence_limit)]
    if layout.shares_machine:
        below.append(
            Text(tr("the nodes of a lab share this machine: CPU and memory are those of all of them"), "dim")
        )
    return [*above, table, *below]


def _render_title(title: str) -> Text:
    keys = tr("q quit  s sort by use  g each GPU")
    room = stdout().width - display_width(title) - display_width(keys)
    return Text.assemble((sanitize(title), "bold"), " " * max(3, room), (keys, "dim"))


def _render_problems(nodes: Sequence[NodeUsage], now: float, silence_limit: float) -> Iterator[Text]:
    """Yield what is wrong, once for all nodes of which it is true."""
    names_by_problem: dict[str, list[str]] = {}
    for gauged in nodes:
        problem = describe_problem(gauged, now, silence_limit)
        if problem:
            names_by_problem.setdefault(problem, []).append(gauged.node.name)
    for text, names in list(names_by_problem.items())[:MAX_PROBLEMS]:
        yield Text.assemble((sanitize(fold_names(names)), "bold"), tr(": "), (sanitize(text), "red"))
    if len(names_by_problem) > MAX_PROBLEMS:
        more = len(names_by_problem) - MAX_PROBLEMS
        yield Text(trn("and {n} more note; --json has all", "and {n} more notes; --json has all", more))


def _summarize(nodes: Sequence[NodeUsage], now: float, silence_limit: float) -> Text:
    summary, missing = summarize_usage(nodes, now, silence_limit)
    return Text.assemble(summary, (tr("; no answer: {nodes}", nodes=missing) if missing else "", "red"))


def summarize_usage(nodes: Sequence[NodeUsage], now: float, silence_limit: float) -> tuple[str, str]:
    """Count the nodes and how busy their GPUs are, and name the nodes that send nothing."""
    reporting = [gauged for gauged in nodes if gauged.sample and not is_silent(gauged, now, silence_limit)]
    gpus = [gpu for gauged in reporting if gauged.sample for gpu in gauged.sample.gpus]
    utilizations = [gpu.busy for gpu in gpus if gpu.busy is not None]
    summary = trn("{n} node", "{n} nodes", len(nodes))
    if utilizations:
        busy = sum(utilizations) / len(utilizations)
        gpu_text = trn("{n} GPU: {busy:.0f} % busy", "{n} GPUs: {busy:.0f} % busy", len(gpus), busy=busy)
        summary = tr(", ").join((summary, gpu_text))
    missing = fold_names([gauged.node.name for gauged in nodes if gauged not in reporting])
    return summary, missing


def _render_row(
    group: Sequence[NodeUsage], now: float, silence_limit: float, runs: Mapping[str, str]
) -> list[Text]:
    first = group[0]
    names = [gauged.node.name for gauged in group]
    name = Text(sanitize(fold_names(names)), "bold")
    run_texts = {runs.get(name, "") for name in names}
    run = run_texts.pop() if len(run_texts) == 1 else tr("several") if any(run_texts) else ""
    if first.sample is None:
        return [name, Text(sanitize(run)), *(Text("") for _ in _headings()[2:])]
    silent = is_silent(first, now, silence_limit)
    values = (
        (run, ""),
        (_render_gpus(group), _busy_style(group, first.sample.gpu_busy)),
        (_render_each_gpu(first) if len(group) == 1 else trn("{n} node", "{n} nodes", len(group)), ""),
        (render_gpu_memory(group), ""),
        (render_range(group, max_temperature), "red" if is_hot(group) else ""),
        (_render_cpu(group), ""),
        (render_memory(group), ""),
        (_render_rate(group, lambda gauged: gauged.traffic.received), ""),
        (_render_rate(group, lambda gauged: gauged.traffic.sent), ""),
    )
    return [name, *(Text(sanitize(value), "dim" if silent else style) for value, style in values)]


def _busy_style(group: Sequence[NodeUsage], busy: float | None) -> str:
    """Choose a colour for the share of the GPUs: idle ones stand out where others work."""
    if busy is None or len(group) > 1:
        return ""
    return "green" if busy >= BUSY else "yellow" if busy >= IDLE else "red"


def is_hot(group: Sequence[NodeUsage]) -> bool:
    """Return whether a GPU of these nodes is hot."""
    temperatures = [max_temperature(gauged) for gauged in group]
    return any(temperature is not None and temperature >= HOT for temperature in temperatures)


def describe_problem(gauged: NodeUsage, now: float, silence_limit: float) -> str:
    """Return why a node sends nothing, or why its GPUs cannot be read; empty if all is well."""
    if gauged.error:
        return gauged.error
    if is_silent(gauged, now, silence_limit) and gauged.updated_at is not None:
        return tr("silent for {seconds:.0f} s", seconds=now - gauged.updated_at)
    return tr("no answer yet") if gauged.sample is None else gauged.sample.gpu_problem or ""


def _render_gpus(group: Sequence[NodeUsage]) -> str:
    utilizations = [gauged.sample.gpu_busy for gauged in group if gauged.sample]
    if all(utilization is None for utilization in utilizations):
        return ""
    if len(group) == 1:
        return f"{sparkline(group[0].history)} {utilizations[0]:3.0f} %"
    return render_range(group, lambda gauged: gauged.sample.gpu_busy if gauged.sample else None, " %")


def sparkline(percentages: Sequence[float]) -> str:
    """Draw the last shares, in per cent, as bars."""
    highest = len(BARS) - 1
    bars = "".join(
        BARS[max(0, min(highest, round(percentage / 100 * highest)))]
        for percentage in percentages[-SPARKLINE_WIDTH:]
    )
    return bars.rjust(SPARKLINE_WIDTH)


def _render_each_gpu(gauged: NodeUsage) -> str:
    gpus = gauged.sample.gpus if gauged.sample else ()
    utilizations = ["-" if gpu.busy is None else str(gpu.busy) for gpu in gpus[:MAX_GPUS]]
    return " ".join([*utilizations, *(["..."] if len(gpus) > MAX_GPUS else [])])


def render_gpu_memory(group: Sequence[NodeUsage]) -> str:
    """Write how full the fullest GPU of these nodes is: `61/80 GiB`."""
    gpus = [gpu for gauged in group if gauged.sample for gpu in gauged.sample.gpus]
    with_memory = [gpu for gpu in gpus if gpu.memory and gpu.memory_used is not None]
    fullest = max(with_memory, key=_memory_share, default=None)
    if fullest is None:
        return ""
    return f"{(fullest.memory_used or 0) / 1024:.0f}/{(fullest.memory or 0) / 1024:.0f} GiB"


def _memory_share(gpu: GpuUsage) -> float:
    return (gpu.memory_used or 0) / (gpu.memory or 1)


def max_temperature(gauged: NodeUsage) -> float | None:
    """Return the temperature of a node's hottest GPU."""
    temperatures = [
        gpu.temperature for gpu in (gauged.sample.gpus if gauged.sample else ()) if gpu.temperature
    ]
    return max(temperatures, default=None)


def _render_cpu(group: Sequence[NodeUsage]) -> str:
    gauged = group[0]
    cpu_text = render_range(
        group,
        lambda gauged: gauged.sample.cpu * 100 if gauged.sample and gauged.sample.cpu is not None else None,
        " %",
    )
    has_no_gpu = len(group) == 1 and gauged.sample is not None and not gauged.sample.gpus
    return f"{sparkline(gauged.history)} {cpu_text}" if has_no_gpu else cpu_text


def render_memory(group: Sequence[NodeUsage]) -> str:
    """Write how full the memory of these nodes is at most: `120/1007 GiB`."""
    samples = [gauged.sample for gauged in group if gauged.sample and gauged.sample.memory]
    if not samples:
        return ""
    used = max(sample.memory_used or 0 for sample in samples) / (1 << 30)
    total = max(sample.memory or 0 for sample in samples) / (1 << 30)
    return f"{used:.0f}/{total:.0f} GiB"


def _render_rate(group: Sequence[NodeUsage], metric: Callable[[NodeUsage], float]) -> str:
    return render_traffic(max(map(metric, group)))


def render_traffic(rate: float) -> str:
    """Write bytes per second shortly: `1.2 GB/s`."""
    for unit, size in (("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3)):
        if rate >= size:
            return f"{rate / size:.3g} {unit}" if rate < size * 999 else f"{rate / size:.0f} {unit}"
    return "0" if rate < 1 else f"{rate:.0f} B/s"


def render_range(group: Sequence[NodeUsage], metric: Metric, unit: str = "") -> str:
    """Write the one value, or from which to which it goes."""
    values = [value for gauged in group if (value := metric(gauged)) is not None]
    if not values:
        return ""
    lowest, highest = f"{min(values):.0f}", f"{max(values):.0f}"
    return f"{highest}{unit}" if lowest == highest else f"{lowest}-{highest}{unit}"


def top_to_json(nodes: Sequence[NodeUsage], now: float) -> TopDocument:
    """Return the document of `top --json`: the newest sample of every node, and since when it is."""
    return {
        "schema": 1,
        "time": round(time.time(), 3),
        "nodes": [
            {
                "name": gauged.node.name,
                "node_rank": gauged.node.index,
                "answered": gauged.sample is not None,
                "age": None if gauged.updated_at is None else round(now - gauged.updated_at, 3),
                "error": gauged.error or None,
                "sample": to_json(gauged.sample),
            }
            for gauged in nodes
        ],
    }


def show_history(histories: Mapping[str, History]) -> None:
    """Print how busy the nodes of a run were: the course, mean and peak of each."""
    table = make_table(*_history_headings(), no_wrap=True, numbers_from=1)
    for name, history in histories.items():
        table.add_row(Text(sanitize(name), "bold"), *_history_row(history))
    print_table(stdout(), table)


def _history_headings() -> tuple[str, ...]:
    return (
        tr("NODE"),
        tr("SAMPLED"),
        f"GPU {BARS[0]}0 {BARS[-1]}100 %",
        tr("GPU MEMORY"),
        "°C",
        f"CPU {BARS[0]}0 {BARS[-1]}100 %",
        tr("MEMORY"),
        tr("IN"),
        tr("OUT"),
    )


def _history_row(history: History) -> list[str]:
    """Return a node's cells: means of what goes up and down, peaks of what fills up."""
    if not history.times:
        return [tr("nothing"), *[""] * (len(_history_headings()) - 2)]
    seconds = history.times[-1] - history.times[0] + history.width
    memory = max(history.over_time("gpu", "memory", max), default=0.0)
    hottest = max(history.over_time("gpu", "temperature", max), default=0.0)
    return [
        render_duration(seconds),
        _draw_share(history.over_time("gpu", "busy", _mean)),
        f"{memory / (1 << 30):.0f} GiB" if memory else "",
        f"{hottest:.0f}" if hottest else "",
        _draw_share([value * 100 for value in history.over_time("node", "cpu", _mean)]),
        f"{max(history.over_time('node', 'memory', max), default=0) / (1 << 30):.1f} GiB",
        render_traffic(_mean(history.over_time("nic", "received", sum))),
        render_traffic(_mean(history.over_time("nic", "sent", sum))),
    ]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _draw_share(percentages: Sequence[float]) -> str:
    """Draw how a share went over the whole time, and its mean."""
    if not percentages:
        return ""
    size = max(1, -(-len(percentages) // SPARKLINE_WIDTH))
    parts = [_mean(percentages[start : start + size]) for start in range(0, len(percentages), size)]
    return f"{sparkline(parts)} {_mean(percentages):3.0f} %"


def history_to_json(run_id: str, histories: Mapping[str, History]) -> HistoryDocument:
    """Return the document of `top RUN --json`: every series of every node; null is a value that is not known."""
    return {
        "schema": 1,
        "run": run_id,
        "nodes": [
            {
                "name": name,
                "width": history.width,
                "times": [round(time, 3) for time in history.times],
                "series": [
                    {"group": group, "name": own, "quantity": quantity, "values": list(values)}
                    for (group, own, quantity), values in history.columns.items()
                ],
            }
            for name, history in histories.items()
        ],
    }
