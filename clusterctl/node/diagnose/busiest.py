"""Whether a program that is no part of the run takes the processors of this node."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Dict, Optional, Tuple

from ..runtime.processes import all_pids, parse_stat

if TYPE_CHECKING:
    from ...protocol.messages.evidence import BusyProcess

MIN_TIME = 1.0  # seconds between the two looks; the kernel counts in hundredths
MIN_CORES = 0.5
MAX_LOOKS = 64  # processes whose environment is read
MAX_NAME = 64  # characters
TAG = b"CLUSTERCTL_RUN="  # see run_tag
TICK = os.sysconf("SC_CLK_TCK")


class ProcessorUse:
    """The processor time of all processes since a moment, without those that were started for a run."""

    def __init__(self, run: str) -> None:
        self._tag = TAG + os.fsencode(run) + b"/"
        self._began = time.monotonic()
        self._before = read_all_ticks()

    def find_busiest(self) -> Optional[BusyProcess]:
        """Return the process that has used most since then, if that is much; waits until the time is long enough."""
        time.sleep(max(0.0, self._began + MIN_TIME - time.monotonic()))
        seconds, after = time.monotonic() - self._began, read_all_ticks()
        used = {key: ticks - self._before[key] for key, ticks in after.items() if key in self._before}
        for key in sorted(used, key=lambda key: -used[key])[:MAX_LOOKS]:
            cores = used[key] / TICK / seconds
            if cores < MIN_CORES:
                return None
            if not self._is_ours(key[0]):
                return {"pid": key[0], "name": key[1][:MAX_NAME], "cores": round(cores, 2)}
        return None

    def _is_ours(self, pid: int) -> bool:
        """Look whether a process was started for the run; one of another account never was."""
        with suppress(OSError), open("/proc/%d/environ" % pid, "rb") as source:
            entries = source.read().split(b"\0")
            return pid == os.getpid() or any(entry.startswith(self._tag) for entry in entries)
        return False


def read_all_ticks() -> Dict[Tuple[int, str, int], int]:
    """Read the processor time of every process in clock ticks, by pid, name and start."""
    found = {}
    for pid in all_pids():
        with suppress(OSError, ValueError, IndexError):
            with open("/proc/%d/stat" % pid, "rb") as source:
                line = source.read()
            stat, fields = parse_stat(line), line.rpartition(b")")[2].split()
            if stat.name:
                found[pid, stat.name, stat.starttime] = int(fields[11]) + int(fields[12])
    return found
