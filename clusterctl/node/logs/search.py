"""The lines that are wanted: those with a pattern, or the last ones, which are found from the end."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import Callable, Iterator, List, Optional, Tuple

from ..runtime.stream import VerbError
from ..runtime.time_limit import TooSlowError, time_limit
from .holes import find_hole_begin, is_empty_block
from .lines import BLOCK, PIECE, Block
from .log_file import open_log
from .truncation import read_truncation

# What may see beyond its line, or take more than its line and not give it back: there every line is tried alone.
SINGLE_LINE_ONLY = re.compile(r"\\[AZz]|\(\?(?!:|P<|P=|[ims]+\))|[*+?}]\+")
LINE_ENDS = "\r\n"
LIMIT = 10.0  # seconds for a block: a client waits 20 s for a sign of life


class Grep:
    """Selects lines; `pattern` is searched within each line, as text; re.error if it is none."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._search = re.compile(pattern).search
        self._multiline = SINGLE_LINE_ONLY.search(pattern) is None
        self._search_ahead = re.compile(pattern, re.MULTILINE).search

    def matches(self, line: bytes) -> bool:
        """Return whether a line is wanted."""
        return self._search(line.decode("utf-8", "replace").rstrip(LINE_ENDS)) is not None

    def find_hits(self, content: bytes) -> List[Tuple[int, int]]:
        """Return where each wanted line begins and ends; VerbError if that takes too long."""
        try:
            with time_limit(LIMIT):
                return list(self._iter_hits(content))
        except TooSlowError:
            problem = f"--grep {self._pattern}: took more than {LIMIT:.0f} s for {len(content)} bytes"
            raise VerbError("CC-USE-026", problem) from None

    def _iter_hits(self, content: bytes) -> Iterator[Tuple[int, int]]:
        if self._multiline and content.isascii() and b"\r" not in content:
            yield from self._find_hits(content.decode("ascii"))
            return
        for begin, end in lines_in(content):
            if self.matches(content[begin:end]):
                yield begin, end

    def _find_hits(self, text: str) -> Iterator[Tuple[int, int]]:
        """Search in all lines at once: where a line matches alone, something matches at its place or before it."""
        position = 0
        while position < len(text):
            match = self._search_ahead(text, position)
            if match is None:
                return
            begin = text.rfind("\n", position, match.start()) + 1 or position
            end = text.find("\n", begin) + 1 or len(text)
            if begin < len(text) and self._search(text[begin:end].rstrip(LINE_ENDS)):
                yield begin, end
            position = end


def lines_in(content: bytes) -> Iterator[Tuple[int, int]]:
    """Yield where each line begins and ends."""
    position = 0
    while position < len(content):
        end = content.find(b"\n", position) + 1 or len(content)
        yield position, end
        position = end


def tail_position(
    path: str,
    count: int,
    grep: Optional[Grep],
    last: bool,
    tick: Callable[[], None] = lambda: None,
    limit: Optional[int] = None,
) -> int:
    """Find where the last `count` lines (of those wanted) begin, reading from the end; 0 if there are fewer.

    A line that has not ended counts only with `last`. `tick` is called now and then; what lies behind `limit` does
    not count.
    """
    descriptor = -1
    with suppress(OSError):
        descriptor = open_log(path)
    if descriptor < 0:
        return 0
    try:
        size = os.fstat(descriptor).st_size
        end = size if limit is None else min(size, limit)
        ended = last or end == 0 or os.pread(descriptor, 1, end - 1) == b"\n"
        cut = read_truncation(path)
        if cut is None or cut.end > end:
            return _last_lines(whole_lines(descriptor, 0, end, tick), count, grep, ended, end)[0]
        after_cut = whole_lines(descriptor, cut.end, end, tick)
        position, missing = _last_lines(after_cut, count, grep, ended, end)
        before_cut = whole_lines(descriptor, 0, cut.begin, tick) if missing else iter(())
        return _last_lines(before_cut, missing, grep, True, position)[0]
    finally:
        os.close(descriptor)


def _last_lines(
    blocks: Iterator[Block], count: int, grep: Optional[Grep], ended: bool, end: int
) -> Tuple[int, int]:
    """Count lines backward; gives where the first of them begins, and how many are missing."""
    position, missing = end, count
    for start, block in blocks if count or not ended else ():
        content = block if ended else block[: block.rfind(b"\n") + 1]
        if not ended:
            ended, position = True, start + len(content)
        starts: List[int] = [begin for begin, _ in (grep.find_hits(content) if grep else lines_in(content))]
        if missing <= len(starts):
            return start + starts[-missing] if missing else position, 0
        missing, position = missing - len(starts), start
    return position, missing


def whole_lines(descriptor: int, begin: int, end: int, tick: Callable[[], None]) -> Iterator[Block]:
    """Yield blocks of whole lines from the last one to the first; of a long line its first piece."""
    later = b""  # what belongs to the line that ends where the block does
    while end > begin:
        tick()
        start = max(begin, end - BLOCK)
        content = os.pread(descriptor, end - start, start)
        if is_empty_block(content) and (hole := find_hole_begin(descriptor, begin, end)) < end:
            if later:
                yield end, later
            later, end = b"", hole
            continue
        line_start = content.find(b"\n", 0, len(content) if later else len(content) - 1) + 1
        if start == begin:
            line_start = 0
        if line_start or start == begin:
            yield start + line_start, content[line_start:] + later
            later, end = b"", start + line_start
        else:
            later, end = (content + later)[:PIECE], start
