"""Complete lines, tail, grep."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import Callable, Iterator, List, Optional, Tuple

from .truncation import read_truncation

# What may see beyond its line, or take more than its line and not give it back: there every line is tried alone.
SINGLE_LINE_ONLY = re.compile(r"\\[AZz]|\(\?(?!:|P<|P=|[ims]+\))|[*+?}]\+")
LINE_ENDS = "\r\n"


class Grep:
    """Selects lines; `pattern` is searched within each line, as text; re.error if it is none."""

    def __init__(self, pattern: str) -> None:
        self._search = re.compile(pattern).search
        self._multiline = SINGLE_LINE_ONLY.search(pattern) is None
        self._search_ahead = re.compile(pattern, re.MULTILINE).search

    def matches(self, line: bytes) -> bool:
        """Return whether a line is wanted."""
        return self._search(line.decode("utf-8", "replace").rstrip(LINE_ENDS)) is not None

    def find_hits(self, content: bytes) -> Iterator[Tuple[int, int]]:
        """Yield where each wanted line begins and ends."""
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


BLOCK = 1 << 18
PIECE = 1 << 16  # a longer line is handed out in pieces

Block = Tuple[int, bytes]


class LineReader:
    """Reads a file onwards from a position; one that was truncated or replaced is read from its start."""

    def __init__(self, path: str, position: int = 0) -> None:
        self.path = path
        self.position = position
        self.limit: Optional[int] = None  # where to stop, however long the file becomes
        self.last_stat: Optional[os.stat_result] = None  # the file as of the last read
        self.skipped = (0, 0)  # from where to where the last read passed over lines, because they are gone
        self._inode: Optional[int] = None
        self._searched = 0  # there is no newline between the position and this place

    def read(self, last: bool = False, most: int = BLOCK) -> Block:
        """Return where the next complete lines begin, and them; with `last` also a line that never ended."""
        self.skipped = (0, 0)
        try:
            self.last_stat = status = os.stat(self.path)
        except OSError:
            return self.position, b""
        if status.st_size < self.position or status.st_ino != (self._inode or status.st_ino):
            self.position = self._searched = 0
        self._inode = status.st_ino
        size = status.st_size if self.limit is None else min(status.st_size, self.limit)
        if size <= self.position:
            return self.position, b""
        return self._read_block(size, last, most)

    def size(self) -> int:
        """Return how long the file is now."""
        try:
            return os.stat(self.path).st_size
        except OSError:
            return 0

    def _read_block(self, size: int, last: bool, most: int) -> Block:
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if not last and not self._is_usable(descriptor, size):
                return self.position, b""
            content = os.pread(descriptor, min(most, size - self.position), self.position)
            content, whole = self._skip_hole(descriptor, content, most)
        finally:
            os.close(descriptor)
        start = self.position
        usable = len(content) if whole else usable_length(content, last and start + len(content) >= size)
        self._searched = 0 if usable else max(self._searched, start + len(content))
        self.position += usable
        return start, content[:usable]

    def _is_usable(self, descriptor: int, size: int) -> bool:
        """Look only at what has come since the last look: a bar that redraws itself may not end its line for hours."""
        if self._searched <= self.position or size - self.position >= PIECE:
            return True
        if b"\n" in os.pread(descriptor, PIECE, self._searched):
            return True
        self._searched = max(self._searched, size)
        return False

    def _skip_hole(self, descriptor: int, content: bytes, most: int) -> Tuple[bytes, bool]:
        """Pass over the hole, if we have come to it; what stands before it is complete."""
        cut = read_truncation(self.path) if b"\0" in content else None
        if cut is None or self.position >= cut.end or self.position + len(content) <= cut.begin:
            return content, False
        if self.position < cut.begin:
            return content[: cut.begin - self.position], True
        begin = self.position
        while cut is not None and self.position < cut.end:  # it may grow while we look
            self.skipped, self.position = (begin, cut.end), cut.end
            content = os.pread(descriptor, most, self.position)
            cut = read_truncation(self.path) if b"\0" in content else None
        return content, False


def usable_length(content: bytes, last: bool) -> int:
    """Count the bytes to hand out: up to the last newline, all at the very end, else whole pieces."""
    if last:
        return len(content)
    return content.rfind(b"\n") + 1 or len(content) // PIECE * PIECE


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
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
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
        line_start = content.find(b"\n", 0, len(content) if later else len(content) - 1) + 1
        if start == begin:
            line_start = 0
        if line_start or start == begin:
            yield start + line_start, content[line_start:] + later
            later, end = b"", start + line_start
        else:
            later, end = (content + later)[:PIECE], start
