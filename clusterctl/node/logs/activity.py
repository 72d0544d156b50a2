"""Signs of life of a run's ranks: what each wrote last and when, the state of its process, and since when it runs.

They are sent as `activity`, see RankActivity; times by this node's clock.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Dict, Iterator, Optional

from ...protocol.states import FINAL
from ..runtime.processes import Identity, boot_id, find_process
from ..state.run_record import parse_identity
from .log_file import read_log_end

if TYPE_CHECKING:
    from ...protocol.messages.files import RankActivity, RankRecord, State

TAIL_BYTES = 4096  # bytes of a log that are looked at
MAX_LINE = 300  # bytes of a line


class ActivityReader:
    """The activity of one run's ranks, read at most every `interval` seconds; without an interval never."""

    def __init__(self, rundir: str, interval: Optional[float]) -> None:
        self._rundir = rundir
        self._interval = interval
        self._read_at = float("-inf")
        self._latest: Dict[str, RankActivity] = {}
        self._started: Dict[Identity, float] = {}

    def add_to(self, state: State) -> State:
        """Add it to a state, as long as the run lives here."""
        if self._interval is None or state["state"] in FINAL or state["boot_id"] != boot_id():
            return state
        now = time.monotonic()
        if now - self._read_at >= self._interval:
            self._read_at = now
            ranks = {rank: self._read(entry) for rank, entry in state["ranks"].items()}
            self._latest = {rank: activity for rank, activity in ranks.items() if activity is not None}
        return {**state, "activity": self._latest}

    def _read(self, entry: RankRecord) -> Optional[RankActivity]:
        identity = parse_identity(entry)
        process = find_process(identity) if identity is not None else None
        if identity is None or process is None or not process.running:
            return None
        started = self._started.setdefault(identity, started_at(identity))
        written, line = max(self._last_lines(entry), default=(None, ""))
        return {"line": line, "written": written, "process": process.state, "started": started}

    def _last_lines(self, entry: RankRecord) -> Iterator[Any]:
        """Yield when each stream was last written to, and its last line."""
        for file in (entry["stdout"], entry["stderr"]):
            if file:
                path = os.path.join(self._rundir, file)
                try:
                    yield os.stat(path).st_mtime, last_line(path)
                except OSError:
                    continue


def started_at(identity: Identity) -> float:
    """Turn a process's start, in ticks since boot, into seconds since 1970."""
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - identity.starttime / os.sysconf("SC_CLK_TCK")
    return round(time.time() - age, 2)


def last_line(path: str) -> str:
    """Read the last line that is not empty; of a bar that redraws itself, how it looks now."""
    chunks = read_log_end(path, TAIL_BYTES).replace(b"\r", b"\n").split(b"\n")
    lines = [chunk for chunk in chunks if chunk.strip()]
    return lines[-1][:MAX_LINE].decode("utf-8", "replace") if lines else ""
