"""Help texts in Chinese: a character takes two columns of the terminal, and lines break between any two of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from unicodedata import east_asian_width

import click

from clusterctl.translation import tr

# What stays on one line: a number with its unit, a word in Latin letters, or one wide character; with its punctuation.
_OPENING, _CLOSING = "（「《【", "，。、；：？！）」》】"  # noqa: RUF001 - Chinese signs
_WIDE = r"[\u2e80-\u9fff\uf900-\ufaff\uff00-\uff60\uffe0-\uffe6]"
_AMOUNT = rf"(?<![\w.])\d[\d.,]* (?:{_WIDE}|[A-Za-z%]+)"  # a number with its unit
_UNIT = re.compile(rf"\s+|[{_OPENING}]*(?:{_AMOUNT}|{_WIDE}|(?:(?!{_WIDE})\S)+)[{_CLOSING}]*")


def cell_width(text: str) -> int:
    """Count the columns that a text takes."""
    return sum(2 if east_asian_width(character) in "WF" else 1 for character in text)


def wrap_cells(text: str, width: int) -> list[str]:
    """Break a paragraph into lines of at most so many columns; a longer word stays whole."""
    lines, line = [], ""
    for unit in _UNIT.findall(" ".join(text.split())):
        if line and cell_width(line + unit.rstrip()) > width:
            lines.append(line.rstrip())
            line = ""
        line += unit if line else unit.lstrip()
    return [*lines, line.rstrip()]


class WideFormatter(click.HelpFormatter):
    """Lays out what click does, by columns instead of characters."""

    def write_heading(self, heading: str) -> None:
        """Write a heading with a Chinese colon."""
        self.write(f"{'':>{self.current_indent}}{heading}：\n")  # noqa: RUF001 - the Chinese colon

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        """Write the usage with its arguments below each other."""
        start = f"{prefix or tr('Usage:')}{prog} "
        lines = wrap_cells(args, self.width - cell_width(start)) if args else [""]
        self.write(f"{start}{lines[0]}".rstrip() + "\n")
        self._write_lines(lines[1:], cell_width(start))

    def write_text(self, text: str) -> None:
        """Write paragraphs."""
        for number, paragraph in enumerate(text.split("\n\n")):
            if number:
                self.write("\n")
            self._write_lines(wrap_cells(paragraph, self.width - self.current_indent), self.current_indent)

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Write a list of two columns; what is too wide for the first has its text on the next line."""
        rows = list(rows)
        first = min(max((cell_width(term) for term, _ in rows), default=0), col_max) + col_spacing
        for term, text in rows:
            lines = wrap_cells(text, max(self.width - first - self.current_indent, 10)) if text else []
            gap = first - cell_width(term)
            beside = lines.pop(0) if lines and gap >= col_spacing else ""
            self.write(f"{'':>{self.current_indent}}{term}{'':{max(gap, 0)}}{beside}".rstrip() + "\n")
            self._write_lines(lines, first + self.current_indent)

    def _write_lines(self, lines: Iterable[str], indent: int) -> None:
        for line in lines:
            self.write(f"{'':{indent}}{line}\n")
