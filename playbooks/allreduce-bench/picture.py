"""Draw one row of numbers as bars: for the terminal as text, for documents as SVG. No library is needed."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

Points = Sequence[tuple[str, float]]

WIDTH = 50  # characters of the longest bar
EIGHTHS = " ▏▎▍▌▋▊▉█"


def plot(points: Points, unit: str) -> str:
    """Give lines of text, one bar each."""
    most = max(value for _, value in points) or 1.0
    names = max(len(name) for name, _ in points)
    bars = [f"{name:>{names}} {_bar(value / most)} {value:.3f}" for name, value in points]
    return "\n".join([unit, *bars])


def _bar(share: float) -> str:
    eighths = round(share * WIDTH * 8)
    return "█" * (eighths // 8) + EIGHTHS[eighths % 8].strip()


def draw_svg(points: Points, title: str, unit: str) -> str:
    """Give a picture of 640 x 360."""
    most = max(value for _, value in points) or 1.0
    step = 560 / len(points)
    bars = [
        _svg_bar(60 + step * i, step, value / most, name, value) for i, (name, value) in enumerate(points)
    ]
    head = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 360" font-family="sans-serif" font-size="12">'
    titles = [
        '<rect width="640" height="360" fill="white"/>',
        f'<text x="60" y="24" font-size="16">{escape(title)}</text>',
        f'<text x="60" y="44" fill="#555">{escape(unit)}</text>',
        '<line x1="60" y1="320" x2="620" y2="320" stroke="#555"/>',
    ]
    return "\n".join([head, *titles, *bars, "</svg>\n"])


def _svg_bar(left: float, step: float, share: float, name: str, value: float) -> str:
    height, middle = 250 * share, left + step / 2
    return (
        f'<rect x="{left + step * 0.15:.1f}" y="{320 - height:.1f}" width="{step * 0.7:.1f}" height="{height:.1f}"'
        f' fill="#2a7f9e"/><text x="{middle:.1f}" y="{314 - height:.1f}" text-anchor="middle">{value:.2f}</text>'
        f'<text x="{middle:.1f}" y="338" text-anchor="middle">{escape(name)}</text>'
    )
