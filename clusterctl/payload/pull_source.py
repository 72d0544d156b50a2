"""A file that is sent: as it is, or, of a log that lost its middle, both ends with a line between them that says so."""

from __future__ import annotations

import os
from typing import Optional

from .logcut import Cut, read_cut


def note_of(cut: Cut) -> bytes:
    """Say what is missing where it is."""
    return b"[clusterctl: %d bytes of this log were dropped here to hold log_limit]\n" % (cut.end - cut.begin)


def cut_in(path: bytes, found: os.stat_result) -> Optional[Cut]:
    """Tell what is gone of a log."""
    cut = read_cut(os.fsdecode(path)) if path.endswith(b".log") else None
    return cut if cut is not None and cut.end <= found.st_size else None


def size_of(found: os.stat_result, cut: Optional[Cut]) -> int:
    """Give how much there is to send."""
    return found.st_size if cut is None else cut.begin + len(note_of(cut)) + found.st_size - cut.end


class Source:
    """Reads on and on, as from one file; the caller closes the descriptor."""

    def __init__(self, descriptor: int, cut: Optional[Cut]) -> None:
        self.descriptor = descriptor
        self._cut = cut
        self._place = 0

    def read(self, most: int) -> bytes:
        """Take what comes next."""
        data = self._read(most)
        self._place += len(data)
        return data

    def rewind(self) -> None:
        """Begin again."""
        self._place = 0

    def _read(self, most: int) -> bytes:
        if self._cut is None:
            return os.pread(self.descriptor, most, self._place)
        begin, note = self._cut.begin, note_of(self._cut)
        beyond = self._place - begin
        if beyond < 0:
            return os.pread(self.descriptor, min(most, -beyond), self._place)
        if beyond < len(note):
            return note[beyond : beyond + most]
        return os.pread(self.descriptor, most, self._cut.end + beyond - len(note))
