"""Reports of a child to its parent: lines of JSON on a pipe."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping, Optional

if TYPE_CHECKING:
    from .event_loop import Loop


def write_report(report: int, entry: Mapping[str, Any]) -> None:
    """Write one report; a parent that is gone ends us by other means."""
    with suppress(OSError):
        os.write(report, json.dumps(entry).encode("utf-8") + b"\n")


class Reports:
    """Reads the reports of a child as they come."""

    def __init__(self, loop: Loop, descriptor: int, on_readable: Callable[[], None]) -> None:
        self._loop = loop
        self._descriptor: Optional[int] = descriptor
        self._unread = b""
        os.set_blocking(descriptor, False)
        loop.watch(descriptor, on_readable)

    def read(self) -> Iterator[Any]:
        """Yield the reports that have come."""
        while self._descriptor is not None:
            try:
                chunk = os.read(self._descriptor, 1 << 16)
            except BlockingIOError:
                break
            if not chunk:
                self.close()
            self._unread += chunk
        *lines, self._unread = self._unread.split(b"\n")
        for line in lines:
            try:
                report = json.loads(line.decode("utf-8"))
            except ValueError:  # its last words, cut off
                continue
            yield report

    def close(self) -> None:
        """Read no more."""
        if self._descriptor is not None:
            self._loop.unwatch(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None
