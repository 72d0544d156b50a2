"""Utilization samples.

The verb `top`: how busy a node is, told every few seconds for as long as the client listens; it leaves nothing.

request {"interval": seconds}
node    {"sample": {...}} every interval, the first one at once; {"beat": n} at least every 2 s in between
client  {"beat": n}; one that says nothing for CLIENT_LIMIT seconds counts as gone
"""

from __future__ import annotations

import os
import re
import select
import threading
import time
from typing import Any, Dict, List, Optional, Tuple

from ..probe.nvidia_smi import SmiChild, find, read_rows
from ..probe.questions import list_folder, read_int, read_text
from ..runtime.stream import Stream

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


LIMIT = 5.0  # seconds for nvidia-smi
AGAIN = 30.0  # seconds before one that hung is asked again
FIELDS = {
    "index": "index",
    "name": "name",
    "busy": "utilization.gpu",
    "memory_used": "memory.used",
    "memory": "memory.total",
    "temperature": "temperature.gpu",
    "power": "power.draw",
}
Gpu = Dict[str, Any]


class GpuGauges:
    """The newest answer of nvidia-smi, or of the kernel where the GPUs are AMD's."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._smi = find("nvidia-smi")
        self._child = SmiChild()
        self._over = threading.Event()
        self._answer: Dict[str, Any] = {"gpus": [], "gpu_problem": None, "gpu_pending": self._smi is not None}
        self._thread: Optional[threading.Thread] = None

    def begin(self) -> None:
        """Begin to ask."""
        if self._smi is not None:
            self._thread = threading.Thread(target=self._ask_on, daemon=True)
            self._thread.start()

    def latest(self) -> Dict[str, Any]:
        """Give what was answered last, without waiting: until the first answer it is pending."""
        return self._answer if self._smi is not None else {**self._answer, "gpus": read_amd()}

    def end(self) -> None:
        """Stop asking, and end what is being asked."""
        self._over.set()
        self._child.end()

    def _ask_on(self) -> None:
        pause = 0.0
        while not self._over.wait(pause):
            self._answer = {"gpu_pending": False, **self._ask()}
            pause = AGAIN if "no answer" in (self._answer["gpu_problem"] or "") else self._interval

    def _ask(self) -> Dict[str, Any]:
        command = [
            self._smi or "",
            "--query-gpu=" + ",".join(FIELDS.values()),
            "--format=csv,noheader,nounits",
        ]
        try:
            text, code = self._child.run(command, LIMIT)
        except OSError as error:
            return {"gpus": [], "gpu_problem": "nvidia-smi: %s" % error.strerror}
        if code is None:
            return {"gpus": [], "gpu_problem": "nvidia-smi gave no answer within %g s" % LIMIT}
        rows, strange = read_rows(text, FIELDS)
        for row in rows:
            row["power"] = _number(row["power"])
        said = "; ".join(strange)[:300] or "nvidia-smi ended with %d" % code
        return {"gpus": rows, "gpu_problem": said if strange or code else None}


def _number(value: Any) -> Optional[float]:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def read_amd(root: str = "/sys/class/drm") -> List[Gpu]:
    """Read AMD's GPUs from the kernel: share in per cent, memory in MiB, degrees; nothing if there are none."""
    found: List[Gpu] = []
    for card in list_folder(root, "card*"):
        device = os.path.join(card, "device")
        busy, memory = (
            read_int(os.path.join(device, name)) for name in ("gpu_busy_percent", "mem_info_vram_total")
        )
        if re.search(r"card\d+$", card) and busy is not None and memory:
            used = read_int(os.path.join(device, "mem_info_vram_used")) or 0
            heat = [
                read_int(os.path.join(path, "temp1_input"))
                for path in list_folder(os.path.join(device, "hwmon"))
            ]
            found.append(
                {
                    "index": len(found),
                    "name": "AMD GPU",
                    "busy": busy,
                    "memory_used": used >> 20,
                    "memory": memory >> 20,
                    "temperature": heat[0] // 1000 if heat and heat[0] else None,
                    "power": None,
                }
            )
    return found


BEAT = 2.0
FIRST = 0.4  # seconds over which the first rates are measured
CLIENT_LIMIT = 60.0


def run(request: Dict[str, Any], stream: Stream) -> None:
    """Send samples until the client leaves."""
    stream.patience = CLIENT_LIMIT
    Top(stream, max(0.2, float(request["interval"]))).run()


class Top:
    """One client, and what it is told."""

    def __init__(self, stream: Stream, interval: float) -> None:
        self._stream, self._interval = stream, interval
        self._gauges, self._gpus = Gauges(), GpuGauges(interval)
        self._heard = self._sent = time.monotonic()
        self._poller = select.poll()
        self._poller.register(stream, select.POLLIN)

    def run(self) -> None:
        """Send a sample, wait, and so on."""
        for _ in self._stream.arrived():
            pass
        self._gpus.begin()
        try:
            there = self._wait(FIRST)
            while there:
                self._send({"sample": {**self._gauges.sample(), **self._gpus.latest()}})
                there = self._wait(self._interval)
        finally:
            self._gpus.end()

    def _send(self, header: Dict[str, Any]) -> None:
        self._stream.send(header)
        self._sent = time.monotonic()

    def _wait(self, seconds: float) -> bool:
        """Let time pass, with beats; False if the client has left or says nothing any more."""
        until = time.monotonic() + seconds
        while not self._stream.ended and time.monotonic() - self._heard < CLIENT_LIMIT:
            now = time.monotonic()
            if now >= until:
                return True
            if now - self._sent >= BEAT:
                self._send({"beat": int(now)})
            if self._poller.poll(min(until - now, BEAT) * 1000):
                for _ in self._stream.arrived():
                    self._heard = time.monotonic()
        return False
