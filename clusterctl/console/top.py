"""How busy the nodes are, on the screen: a row per node, alike nodes in one row where there are many; and as JSON."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from clusterctl.console.terminal import out, print_table
from clusterctl.console.text import sanitize
from clusterctl.plans.facts.utilization import Gauged, GpuGauge, fold, is_silent, spread
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import counted

if TYPE_CHECKING:
    from rich.live import Live

BARS = "▁▂▃▄▅▆▇█"
SPARKS = 12
MOST_GPUS = 8  # whose shares are written one by one
AROUND = 10  # lines of the screen that are not rows of nodes
PLAIN_ROWS = 40  # where there is no screen
MOST_NOTES = 5

COLUMNS = ("node", "GPUs", "each", "GPU memory", "°C", "CPU", "memory", "in", "out")
LEFT = ("node", "GPUs", "each")

Number = Callable[[Gauged], float | None]


class Dashboard:
    """Redraws the table in place on a terminal."""

    def __init__(self, silence: float) -> None:
        self._silence = silence
        self._live: Live | None = None

    def __enter__(self) -> Dashboard:
        from rich.live import Live

        self._live = Live(console=out(), auto_refresh=False)
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, nodes: Sequence[Gauged], now: float) -> None:
        """Draw how things stand."""
        if self._live is not None:
            rows = max(3, out().height - AROUND)
            self._live.update(Group(*render_top(nodes, now, self._silence, rows)), refresh=True)


def show_top(nodes: Sequence[Gauged], now: float, silence: float) -> None:
    """Print how things stand, once."""
    for part in render_top(nodes, now, silence, PLAIN_ROWS):
        if isinstance(part, Table):
            print_table(out(), part)
        else:
            out().print(part)


def render_top(nodes: Sequence[Gauged], now: float, silence: float, most: int) -> list[Table | Text]:
    """Give a table with at most about `most` rows, a line for each thing that is wrong, and one about all nodes."""
    groups = fold(nodes, now, silence, most)
    rows = [_row(group, now, silence) for group in groups]
    kept = [place for place in range(len(COLUMNS)) if not place or any(row[place].plain for row in rows)]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in (COLUMNS[place] for place in kept):
        table.add_column(name, justify="left" if name in LEFT else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(row[place] for place in kept))
    return [table, *_notes(nodes, now, silence), _sum_up(nodes, now, silence)]


def _notes(nodes: Sequence[Gauged], now: float, silence: float) -> Iterator[Text]:
    """Say what is wrong, once for all nodes of which it is true."""
    alike: dict[str, list[str]] = {}
    for one in nodes:
        note = _note(one, now, silence)
        if note:
            alike.setdefault(note, []).append(one.node.name)
    for text, names in list(alike.items())[:MOST_NOTES]:
        yield Text.assemble((sanitize(fold_names(names)), "bold"), ": ", (sanitize(text), "red"))
    if len(alike) > MOST_NOTES:
        yield Text(f"and {counted(len(alike) - MOST_NOTES, 'more note')}; --json has all")


def _sum_up(nodes: Sequence[Gauged], now: float, silence: float) -> Text:
    heard = [one for one in nodes if one.sample and not is_silent(one, now, silence)]
    gpus = [gpu for one in heard if one.sample for gpu in one.sample.gpus]
    shares = [gpu.busy for gpu in gpus if gpu.busy is not None]
    told = counted(len(nodes), "node")
    told += f", {counted(len(gpus), 'GPU')}: {sum(shares) / len(shares):.0f} % busy" if shares else ""
    missing = [one.node.name for one in nodes if one not in heard]
    return Text.assemble(told, (f"; not heard: {fold_names(missing)}" if missing else "", "red"))


def _row(group: Sequence[Gauged], now: float, silence: float) -> list[Text]:
    first = group[0]
    name = Text(sanitize(fold_names([one.node.name for one in group])), "bold")
    if first.sample is None:
        return [name, *(Text("") for _ in COLUMNS[1:])]
    faint = "dim" if is_silent(first, now, silence) else ""
    values = (
        _gpus(group),
        _each(first) if len(group) == 1 else counted(len(group), "node"),
        _gpu_memory(group),
        _range(group, _heat),
        _cpu(group),
        _memory(group),
        _rate(group, lambda one: one.traffic.received),
        _rate(group, lambda one: one.traffic.sent),
    )
    return [name, *(Text(value, faint) for value in values)]


def _note(one: Gauged, now: float, silence: float) -> str:
    if one.trouble:
        return one.trouble
    if is_silent(one, now, silence) and one.heard is not None:
        return f"silent for {now - one.heard:.0f} s"
    return "no answer yet" if one.sample is None else one.sample.gpu_problem or ""


def _gpus(group: Sequence[Gauged]) -> str:
    shares = [one.sample.gpu_busy for one in group if one.sample]
    if all(share is None for share in shares):
        return ""
    if len(group) == 1:
        return f"{sparkline(group[0].history)} {shares[0]:3.0f} %"
    return _range(group, lambda one: one.sample.gpu_busy if one.sample else None, " %")


def sparkline(shares: Sequence[float]) -> str:
    """Draw the last shares, in per cent, as bars."""
    top = len(BARS) - 1
    drawn = "".join(BARS[max(0, min(top, round(share / 100 * top)))] for share in shares[-SPARKS:])
    return drawn.rjust(SPARKS)


def _each(one: Gauged) -> str:
    gpus = one.sample.gpus if one.sample else ()
    told = ["-" if gpu.busy is None else str(gpu.busy) for gpu in gpus[:MOST_GPUS]]
    return " ".join([*told, *(["..."] if len(gpus) > MOST_GPUS else [])])


def _gpu_memory(group: Sequence[Gauged]) -> str:
    gpus = [gpu for one in group if one.sample for gpu in one.sample.gpus]
    known = [gpu for gpu in gpus if gpu.memory and gpu.memory_used is not None]
    fullest = max(known, key=_share, default=None)
    if fullest is None:
        return ""
    return f"{(fullest.memory_used or 0) / 1024:.0f}/{(fullest.memory or 0) / 1024:.0f} GiB"


def _share(gpu: GpuGauge) -> float:
    return (gpu.memory_used or 0) / (gpu.memory or 1)


def _heat(one: Gauged) -> float | None:
    known = [gpu.temperature for gpu in (one.sample.gpus if one.sample else ()) if gpu.temperature]
    return max(known, default=None)


def _cpu(group: Sequence[Gauged]) -> str:
    one = group[0]
    told = _range(
        group, lambda one: one.sample.cpu * 100 if one.sample and one.sample.cpu is not None else None, " %"
    )
    bare = len(group) == 1 and one.sample is not None and not one.sample.gpus
    return f"{sparkline(one.history)} {told}" if bare else told


def _memory(group: Sequence[Gauged]) -> str:
    samples = [one.sample for one in group if one.sample and one.sample.memory]
    used = spread([(sample.memory_used or 0) / (1 << 30) for sample in samples])
    if used is None:
        return ""
    whole = max((sample.memory or 0) / (1 << 30) for sample in samples)
    return f"{used.most:.0f}/{whole:.0f} GiB"


def _rate(group: Sequence[Gauged], rate: Callable[[Gauged], float]) -> str:
    found = spread([rate(one) for one in group])
    if found is None:
        return ""
    return render_traffic(found.usual) if len(group) == 1 else f"{render_traffic(found.most)}"


def render_traffic(rate: float) -> str:
    """Write bytes per second shortly: `1.2 GB/s`."""
    for unit, size in (("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3)):
        if rate >= size:
            return f"{rate / size:.3g} {unit}" if rate < size * 999 else f"{rate / size:.0f} {unit}"
    return "0" if rate < 1 else f"{rate:.0f} B/s"


def _range(group: Sequence[Gauged], value: Number, unit: str = "") -> str:
    """Write the one value, or from which to which it goes."""
    found = spread([known for one in group if (known := value(one)) is not None])
    if found is None:
        return ""
    least, most = f"{found.least:.0f}", f"{found.most:.0f}"
    return f"{most}{unit}" if least == most else f"{least}-{most}{unit}"


def top_to_json(nodes: Sequence[Gauged], now: float) -> dict[str, Any]:
    """Give `top --json`: the newest sample of every node, and since when it is."""
    return {
        "schema": 1,
        "time": round(time.time(), 3),
        "nodes": [
            {
                "name": one.node.name,
                "node_rank": one.node.node_rank,
                "answered": one.sample is not None,
                "age": None if one.heard is None else round(now - one.heard, 3),
                "error": one.trouble or None,
                "sample": asdict(one.sample) if one.sample else None,
            }
            for one in nodes
        ],
    }
