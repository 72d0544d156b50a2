"""The GPUs of a sample: by NVIDIA's library, else as `top` reads them, which costs a process and is done less often.

The library runs in a child of the agent only: a driver that crashes or hangs there must end no run, nor keep an agent.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Set, Union

from ...protocol.untrusted import MalformedError, parse_json
from ..probe.utilization import GpuSampler
from ..runtime.processes import interpreter_options, set_parent_death_signal
from .ring import INTERVAL

if TYPE_CHECKING:
    from .ring import Column

LIBRARY = "libnvidia-ml.so.1"
DRIVER = ("/dev/nvidiactl", "/dev/dxg")  # without one of these the library finds no GPU
FRESH = 3 * INTERVAL  # seconds for which an answer of the child counts
MAX_GPUS = 64
SMI_INTERVAL = 15.0  # seconds between two answers of nvidia-smi, each of which costs processor time
CLOCK_SM, TEMPERATURE_GPU = 1, 0
XID_EVENT = 8  # nvmlEventTypeXidCriticalError
POWER_CAP, SLOWED = 0x4, 0x8 | 0x20 | 0x40 | 0x80  # of the reasons for lower clocks: power; heat and hardware
HEAT = 0x20 | 0x40  # of these; the hardware's own slowdown (0x8) is set with its heat (0x40) too
MIB = 1 << 20


class Utilization(ctypes.Structure):
    """nvmlUtilization_t."""

    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class Memory(ctypes.Structure):
    """nvmlMemory_t."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class EventData(ctypes.Structure):
    """nvmlEventData_t."""

    _fields_ = (
        ("device", ctypes.c_void_p),
        ("kind", ctypes.c_ulonglong),
        ("data", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class Nvml:
    """NVIDIA's management library; OSError where there is none, or no GPU."""

    def __init__(self, library: str = LIBRARY) -> None:
        self._library: Any = ctypes.CDLL(library)
        if self._library.nvmlInit_v2() != 0:
            raise OSError("NVML does not start")
        count = ctypes.c_uint()
        self._call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        self._devices = [self._device(index) for index in range(min(count.value, MAX_GPUS))]
        if not self._devices:
            raise OSError("NVML knows no GPU")
        self._events = self._watch_events()
        self._xids: Dict[int, int] = {}

    def _call(self, name: str, *arguments: Any) -> bool:
        function = getattr(self._library, name, None)
        return function is not None and function(*arguments) == 0

    def _device(self, index: int) -> ctypes.c_void_p:
        device = ctypes.c_void_p()
        self._call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(device))
        return device

    def _watch_events(self) -> Optional[ctypes.c_void_p]:
        events = ctypes.c_void_p()
        if not self._call("nvmlEventSetCreate", ctypes.byref(events)):
            return None
        for device in self._devices:
            self._call("nvmlDeviceRegisterEvents", device, ctypes.c_ulonglong(XID_EVENT), events)
        return events

    def about(self) -> List[Dict[str, object]]:
        """Return name and memory of each GPU, and how many PCIe lanes it can use."""
        found: List[Dict[str, object]] = []
        for device in self._devices:
            name, memory = ctypes.create_string_buffer(96), Memory()
            self._call("nvmlDeviceGetName", device, name, 96)
            self._call("nvmlDeviceGetMemoryInfo", device, ctypes.byref(memory))
            lanes = ctypes.c_uint()
            self._call("nvmlDeviceGetMaxPcieLinkWidth", device, ctypes.byref(lanes))
            shown = name.value.decode("utf-8", "replace")
            found.append({"name": shown, "memory": float(memory.total), "lanes": lanes.value or None})
        return found

    def sample(self) -> Dict[Column, float]:
        """Read all GPUs."""
        self._read_events()
        values: Dict[Column, float] = {}
        for index, device in enumerate(self._devices):
            for quantity, value in self._read(device).items():
                values["gpu", str(index), quantity] = value
            values["gpu", str(index), "xid"] = self._xids.get(device.value or 0, 0)
        return values

    def _read(self, device: ctypes.c_void_p) -> Dict[str, float]:
        values: Dict[str, float] = {}
        use, memory = Utilization(), Memory()
        if self._call("nvmlDeviceGetUtilizationRates", device, ctypes.byref(use)):
            values["busy"] = use.gpu
        if self._call("nvmlDeviceGetMemoryInfo", device, ctypes.byref(memory)):
            values["memory"] = memory.used
        number = ctypes.c_uint()
        if self._call("nvmlDeviceGetPowerUsage", device, ctypes.byref(number)):
            values["power"] = number.value / 1000
        if self._call("nvmlDeviceGetTemperature", device, TEMPERATURE_GPU, ctypes.byref(number)):
            values["temperature"] = number.value
        if self._call("nvmlDeviceGetClockInfo", device, CLOCK_SM, ctypes.byref(number)):
            values["clock"] = number.value
        reasons = ctypes.c_ulonglong()
        if self._call("nvmlDeviceGetCurrentClocksThrottleReasons", device, ctypes.byref(reasons)):
            values["throttle"] = 2 if reasons.value & SLOWED else 1 if reasons.value & POWER_CAP else 0
            values["heat"] = bool(reasons.value & HEAT)
            values["brake"] = not values["heat"] and bool(reasons.value & SLOWED)
        if self._call("nvmlDeviceGetCurrPcieLinkWidth", device, ctypes.byref(number)):
            values["lanes"] = number.value
        return values

    def _read_events(self) -> None:
        """Note the newest Xid of each GPU; nothing is waited for."""
        event = EventData()
        for _ in range(MAX_GPUS if self._events is not None else 0):
            if not self._call("nvmlEventSetWait_v2", self._events, ctypes.byref(event), 0):
                return
            self._xids[event.device or 0] = int(event.data)


class SlowGpus:
    """The GPUs as `top` reads them."""

    def __init__(self) -> None:
        self._sampler = GpuSampler(SMI_INTERVAL)
        self._sampler.start()

    def about(self) -> List[Dict[str, object]]:
        """Return name and memory of each GPU, as far as they have answered."""
        return [
            {"name": gpu.name, "memory": float((gpu.memory or 0) * MIB)}
            for gpu in self._sampler.latest().gpus
        ]

    def sample(self) -> Dict[Column, float]:
        """Return the newest answer."""
        values: Dict[Column, float] = {}
        for gpu in self._sampler.latest().gpus[:MAX_GPUS]:
            used, index = gpu.memory_used, str(gpu.index)
            found = (
                ("busy", gpu.busy),
                ("memory", None if used is None else used * MIB),
                ("power", gpu.power),
                ("temperature", gpu.temperature),
            )
            for quantity, value in found:
                if isinstance(value, (int, float)):
                    values["gpu", index, quantity] = float(value)
        return values

    def stop(self) -> None:
        """Stop asking."""
        self._sampler.stop()


class NvmlChild:
    """The library in a process of its own, which writes a line for each sample; nothing waits for it to end."""

    def __init__(self, spared: Set[int], library: str) -> None:
        import subprocess  # 9 ms, spent only where there are GPUs

        command = [sys.executable, *interpreter_options(), sys.argv[0], "gpus", str(os.getpid()), library]
        self._child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True
        )
        self._spared = spared
        spared.add(self._child.pid)
        self._about: List[Dict[str, object]] = []
        self._values: List[Any] = []
        self._answered = 0.0
        self.ended = False
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._child.stdout is not None
        with suppress(OSError, ValueError, MalformedError):
            for line in self._child.stdout:
                self._about, self._values = parse_json(line)
                self._answered = time.monotonic()
        self._spared.discard(self._child.pid)
        self.ended = True

    def about(self) -> List[Dict[str, object]]:
        """Return name and memory of each GPU."""
        return self._about

    def sample(self) -> Dict[Column, float]:
        """Return the newest answer, nothing if that is old: then the driver hangs."""
        is_fresh = time.monotonic() - self._answered <= FRESH
        values = self._values if is_fresh else []
        return {("gpu", index, quantity): value for index, quantity, value in values}

    def stop(self) -> None:
        """Kill it; one that hangs in the driver is left."""
        if not self.ended:
            with suppress(OSError):
                os.kill(self._child.pid, signal.SIGKILL)


