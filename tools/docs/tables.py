"""Markdown of the generated parts: tables, anchors, text without signs of its own."""

from __future__ import annotations

import re
from collections.abc import Iterable


def table(headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Write a Markdown table."""
    lines = [headings, tuple("---" for _ in headings), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def anchor(heading: str) -> str:
    """Return the anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def literal(text: str) -> str:
    """Write what is printed as code."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def plain(text: str) -> str:
    """Keep Markdown from reading signs of its own outside of code."""
    pieces = text.split("`")
    return "`".join(
        re.sub(r"([*_<])", r"\\\1", piece) if n % 2 == 0 else piece for n, piece in enumerate(pieces)
    )
