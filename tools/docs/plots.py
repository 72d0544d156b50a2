"""The plots of docs/inside, drawn as SVG from what the benches have measured; `generate.py` writes them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PLOTS, MEASURED = HERE.parents[1] / "docs" / "inside" / "plots", HERE / "measured"
WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 70, 130, 50, 50  # of the frame that holds the curves
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # distinct for all eyes
GAP = 15  # between the names of two curves
STYLE = "text{font-family:sans-serif;font-size:13px;fill:#222}.title{font-size:15px;font-weight:bold}"

Curves = Mapping[str, Sequence[tuple[float, float]]]


def drawn() -> Iterator[tuple[Path, str]]:
    """Give every plot with its file."""
    reported = json.loads((MEASURED / "scale.json").read_text(encoding="utf-8"))["parts"]
    for name, key, title in (
        ("scale-cpu", "cpu", "This machine's processor time, in seconds"),
        ("scale-memory", "memory", "This machine's memory, in MB"),
        ("scale-threads", "threads", "Threads on this machine"),
    ):
        found = {part: _points(sizes, key) for part, sizes in reported.items() if part != "gang"}
        yield PLOTS / f"{name}.svg", curves(title, {part: points for part, points in found.items() if points})
    costs = json.loads((MEASURED / "per-node.json").read_text(encoding="utf-8"))
    yield PLOTS / "per-node.svg", bars(costs["title"], costs["ways"])


def _points(sizes: Mapping[str, Mapping[str, Any]], key: str) -> list[tuple[float, float]]:
    return [(int(size), one[key]) for size, one in sizes.items() if one.get(key)]


def curves(title: str, found: Curves) -> str:
    """Draw curves over numbers of nodes, both axes logarithmic; a real cluster's are dashed."""
    every = [point for points in found.values() for point in points]
    across = _Axis([x for x, _ in every], LEFT, WIDTH - RIGHT)
    up = _Axis([y for _, y in every], HEIGHT - BOTTOM, TOP)
    parts = [_text(LEFT, 26, title, "title"), _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, "nodes")]
    for tick in across.ticks:
        x = across.place(tick)
        parts += [_line(x, TOP, x, HEIGHT - BOTTOM), _text(x, HEIGHT - BOTTOM + 18, _number(tick), "middle")]
    for tick in up.ticks:
        y = up.place(tick)
        parts += [_line(LEFT, y, WIDTH - RIGHT, y), _text(LEFT - 8, y + 4, _number(tick), "end")]
    lowest = float(HEIGHT)
    ends = sorted(found, key=lambda name: -up.place(found[name][-1][1]))
    for name in ends:
        colour = COLOURS[list(found).index(name) % len(COLOURS)]
        placed = [(across.place(x), up.place(y)) for x, y in found[name]]
        parts.append(_curve(placed, colour, dashed=name.startswith("real")))
        lowest = min(placed[-1][1], lowest - GAP)
        parts.append(_text(WIDTH - RIGHT + 10, lowest + 4, name.replace("-", " "), "", colour))
    return _picture(parts, HEIGHT)


def bars(title: str, ways: Mapping[str, float]) -> str:
    """Draw a bar for each way, with its number behind it."""
    parts, most = [_text(10, 26, title, "title")], max(ways.values())
    for place, (name, value) in enumerate(ways.items()):
        y, length = 45 + 28 * place, 400 * value / most
        colour = COLOURS[0] if name.startswith("clusterctl") else "#999999"
        parts.append(_text(210, y + 14, name, "end"))
        parts.append(f'<rect x="220" y="{y}" width="{length:.1f}" height="19" fill="{colour}"/>')
        parts.append(_text(226 + length, y + 14, f"{value:g}"))
    return _picture(parts, 60 + 28 * len(ways))


class _Axis:
    """A logarithmic axis, from the power of ten below the smallest value to the one above the largest."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        self._low, self._high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
        self._start, self._end = start, end
        self.ticks = [10.0**power for power in range(self._low, self._high + 1)]

    def place(self, value: float) -> float:
        share = (math.log10(value) - self._low) / max(1, self._high - self._low)
        return self._start + share * (self._end - self._start)


def _number(value: float) -> str:
    return f"{value:,.0f}".replace(",", " ") if value >= 1 else f"{value:g}"


def _text(x: float, y: float, words: str, kind: str = "", colour: str = "") -> str:
    anchor = f' text-anchor="{kind}"' if kind in ("middle", "end") else ""
    marked = ' class="title"' if kind == "title" else ""
    fill = f' style="fill:{colour}"' if colour else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{anchor}{marked}{fill}>{escape(words)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#dddddd"/>'


def _curve(placed: Sequence[tuple[float, float]], colour: str, *, dashed: bool) -> str:
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
    dash = ' stroke-dasharray="6 4"' if dashed else ""
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in placed)
    return f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>{dots}'


def _picture(parts: Sequence[str], height: int) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">'
    inner = "\n".join(parts)
    return f'{head}\n<style>{STYLE}</style>\n<rect width="{WIDTH}" height="{height}" fill="white"/>\n{inner}\n</svg>\n'
