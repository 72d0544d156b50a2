"""How busy this machine is: processors, memory, NICs and GPUs; read by the verb `top` and by the agents of runs."""

from __future__ import annotations

import os
import re
import threading
import time
from typing import Any, Dict, List, Optional, Tuple

from ...protocol.messages.facts import GpusSample, GpuUsage, Sample, Traffic
from .nvidia_smi import SmiChild, find, read_rows
from .questions import list_folder, read_int, read_memory, read_text

NET = "/sys/class/net"
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


class UtilizationSampler:
    """Counters now and before; a sample holds what happened in between."""

    def __init__(self) -> None:
        self._previous = self._read()

    def sample(self) -> Sample:
        """Return shares from 0 to 1, bytes, and bytes per second since the last sample."""
        previous, now = self._previous, self._read()
        self._previous = now
        seconds = max(1e-3, now[0] - previous[0])
        busy, total = now[1][0] - previous[1][0], now[1][1] - previous[1][1]
        memory = read_memory()
        return Sample(
            cpu=busy / total if total > 0 else 0.0,
            cores=os.cpu_count(),
            load=os.getloadavg()[0],
            memory=memory.get("MemTotal"),
            memory_free=memory.get("MemAvailable", memory.get("MemFree")),
            nics={
                name: Traffic(received=max(0, a - c) / seconds, sent=max(0, b - d) / seconds)
                for name, (a, b) in now[2].items()
                for c, d in [previous[2].get(name, (a, b))]
            },
        )

    def _read(self) -> Tuple[float, Tuple[int, int], Dict[str, Tuple[int, int]]]:
        return time.monotonic(), parse_processors(read_text("/proc/stat") or ""), read_nics()


def parse_processors(text: str) -> Tuple[int, int]:
    """Read /proc/stat: the ticks in which the processors worked, and all ticks; waiting for a disk is not work."""
    line = (text or "cpu 0").split("\n", 1)[0]
    ticks: List[int] = [int(word) for word in line.split()[1:9]]  # guests are in `user` already
    return sum(ticks) - sum(ticks[3:5]), sum(ticks)


def read_nics() -> Dict[str, Tuple[int, int]]:
    """Return the bytes that each NIC has received and sent; parts of bonds and bridges are counted in the whole."""
    names = [os.path.basename(path) for path in list_folder(NET)]
    physical = [
        name for name in names if name != "lo" and not os.path.exists(os.path.join(NET, name, "master"))
    ]
    return {
        name: (_read_counter(name, "rx_bytes"), _read_counter(name, "tx_bytes")) for name in physical[:64]
    }


def _read_counter(name: str, counter: str) -> int:
    return read_int(os.path.join(NET, name, "statistics", counter)) or 0


class GpuSampler:
    """The newest answer of nvidia-smi, or of the kernel where the GPUs are AMD's."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._smi = find("nvidia-smi")
        self._child = SmiChild()
        self._stopped = threading.Event()
        self._answer = GpusSample(gpu_pending=self._smi is not None)

    def start(self) -> None:
        """Begin to ask."""
        if self._smi is not None:
            threading.Thread(target=self._query_repeatedly, daemon=True).start()

    def latest(self) -> GpusSample:
        """Return what was answered last, without waiting: until the first answer it is pending."""
        return GpusSample(gpus=tuple(read_amd()), gpu_pending=False) if self._smi is None else self._answer

    def stop(self) -> None:
        """Stop asking, and end what is being asked."""
        self._stopped.set()
        self._child.finish()

    def _query_repeatedly(self) -> None:
        pause = 0.0
        while not self._stopped.wait(pause):
            gpus, problem = self._query()
            self._answer = GpusSample(gpu_pending=False, gpus=tuple(gpus), gpu_problem=problem)
            pause = RETRY_AFTER if "no answer" in (problem or "") else self._interval

    def _query(self) -> Tuple[List[GpuUsage], Optional[str]]:
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
        problem = "; ".join(stray_lines)[:300] or "nvidia-smi ended with %d" % code
        gpus = [GpuUsage(**dict(row, power=_number(row["power"]))) for row in rows]
        return gpus, problem if stray_lines or code else None


def _number(value: Any) -> Optional[float]:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def read_amd(root: str = "/sys/class/drm") -> List[GpuUsage]:
    """Read AMD's GPUs from the kernel: share in per cent, memory in MiB, degrees; nothing if there are none."""
    gpus: List[GpuUsage] = []
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
                GpuUsage(
                    index=len(gpus),
                    name="AMD GPU",
                    busy=busy,
                    memory_used=used >> 20,
                    memory=memory >> 20,
                    temperature=temperatures[0] // 1000 if temperatures and temperatures[0] else None,
                )
            )
    return gpus
