"""Complete lines of a file that grows."""

from __future__ import annotations

import codecs
import os
from typing import Optional, Tuple

from .log_file import check_log, open_log
from .truncation import find_hole_end, is_empty_block, read_truncation

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
        """Return where the next complete lines begin, and them; with `last` also a line that never ended.

        Raises NotALogError where something else has taken the file's place.
        """
        self.skipped = (0, 0)
        try:
            status = os.lstat(self.path)
        except OSError:
            return self.position, b""
        self.last_stat = check_log(status)
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
            return check_log(os.lstat(self.path)).st_size
        except OSError:
            return 0

    def _read_block(self, size: int, last: bool, most: int) -> Block:
        descriptor = open_log(self.path)
        try:
            if not last and not self._is_usable(descriptor, size):
                return self.position, b""
            content = os.pread(descriptor, min(most, size - self.position), self.position)
            content, whole = self._skip_truncation(descriptor, content, most)
            if is_empty_block(content):
                content = self._skip_hole(descriptor, content, size, most)
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

    def _skip_hole(self, descriptor: int, content: bytes, size: int, most: int) -> bytes:
        """Pass over what was never written, or was freed by another program: it takes no time, however long it is."""
        data = find_hole_end(descriptor, self.position, size)
        if data <= self.position:
            return content
        begin = self.position if self.skipped == (0, 0) else self.skipped[0]
        self.skipped, self.position = (begin, data), data
        return os.pread(descriptor, min(most, size - data), data)

    def _skip_truncation(self, descriptor: int, content: bytes, most: int) -> Tuple[bytes, bool]:
        """Pass over what was cut out, if we have come to it; what stands before it is complete."""
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
    """Count the bytes to hand out: up to the last newline, all at the very end, else whole pieces of characters."""
    if last:
        return len(content)
    return content.rfind(b"\n") + 1 or find_character_end(content, len(content) // PIECE * PIECE)


def find_character_end(content: bytes, end: int) -> int:
    """Return the last place up to `end` that does not break a character of UTF-8, if the text is that."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(content[:end])
    return end - len(decoder.getstate()[0])
