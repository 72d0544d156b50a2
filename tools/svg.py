"""A screen as an SVG without script: readable on light and dark pages, its lines appear one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import groupby

from screen import Cell, Screen, Style

CELL, LINE, MARGIN = 8.4, 19, 16  # width and height of a cell at a font size of 14, in pixels
MAX_PAUSE, MIN_PAUSE = 1.2, 0.04  # seconds between two lines of the picture
DARK = ["0d1117", "e6edf3", "484f58", "ff7b72", "3fb950", "d29922", "58a6ff", "bc8cff", "39c5cf", "b1bac4"]
LIGHT = ["ffffff", "1f2328", "57606a", "cf222e", "116329", "7d4e00", "0969da", "8250df", "1b7c83", "57606a"]
FONTS = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono','Noto Sans Mono CJK SC',monospace"


def render_svg(screen: Screen) -> str:
    """Draw the rows that are not empty at the end."""
    last = max((number for number, row in enumerate(screen.rows) if text_of(row).strip()), default=-1)
    rows, times = screen.rows[: last + 1], delays(screen.changed[: last + 1])
    columns = max(map(len, rows), default=0)
    width, height = round(max(columns, 80) * CELL + 2 * MARGIN), len(rows) * LINE + 2 * MARGIN
    lines = [
        f'<g class="l" style="animation-delay:{delay:.2f}s">{"".join(drawn(row, number))}</g>'
        for number, (row, delay) in enumerate(zip(rows, times, strict=True))
        if text_of(row).strip()
    ]
    size = f'width="{width}" height="{height}"'
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xml:space="preserve" viewBox="0 0 {width} {height}" {size}>'
    )
    parts = [head, f"<style>{styles()}</style>", f'<rect class="b" {size} rx="8"/>', *lines, "</svg>\n"]
    return "\n".join(parts)


def styles() -> str:
    """Write the colours for dark pages, then those for light ones, and how a line appears."""
    looks = (
        "text{font:14px " + FONTS + ";white-space:pre}.k{font-weight:700}.d{opacity:.65}.i{font-style:italic}"
    )
    moving = (
        "@media(prefers-reduced-motion:no-preference){.l{animation:a .01s both}}@keyframes a{from{opacity:0}}"
    )
    light = f"@media(prefers-color-scheme:light){{{colors(LIGHT)}}}"
    return f"{looks}.u{{text-decoration:underline}}{colors(DARK)}{light}{moving}"


def colors(palette: list[str]) -> str:
    """Write the classes of one palette: background, text, and the 16 colours of a terminal."""
    back, text, *eight = palette
    found = "".join(f".c{number},.c{number + 8}{{fill:#{color}}}" for number, color in enumerate(eight))
    return f".b{{fill:#{back};stroke:#{eight[0]}}}text{{fill:#{text}}}{found}"


def drawn(row: list[Cell], number: int) -> Iterator[str]:
    """Draw the cells of one row, a text for each style."""
    y, column = MARGIN + number * LINE + 14, 0
    for style, cells in groupby(row, key=lambda cell: cell[1]):
        group = list(cells)
        text = text_of(group)
        if text.strip():
            place = f'x="{MARGIN + column * CELL:.1f}" y="{y}" textLength="{len(group) * CELL:.1f}"'
            yield f"<text {place}{look(style)}>{escape(text, quote=False)}</text>"
        column += len(group)


def look(style: Style) -> str:
    """Write the attributes of a style."""
    flags = {"k": style.bold, "d": style.dim, "i": style.italic, "u": style.underline}
    classes = [name for name, is_set in flags.items() if is_set]
    if style.color.startswith("#"):
        return f' class="{" ".join(classes)}" style="fill:{style.color}"'
    classes += [f"c{style.color}"] if style.color else []
    return f' class="{" ".join(classes)}"' if classes else ""


def text_of(cells: list[Cell]) -> str:
    """Give the text of some cells."""
    return "".join(character for character, _ in cells)


def delays(times: list[float]) -> list[float]:
    """Turn the times of lines into delays, with long waits shortened; a line never comes before one above it."""
    found, clock, before = [], 0.0, min(times, default=0.0)
    for time in times:
        clock += min(MAX_PAUSE, max(MIN_PAUSE, time - before))
        before = max(before, time)
        found.append(clock)
    return found
