"""Complete lines of files that grow, by offset, in bounded memory."""

from __future__ import annotations

import os
from typing import Callable, Iterator, Optional, Tuple

BLOCK = 1 << 18
PIECE = 1 << 16  # a longer line is handed out in pieces

Keep = Callable[[bytes], bool]
Block = Tuple[int, bytes]


class LineReader:
    """Reads a file onwards from a position; one that was truncated or replaced is read from its start."""

    def __init__(self, path: str, position: int = 0) -> None:
        self.path = path
        self.position = position
        self.written = 0.0  # when the file was last written to, as of the last read
        self._inode: Optional[int] = None
        self._useless_size = -1

    def read(self, last: bool = False) -> Block:
        """Return where the next complete lines begin, and them; with `last` also a line that never ended."""
        try:
            found = os.stat(self.path)
        except OSError:
            return self.position, b""
        if found.st_size < self.position or found.st_ino != (self._inode or found.st_ino):
            self.position = 0
        self._inode, self.written = found.st_ino, found.st_mtime
        if found.st_size == self.position or (found.st_size == self._useless_size and not last):
            return self.position, b""
        return self._take(last)

    def size(self) -> int:
        """Return how long the file is now."""
        try:
            return os.stat(self.path).st_size
        except OSError:
            return 0

    def _take(self, last: bool) -> Block:
        with open(self.path, "rb") as source:
            source.seek(self.position)
            content = source.read(BLOCK)
            at_end = len(content) < BLOCK
        start, usable = self.position, usable_length(content, last and at_end)
        self._useless_size = -1 if usable else start + len(content)
        self.position += usable
        return start, content[:usable]


def usable_length(content: bytes, last: bool) -> int:
    """Count the bytes to hand out: up to the last newline, all at the very end, else whole pieces."""
    if last:
        return len(content)
    return content.rfind(b"\n") + 1 or len(content) // PIECE * PIECE


def blocks_of(block: Block, keep: Optional[Keep]) -> Iterator[Block]:
    """Split a block into runs of lines that are wanted; all of it without `keep`."""
    start, content = block
    if keep is None:
        yield block
        return
    begin = place = 0
    while place < len(content):
        end = content.find(b"\n", place) + 1 or len(content)
        if not keep(content[place:end]):
            if begin < place:
                yield start + begin, content[begin:place]
            begin = end
        place = end
    if begin < place:
        yield start + begin, content[begin:place]


def tail_position(path: str, count: int, keep: Optional[Keep], last: bool) -> int:
    """Find where the last `count` lines (of those wanted) begin, reading from the end; 0 if there are fewer.

    A line that has not ended counts only with `last`.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        end = os.fstat(descriptor).st_size
        position = end
        unfinished = end > 0 and not last and os.pread(descriptor, 1, end - 1) != b"\n"
        missing = count
        for start, text in lines_backward(descriptor, end):
            if missing == 0 and not unfinished:
                return position
            if unfinished:
                unfinished = False
            elif keep is None or keep(text):
                missing -= 1
            position = start
        return position
    finally:
        os.close(descriptor)


def lines_backward(descriptor: int, end: int) -> Iterator[Block]:
    """Yield offset and text of each line from the last to the first; of a long line its first piece."""
    line_end = block_end = end
    later = b""  # the part of the current line that lies in blocks after this one
    while block_end > 0:
        begin = max(0, block_end - BLOCK)
        content = os.pread(descriptor, block_end - begin, begin)
        stop = len(content)
        while True:
            cut = content.rfind(b"\n", 0, max(0, min(stop, line_end - 1 - begin))) + 1
            if cut == 0:
                break
            yield begin + cut, (content[cut:stop] + later)[:PIECE]
            line_end, stop, later = begin + cut, cut, b""
        later = (content[:stop] + later)[:PIECE]
        block_end = begin
    if line_end > 0:
        yield 0, later
