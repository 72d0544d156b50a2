"""How busy the GPUs are: asked for in a thread of its own, so that a GPU that hangs holds up nothing else."""

from __future__ import annotations

import os
import re
import threading
from typing import Any, Dict, List, Optional

from .probe_ask import list_folder, read_int
from .smi import SmiChild, find, read_rows

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
