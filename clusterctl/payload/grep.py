"""The lines of a log that match a regular expression, found quickly where they are rare."""

from __future__ import annotations

import re
from typing import Iterator, Tuple

# What may see beyond its line, or take more than its line and not give it back: there every line is tried alone.
SHORT_SIGHTED = re.compile(r"\\[AZz]|\(\?(?!:|P<|P=|[ims]+\))|[*+?}]\+")
ENDS = "\r\n"


class Grep:
    """Tells which lines are wanted; `pattern` is searched within each line, as text; re.error if it is none."""

    def __init__(self, pattern: str) -> None:
        self._search = re.compile(pattern).search
        self._leaps = SHORT_SIGHTED.search(pattern) is None
        self._ahead = re.compile(pattern, re.MULTILINE).search

    def keeps(self, line: bytes) -> bool:
        """Tell whether a line is wanted."""
        return self._search(line.decode("utf-8", "replace").rstrip(ENDS)) is not None

    def hits(self, content: bytes) -> Iterator[Tuple[int, int]]:
        """Yield where each wanted line begins and ends."""
        if self._leaps and content.isascii() and b"\r" not in content:
            yield from self._leap(content.decode("ascii"))
            return
        for begin, end in lines_in(content):
            if self.keeps(content[begin:end]):
                yield begin, end

    def _leap(self, text: str) -> Iterator[Tuple[int, int]]:
        """Search in all lines at once: where a line matches alone, something matches at its place or before it."""
        place = 0
        while place < len(text):
            found = self._ahead(text, place)
            if found is None:
                return
            begin = text.rfind("\n", place, found.start()) + 1 or place
            end = text.find("\n", begin) + 1 or len(text)
            if begin < len(text) and self._search(text[begin:end].rstrip(ENDS)):
                yield begin, end
            place = end


def lines_in(content: bytes) -> Iterator[Tuple[int, int]]:
    """Yield where each line begins and ends."""
    place = 0
    while place < len(content):
        end = content.find(b"\n", place) + 1 or len(content)
        yield place, end
        place = end
