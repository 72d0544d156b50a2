"""How busy a node is, by what the kernel counts: processors, memory, and what its NICs carry."""

from __future__ import annotations

import os
import re
import time
from typing import Any, Dict, List, Tuple

from .probe_ask import list_folder, read_int, read_text

NET = "/sys/class/net"


class Gauges:
    """Counters now and before; a sample holds what happened in between."""

    def __init__(self) -> None:
        self._before = self._read()

    def sample(self) -> Dict[str, Any]:
        """Give shares from 0 to 1, bytes, and bytes per second since the last sample."""
        then, now = self._before, self._read()
        self._before = now
        seconds = max(1e-3, now[0] - then[0])
        busy, total = now[1][0] - then[1][0], now[1][1] - then[1][1]
        memory = read_memory()
        return {
            "cpu": busy / total if total > 0 else 0.0,
            "cores": os.cpu_count(),
            "load": os.getloadavg()[0],
            "memory": memory.get("MemTotal"),
            "memory_free": memory.get("MemAvailable", memory.get("MemFree")),
            "nics": {
                name: {"received": max(0, a - c) / seconds, "sent": max(0, b - d) / seconds}
                for name, (a, b) in now[2].items()
                for c, d in [then[2].get(name, (a, b))]
            },
        }

    def _read(self) -> Tuple[float, Tuple[int, int], Dict[str, Tuple[int, int]]]:
        return time.monotonic(), read_processors(), read_nics()


def read_processors() -> Tuple[int, int]:
    """Give the ticks in which the processors worked, and all ticks; waiting for a disk is not work."""
    line = (read_text("/proc/stat") or "cpu 0").split("\n", 1)[0]
    ticks: List[int] = [int(word) for word in line.split()[1:9]]  # guests are in `user` already
    return sum(ticks) - sum(ticks[3:5]), sum(ticks)


def read_memory() -> Dict[str, int]:
    """Give the lines of /proc/meminfo in bytes."""
    found = re.findall(r"^(\w+):\s+(\d+) kB", read_text("/proc/meminfo") or "", re.M)
    return {key: int(value) * 1024 for key, value in found}


def read_nics() -> Dict[str, Tuple[int, int]]:
    """Give the bytes that each NIC has received and sent; parts of bonds and bridges are counted in the whole."""
    names = [os.path.basename(path) for path in list_folder(NET)]
    own = [name for name in names if name != "lo" and not os.path.exists(os.path.join(NET, name, "master"))]
    return {name: (_count(name, "rx_bytes"), _count(name, "tx_bytes")) for name in own[:64]}


def _count(name: str, what: str) -> int:
    return read_int(os.path.join(NET, name, "statistics", what)) or 0
