"""GPUs by NVIDIA's library, here one that a compiler has just made: what is read, and in which units."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import clusterctl
from clusterctl.node.history.gpus import Gpus, Nvml

# SIMULATED: two GPUs, of which the second knows no power; an Xid 79 of the first is reported once.
LIBRARY = """
#include <string.h>
typedef unsigned int u; typedef unsigned long long ull; typedef int *dev;
static int gpus[2] = {0, 1}, told;
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(u *n) { *n = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(u i, dev *d) { *d = &gpus[i]; return 0; }
int nvmlDeviceGetName(dev d, char *s, u n) { strncpy(s, "H100", n); return 0; }
int nvmlDeviceGetUtilizationRates(dev d, u *v) { v[0] = 90 + *d; v[1] = 50; return 0; }
int nvmlDeviceGetMemoryInfo(dev d, ull *v) { v[0] = 100; v[1] = 60; v[2] = 40; return 0; }
int nvmlDeviceGetPowerUsage(dev d, u *v) { *v = 455500; return *d ? 3 : 0; }
int nvmlDeviceGetTemperature(dev d, int kind, u *v) { *v = kind ? 1 : 61; return 0; }
int nvmlDeviceGetClockInfo(dev d, int kind, u *v) { *v = kind == 1 ? 1980 : 1; return 0; }
int nvmlDeviceGetCurrentClocksThrottleReasons(dev d, ull *v) { *v = *d ? 0x44 : 0x4; return 0; }
int nvmlDeviceGetMaxPcieLinkWidth(dev d, u *v) { *v = 16; return 0; }
int nvmlDeviceGetCurrPcieLinkWidth(dev d, u *v) { *v = *d ? 8 : 16; return 0; }
int nvmlEventSetCreate(void **s) { *s = &told; return 0; }
int nvmlDeviceRegisterEvents(dev d, ull kinds, void *s) { return kinds == 8 ? 0 : 2; }
int nvmlEventSetWait_v2(void *s, struct { dev d; ull kind, data; u a, b; } *e, u ms) {
    if (told++) return 10;
    e->d = &gpus[0]; e->kind = 8; e->data = 79;
    return 0;
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Compile it."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("nvml")
    (folder / "nvml.c").write_text(LIBRARY)
    made = folder / "libnvml.so"
    command = [compiler, "-w", "-shared", "-fPIC", "-o", str(made), str(folder / "nvml.c")]
    subprocess.run(command, check=True)
    return str(made)


ROLE = """
import sys, types
package = types.ModuleType("clusterctl")
package.__path__ = [%r]
sys.modules["clusterctl"] = package
from clusterctl.node.main import main
main()
"""


@pytest.fixture
def role(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let children run this code, as they run the payload on a node."""
    script = tmp_path / "payload.py"
    script.write_text(ROLE % str(Path(clusterctl.__file__).parent))
    monkeypatch.setattr(sys, "argv", [str(script)])


def wait_until(condition: Callable[[], object]) -> bool:
    """Wait for what a child does."""
    deadline = time.monotonic() + 20
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return bool(condition())


def test_gpus_by_the_library(library: str) -> None:
    """Per cent, bytes, watts, degrees, MHz; 1 is a power limit, 2 heat or hardware; an Xid stays."""
    gpus = Nvml(library)
    assert gpus.about() == [{"name": "H100", "memory": 100.0, "lanes": 16}] * 2
    values = gpus.sample()
    first = {quantity: values["gpu", "0", quantity] for _, name, quantity in values if name == "0"}
    assert first == {
        "busy": 90,
        "memory": 40,
        "power": 455.5,
        "temperature": 61,
        "clock": 1980,
        "throttle": 1,
        "heat": 0,
        "brake": 0,
        "lanes": 16,
        "xid": 79,
    }
    assert ("gpu", "1", "power") not in values and values["gpu", "1", "throttle"] == 2
    assert (values["gpu", "1", "heat"], values["gpu", "1", "lanes"]) == (1, 8)
    assert gpus.sample()["gpu", "0", "xid"] == 79 and values["gpu", "1", "xid"] == 0


@pytest.mark.usefixtures("role")
def test_the_library_runs_in_a_child(library: str) -> None:
    """Its pid is spared for as long as it runs; what hangs gives no values, and stopping it waits for nothing."""
    spared: set[int] = set()
    gpus = Gpus(spared, library)
    assert wait_until(gpus.source.sample)
    assert (
        gpus.source.sample()["gpu", "0", "xid"] == 79
        and gpus.source.about() == [{"name": "H100", "memory": 100.0, "lanes": 16}] * 2
    )
    (pid,) = spared
    os.kill(pid, signal.SIGSTOP)
    assert wait_until(lambda: not gpus.source.sample())
    gpus.stop()
    assert wait_until(lambda: not spared)


@pytest.mark.usefixtures("role")
def test_a_driver_that_crashes_ends_only_the_child(library: str) -> None:
    """From then on the GPUs are read as `top` does."""
    spared: set[int] = set()
    gpus = Gpus(spared, library)
    (pid,) = spared
    os.kill(pid, signal.SIGSEGV)
    assert wait_until(lambda: not spared)
    assert isinstance(gpus.source.sample(), dict)
    gpus.stop()


@pytest.mark.usefixtures("role")
def test_without_the_library(tmp_path: Path) -> None:
    """No library, or one that is none: OSError, upon which the GPUs are read as `top` does."""
    with pytest.raises(OSError, match="nothing"):
        Nvml(str(tmp_path / "nothing.so"))
    with pytest.raises((OSError, AttributeError)):
        Nvml("libc.so.6")
    gpus = Gpus(set(), str(tmp_path / "nothing.so"))
    assert wait_until(lambda: gpus._nvml is None or gpus._nvml.ended)
    assert isinstance(gpus.source.sample(), dict)
    gpus.stop()
