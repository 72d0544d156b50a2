"""Signs of life of a run's ranks: what each said last and when, the state of its process, and since when it runs.

A pulse is {line, written, process, started}: times by this node's clock, `process` the kernel's letter (R, S, D, T).
"""

from __future__ import annotations

import os
import time
from typing import Any, Dict, Iterator, Optional

from ..runtime.processes import Identity, boot_id, identity_of, look
from ..state.run_record import FINAL, State

TAIL = 4096  # bytes of a log that are looked at
LONGEST = 300  # bytes of a line

Pulse = Dict[str, Any]


class Pulses:
    """The pulses of one run, taken anew at most every `interval` seconds; without an interval never."""

    def __init__(self, rundir: str, interval: Optional[float]) -> None:
        self._rundir = rundir
        self._interval = interval
        self._taken_at = float("-inf")
        self._taken: Dict[str, Pulse] = {}
        self._started: Dict[Identity, float] = {}

    def put_into(self, state: State) -> State:
        """Add the pulses to a state, as long as the run lives here."""
        if self._interval is None or state["state"] in FINAL or state["boot_id"] != boot_id():
            return state
        now = time.monotonic()
        if now - self._taken_at >= self._interval:
            self._taken_at = now
            ranks = {rank: self._take(entry) for rank, entry in state["ranks"].items()}
            self._taken = {rank: pulse for rank, pulse in ranks.items() if pulse is not None}
        return {**state, "pulses": self._taken}

    def _take(self, entry: State) -> Optional[Pulse]:
        identity = identity_of(entry)
        found = look(identity) if identity is not None else None
        if identity is None or found is None or not found.running:
            return None
        started = self._started.setdefault(identity, started_at(identity))
        spoken = max(self._voices(entry), default=(None, ""))
        return {"line": spoken[1], "written": spoken[0], "process": found.state, "started": started}

    def _voices(self, entry: State) -> Iterator[Any]:
        """Yield when each stream was last written to, and its last line."""
        for stream in ("stdout", "stderr"):
            if entry.get(stream):
                path = os.path.join(self._rundir, entry[stream])
                try:
                    yield os.stat(path).st_mtime, last_line(path)
                except OSError:
                    continue


def started_at(identity: Identity) -> float:
    """Turn a process's start, in ticks since boot, into seconds since 1970."""
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - identity.starttime / os.sysconf("SC_CLK_TCK")
    return round(time.time() - age, 2)


def last_line(path: str) -> str:
    """Read the last line that says anything; of a bar that redraws itself, how it looks now."""
    with open(path, "rb") as source:
        source.seek(0, os.SEEK_END)
        source.seek(max(0, source.tell() - TAIL))
        pieces = source.read(TAIL).replace(b"\r", b"\n").split(b"\n")
    words = [piece for piece in pieces if piece.strip()]
    return words[-1][:LONGEST].decode("utf-8", "replace") if words else ""