class Gpus:
    """What reads the GPUs of this machine; `spared` holds the pid of its child for as long as that runs."""

    def __init__(self, spared: Set[int], library: str = LIBRARY) -> None:
        self._slow: Optional[SlowGpus] = None
        self._nvml: Optional[NvmlChild] = None
        if library != LIBRARY or any(map(os.path.exists, DRIVER)):
            with suppress(OSError):
                self._nvml = NvmlChild(spared, library)

    @property
    def source(self) -> Union[NvmlChild, SlowGpus]:
        """Return what reads them now."""
        if self._nvml is not None and not self._nvml.ended:
            return self._nvml
        if self._slow is None:
            self._slow = SlowGpus()
        return self._slow

    def stop(self) -> None:
        """Stop asking."""
        if self._nvml is not None:
            self._nvml.stop()
        if self._slow is not None:
            self._slow.stop()


def main(arguments: List[str]) -> None:
    """Write samples of the library to stdout for as long as the agent, whose pid is given, lives."""
    set_parent_death_signal(signal.SIGKILL)
    try:
        nvml = Nvml(arguments[1])
        while os.getppid() == int(arguments[0]):
            values = [[index, quantity, value] for (_, index, quantity), value in nvml.sample().items()]
            os.write(1, json.dumps([nvml.about(), values]).encode("utf-8") + b"\n")
            time.sleep(INTERVAL)
    except (OSError, AttributeError):  # no such library, or the agent is gone
        return
