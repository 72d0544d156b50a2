"""Opens a log, which a rank may have replaced by anything.

A rank knows the place of its log (/proc/self/fd/1). A pipe there would block the reader, a link would lead elsewhere.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Dict

if TYPE_CHECKING:
    from ...protocol.messages.verbs import ReplacedBy

_KINDS: Dict[int, ReplacedBy] = {
    stat.S_IFLNK: "link",
    stat.S_IFDIR: "directory",
    stat.S_IFIFO: "pipe",
    stat.S_IFSOCK: "socket",
}


class NotALogError(OSError):
    """What is at the place of a log is no regular file; `kind` is what it is."""

    def __init__(self, kind: ReplacedBy) -> None:
        super().__init__("not a regular file: " + kind)
        self.kind = kind


def check_log(status: os.stat_result) -> os.stat_result:
    """Raise NotALogError unless this is the status of a regular file."""
    if not stat.S_ISREG(status.st_mode):
        raise NotALogError(_KINDS.get(stat.S_IFMT(status.st_mode), "device"))
    return status


def open_log(path: str) -> int:
    """Open a log to read, without waiting and without following a link; NotALogError if it is no regular file."""
    check_log(os.lstat(path))
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    descriptor = os.open(path, flags)
    try:
        check_log(os.fstat(descriptor))  # it may have been replaced just now
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def read_log_end(path: str, limit: int) -> bytes:
    """Read the last bytes of a log; OSError where there is none."""
    descriptor = open_log(path)
    try:
        size = os.fstat(descriptor).st_size
        return os.pread(descriptor, min(size, limit), max(0, size - limit))
    finally:
        os.close(descriptor)


def read_tail(path: str, limit: int = 4096) -> str:
    """Return the end of a text file; empty if there is none."""
    try:
        return read_log_end(path, limit).decode("utf-8", "replace")
    except OSError:
        return ""
