"""Complete lines, tail, grep."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import Callable, Iterator, List, Optional, Tuple

from .truncation import read_cut

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


BLOCK = 1 << 18
PIECE = 1 << 16  # a longer line is handed out in pieces

Block = Tuple[int, bytes]


class LineReader:
    """Reads a file onwards from a position; one that was truncated or replaced is read from its start."""

    def __init__(self, path: str, position: int = 0) -> None:
        self.path = path
        self.position = position
        self.limit: Optional[int] = None  # where to stop, however long the file becomes
        self.found: Optional[os.stat_result] = None  # the file as of the last read
        self.skipped = (0, 0)  # from where to where the last read passed over lines, because they are gone
        self._inode: Optional[int] = None
        self._searched = 0  # there is no newline between the position and this place

    def read(self, last: bool = False, most: int = BLOCK) -> Block:
        """Return where the next complete lines begin, and them; with `last` also a line that never ended."""
        self.skipped = (0, 0)
        try:
            self.found = found = os.stat(self.path)
        except OSError:
            return self.position, b""
        if found.st_size < self.position or found.st_ino != (self._inode or found.st_ino):
            self.position = self._searched = 0
        self._inode = found.st_ino
        size = found.st_size if self.limit is None else min(found.st_size, self.limit)
        if size <= self.position:
            return self.position, b""
        return self._take(size, last, most)

    def size(self) -> int:
        """Return how long the file is now."""
        try:
            return os.stat(self.path).st_size
        except OSError:
            return 0

    def _take(self, size: int, last: bool, most: int) -> Block:
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if not last and not self._is_usable(descriptor, size):
                return self.position, b""
            content = os.pread(descriptor, min(most, size - self.position), self.position)
            content, whole = self._skip(descriptor, content, most)
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

    def _skip(self, descriptor: int, content: bytes, most: int) -> Tuple[bytes, bool]:
        """Pass over the hole, if we have come to it; what stands before it is complete."""
        cut = read_cut(self.path) if b"\0" in content else None
        if cut is None or self.position >= cut.end or self.position + len(content) <= cut.begin:
            return content, False
        if self.position < cut.begin:
            return content[: cut.begin - self.position], True
        begin = self.position
        while cut is not None and self.position < cut.end:  # it may grow while we look
            self.skipped, self.position = (begin, cut.end), cut.end
            content = os.pread(descriptor, most, self.position)
            cut = read_cut(self.path) if b"\0" in content else None
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
        cut = read_cut(path)
        if cut is None or cut.end > end:
            return _last_lines(whole_lines(descriptor, 0, end, tick), count, grep, ended, end)[0]
        late = whole_lines(descriptor, cut.end, end, tick)
        position, missing = _last_lines(late, count, grep, ended, end)
        early = whole_lines(descriptor, 0, cut.begin, tick) if missing else iter(())
        return _last_lines(early, missing, grep, True, position)[0]
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
        found: List[int] = [begin for begin, _ in (grep.hits(content) if grep else lines_in(content))]
        if missing <= len(found):
            return start + found[-missing] if missing else position, 0
        missing, position = missing - len(found), start
    return position, missing


def whole_lines(descriptor: int, begin: int, end: int, tick: Callable[[], None]) -> Iterator[Block]:
    """Yield blocks of whole lines from the last one to the first; of a long line its first piece."""
    later = b""  # what belongs to the line that ends where the block does
    while end > begin:
        tick()
        start = max(begin, end - BLOCK)
        content = os.pread(descriptor, end - start, start)
        cut = content.find(b"\n", 0, len(content) if later else len(content) - 1) + 1
        if start == begin:
            cut = 0
        if cut or start == begin:
            yield start + cut, content[cut:] + later
            later, end = b"", start + cut
        else:
            later, end = (content + later)[:PIECE], start
