"""A terminal's screen as values: text with escape codes goes in, rows of styled cells come out."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

_PIECE = re.compile(
    r"\x1b\[([?0-9;]*)([A-Za-z])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b.|[\r\n\b\t]|[^\x1b\r\n\b\t]+"
)
_TAB = 8
_GREYS = 232  # of the 256 colours the last 24


@dataclass(frozen=True)
class Style:
    """How a cell looks; a colour is the number of one of the 16, `#rrggbb`, or empty for the default."""

    color: str = ""
    bold: bool = False
    dim: bool = False
    italic: bool = False
    underline: bool = False


Cell = tuple[str, Style]  # "" is the second half of a wide character
PLAIN = Style()


class Screen:
    """Rows of cells without an end, and when each row last changed."""

    def __init__(self, columns: int) -> None:
        self.rows: list[list[Cell]] = []
        self.changed: list[float] = []
        self._columns, self._row, self._column, self._style = columns, 0, 0, PLAIN

    def feed(self, text: str, now: float) -> None:
        """Write text at the cursor; its last escape code must be complete."""
        for found in _PIECE.finditer(text):
            if found[2]:
                self._control(found[1], found[2], now)
            elif found[0] in "\r\n\b\t":
                self._move(found[0])
            elif not found[0].startswith("\x1b"):
                for character in found[0]:
                    self._put(character, now)

    def text(self) -> str:
        """Give what is on the screen, without styles."""
        return "\n".join("".join(character for character, _ in row).rstrip() for row in self.rows)

    def _move(self, sign: str) -> None:
        if sign == "\n":
            self._row += 1
        elif sign == "\t":
            self._column = min(self._columns - 1, (self._column // _TAB + 1) * _TAB)
        else:
            self._column = 0 if sign == "\r" else max(0, self._column - 1)

    def _put(self, character: str, now: float) -> None:
        width = 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if self._column + width > self._columns:
            self._row, self._column = self._row + 1, 0
        cells: list[Cell] = [(character, self._style), ("", self._style)][:width]
        row = self._current(now)
        row += [(" ", PLAIN)] * (self._column - len(row))
        row[self._column : self._column + width] = cells
        self._column += width

    def _current(self, now: float) -> list[Cell]:
        while len(self.rows) <= self._row:
            self.rows.append([])
            self.changed.append(now)
        self.changed[self._row] = now
        return self.rows[self._row]

    def _control(self, parameters: str, kind: str, now: float) -> None:
        numbers = [int(number or 0) for number in parameters.lstrip("?").split(";")]
        count = max(1, numbers[0])
        if kind == "m":
            self._style = styled(self._style, numbers)
        elif kind in "AB":
            self._row = max(0, self._row + (count if kind == "B" else -count))
        elif kind in "CD":
            self._column = min(self._columns - 1, max(0, self._column + (count if kind == "C" else -count)))
        elif kind == "G":
            self._column = count - 1
        elif kind == "K":
            self._erase_line(numbers[0], now)
        elif kind == "J":
            self._erase_line(0, now)
            del self.rows[self._row + 1 :], self.changed[self._row + 1 :]

    def _erase_line(self, part: int, now: float) -> None:
        row = self._current(now)
        if part == 0:
            del row[self._column :]
        else:
            after = row[self._column + 1 :] if part == 1 else []
            row[:] = [(" ", PLAIN)] * (self._column + 1) + after if after else []


def styled(style: Style, numbers: list[int]) -> Style:
    """Apply the numbers of an SGR code: colours of text, bold, dim, italic, underlined; backgrounds are left out."""
    rest = list(numbers)
    while rest:
        number = rest.pop(0)
        if number in (38, 48) and len(rest) >= 2:
            color = _extended(rest)
            style = replace(style, color=color) if number == 38 else style
        else:
            style = replace(style, **_SIMPLE.get(number, {})) if number else PLAIN
    return style


_SIMPLE: Mapping[int, dict[str, Any]] = {
    1: {"bold": True},
    2: {"dim": True},
    3: {"italic": True},
    4: {"underline": True},
    22: {"bold": False, "dim": False},
    23: {"italic": False},
    24: {"underline": False},
    39: {"color": ""},
    **{30 + number: {"color": str(number)} for number in range(8)},
    **{90 + number: {"color": str(8 + number)} for number in range(8)},
}


def _extended(rest: list[int]) -> str:
    if rest.pop(0) == 2:  # RGB; 5 is one of 256
        red, green, blue = rest[:3]
        del rest[:3]
        return f"#{red:02x}{green:02x}{blue:02x}"
    number = rest.pop(0)
    if number < 16:  # the terminal's own
        return str(number)
    if number >= _GREYS:
        return f"#{8 + 10 * (number - _GREYS):02x}" + f"{8 + 10 * (number - _GREYS):02x}" * 2
    steps = (0, 95, 135, 175, 215, 255)
    cube = number - 16
    return "#" + "".join(f"{steps[one]:02x}" for one in (cube // 36, cube // 6 % 6, cube % 6))
