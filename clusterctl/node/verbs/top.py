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
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

from ..probe.nvidia_smi import SmiChild, find, read_rows
from ..probe.questions import list_folder, read_int, read_text
from ..runtime.stream import Stream

if TYPE_CHECKING:
    from ...protocol.messages.facts import GpuSample, GpusSample, MachineSample
    from ...protocol.messages.verbs import NodeFrame, TopRequest

NET = "/sys/class/net"


class UtilizationSampler:
    """Counters now and before; a sample holds what happened in between."""

    def __init__(self) -> None:
        self._previous = self._read()

    def sample(self) -> MachineSample:
        """Give shares from 0 to 1, bytes, and bytes per second since the last sample."""
        previous, now = self._previous, self._read()
        self._previous = now
        seconds = max(1e-3, now[0] - previous[0])
        busy, total = now[1][0] - previous[1][0], now[1][1] - previous[1][1]
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
                for c, d in [previous[2].get(name, (a, b))]
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
    matches = re.findall(r"^(\w+):\s+(\d+) kB", read_text("/proc/meminfo") or "", re.M)
    return {key: int(value) * 1024 for key, value in matches}


def read_nics() -> Dict[str, Tuple[int, int]]:
    """Give the bytes that each NIC has received and sent; parts of bonds and bridges are counted in the whole."""
    names = [os.path.basename(path) for path in list_folder(NET)]
    physical = [
        name for name in names if name != "lo" and not os.path.exists(os.path.join(NET, name, "master"))
    ]
    return {
        name: (_read_counter(name, "rx_bytes"), _read_counter(name, "tx_bytes")) for name in physical[:64]
    }


def _read_counter(name: str, counter: str) -> int:
    return read_int(os.path.join(NET, name, "statistics", counter)) or 0


LIMIT = 5.0  # seconds for nvidia-smi
RETRY_AFTER = 30.0  # seconds before one that hung is asked again
FIELDS = {
    "index": "index",
    "name": "name",
    "busy": "utilization.gpu",
    "memory_used": "memory.used",
    "memory": "memory.total",
    "temperature": "temperature.gpu",
    "power": "power.draw",
}


class GpuSampler:
    """The newest answer of nvidia-smi, or of the kernel where the GPUs are AMD's."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._smi = find("nvidia-smi")
        self._child = SmiChild()
        self._stopped = threading.Event()
        self._answer: GpusSample = {"gpus": [], "gpu_problem": None, "gpu_pending": self._smi is not None}
        self._thread: Optional[threading.Thread] = None

    def start(self) -> None:
        """Begin to ask."""
        if self._smi is not None:
            self._thread = threading.Thread(target=self._query_repeatedly, daemon=True)
            self._thread.start()

    def latest(self) -> GpusSample:
        """Give what was answered last, without waiting: until the first answer it is pending."""
        if self._smi is None:
            self._answer["gpus"] = read_amd()
        return self._answer

    def stop(self) -> None:
        """Stop asking, and end what is being asked."""
        self._stopped.set()
        self._child.finish()

    def _query_repeatedly(self) -> None:
        pause = 0.0
        while not self._stopped.wait(pause):
            gpus, problem = self._query()
            self._answer = {"gpu_pending": False, "gpus": gpus, "gpu_problem": problem}
            pause = RETRY_AFTER if "no answer" in (problem or "") else self._interval

    def _query(self) -> Tuple[List[GpuSample], Optional[str]]:
        command = [
            self._smi or "",
            "--query-gpu=" + ",".join(FIELDS.values()),
            "--format=csv,noheader,nounits",
        ]
        try:
            text, code = self._child.run(command, LIMIT)
        except OSError as error:
            return [], "nvidia-smi: %s" % error.strerror
        if code is None:
            return [], "nvidia-smi gave no answer within %g s" % LIMIT
        rows, stray_lines = read_rows(text, FIELDS)
        for row in rows:
            row["power"] = _number(row["power"])
        problem = "; ".join(stray_lines)[:300] or "nvidia-smi ended with %d" % code
        return rows, problem if stray_lines or code else None


def _number(value: Any) -> Optional[float]:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def read_amd(root: str = "/sys/class/drm") -> List[GpuSample]:
    """Read AMD's GPUs from the kernel: share in per cent, memory in MiB, degrees; nothing if there are none."""
    gpus: List[GpuSample] = []
    for card in list_folder(root, "card*"):
        device = os.path.join(card, "device")
        busy, memory = (
            read_int(os.path.join(device, name)) for name in ("gpu_busy_percent", "mem_info_vram_total")
        )
        if re.search(r"card\d+$", card) and busy is not None and memory:
            used = read_int(os.path.join(device, "mem_info_vram_used")) or 0
            temperatures = [
                read_int(os.path.join(path, "temp1_input"))
                for path in list_folder(os.path.join(device, "hwmon"))
            ]
            gpus.append(
                {
                    "index": len(gpus),
                    "name": "AMD GPU",
                    "busy": busy,
                    "memory_used": used >> 20,
                    "memory": memory >> 20,
                    "temperature": temperatures[0] // 1000 if temperatures and temperatures[0] else None,
                    "power": None,
                }
            )
    return gpus


BEAT_INTERVAL = 2.0
FIRST_INTERVAL = 0.4  # seconds over which the first rates are measured
CLIENT_LIMIT = 60.0


def run(request: TopRequest, stream: Stream) -> None:
    """Send samples until the client leaves."""
    stream.send_timeout = CLIENT_LIMIT
    UtilizationStream(stream, max(0.2, float(request["interval"]))).run()


class UtilizationStream:
    """One client, and what it is told."""

    def __init__(self, stream: Stream, interval: float) -> None:
        self._stream, self._interval = stream, interval
        self._sampler, self._gpu_sampler = UtilizationSampler(), GpuSampler(interval)
        self._last_received = self._last_sent = time.monotonic()
        self._poller = select.poll()
        self._poller.register(stream, select.POLLIN)

    def run(self) -> None:
        """Send a sample, wait, and so on."""
        for _ in self._stream.read_available():
            pass
        self._gpu_sampler.start()
        try:
            is_connected = self._wait(FIRST_INTERVAL)
            while is_connected:
                self._send({"sample": {**self._sampler.sample(), **self._gpu_sampler.latest()}})
                is_connected = self._wait(self._interval)
        finally:
            self._gpu_sampler.stop()

    def _send(self, frame: NodeFrame) -> None:
        self._stream.answer(frame)
        self._last_sent = time.monotonic()

    def _wait(self, seconds: float) -> bool:
        """Let time pass, with beats; False if the client has left or says nothing any more."""
        deadline = time.monotonic() + seconds
        while not self._stream.ended and time.monotonic() - self._last_received < CLIENT_LIMIT:
            now = time.monotonic()
            if now >= deadline:
                return True
            if now - self._last_sent >= BEAT_INTERVAL:
                self._send({"beat": int(now)})
            if self._poller.poll(min(deadline - now, BEAT_INTERVAL) * 1000):
                for _ in self._stream.read_available():
                    self._last_received = time.monotonic()
        return False
