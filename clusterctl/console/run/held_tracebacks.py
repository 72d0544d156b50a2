"""Tracebacks wait on a terminal until it is known which rank failed first: only its own is of use.

Nothing is lost: the logs on the nodes hold every line, and what is not shown is counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from clusterctl.plans.runs.gang_record import attempt_of
from clusterctl.protocol.ranks import Rank
from clusterctl.protocol.tracebacks import starts_traceback

if TYPE_CHECKING:
    from clusterctl.client.watch.follower import LogLines
    from clusterctl.console.run.logs import LogSink

HOLD_LIMIT = 3.0  # seconds; after it the script has survived the exception, or the run is not being ended
MOST_HELD = 2000  # lines of one rank


class HeldTracebacks:
    """Passes lines on, but from a traceback on those of its file, until the run ends or goes on."""

    def __init__(self, logs: LogSink, clock: Callable[[], float] = time.monotonic) -> None:
        self._logs, self._clock = logs, clock
        self._held: dict[tuple[str, str], list[LogLines]] = {}
        self._since: dict[tuple[str, str], float] = {}
        self._left_out = 0

    @property
    def hidden(self) -> int:
        """Count the lines that were not written."""
        return self._logs.hidden + self._left_out

    def show(self, entry: LogLines) -> None:
        """Write complete lines of one file, or keep them."""
        log = (entry.node, entry.file)
        for earlier in [log for log in self._held if attempt_of(log[1]) < attempt_of(entry.file)]:
            self._release(earlier)  # the run goes on in another attempt
        if log in self._held:
            self._held[log].append(entry)
            if sum(len(one.lines) for one in self._held[log]) > MOST_HELD:
                self._release(log)
            return
        start = _find_traceback(entry)
        if start is None:
            self._logs.show(entry)
            return
        if start or entry.gone:
            self._logs.show(entry.cut(slice(0, start), entry.gone))
        self._held[log] = [entry.cut(slice(start, None), None)]
        self._since[log] = self._clock()

    def tick(self, *, stopping: bool) -> None:
        """Write what has been kept for long, unless the run is being ended because a rank failed."""
        if stopping:
            return
        now = self._clock()
        for log in [log for log, since in self._since.items() if now - since > HOLD_LIMIT]:
            self._release(log)

    def finish(self, culprits: Collection[tuple[str, Rank]]) -> None:
        """Write the kept lines of these ranks (node, rank) and count the others; without culprits write all."""
        for log, entries in list(self._held.items()):
            first = entries[0]
            if not culprits or (first.rank is not None and (first.node, first.rank) in culprits):
                self._release(log)
            else:
                self._left_out += sum(len(entry.lines) for entry in entries)
                del self._held[log], self._since[log]

    def _release(self, log: tuple[str, str]) -> None:
        for entry in self._held.pop(log):
            self._logs.show(entry)
        del self._since[log]


def _find_traceback(entry: LogLines) -> int | None:
    """Return the index of the first line of a traceback of a rank."""
    if entry.rank is None or entry.stream != "stderr":
        return None
    return next((index for index, line in enumerate(entry.lines) if starts_traceback(line)), None)
