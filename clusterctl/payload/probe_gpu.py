"""Accelerators: NVIDIA by nvidia-smi and the kernel module, AMD and Ascend by what the kernel shows."""

from __future__ import annotations

import os
import re
from typing import Any, Iterator

from .probe_ask import list_folder, read_text
from .smi import ask, find, read_rows

SMI_LIMIT = 5.0  # seconds; a sick GPU makes nvidia-smi hang
APPS_LIMIT = 2.0  # the same, once it has answered

BASIC = {
    "index": "index",
    "uuid": "uuid",
    "name": "name",
    "driver": "driver_version",
    "memory": "memory.total",
    "memory_used": "memory.used",
    "compute_mode": "compute_mode",
}
FULL = dict(
    BASIC,
    bus="pci.bus_id",
    capability="compute_cap",
    mig="mig.mode.current",
    ecc_errors="ecc.errors.uncorrected.volatile.total",
)


def gpus() -> dict[str, Any]:
    """Tell the accelerators of this node, their driver, and nvidia-smi's own words when it fails."""
    module = _module_version()
    smi = find("nvidia-smi")
    if smi is None and module is None:
        return _others()
    answer: dict[str, Any] = {"vendor": "nvidia", "smi": smi, "module": module, "devices": [], "error": None}
    answer["files"] = len(list_folder("/dev", "nvidia[0-9]*"))
    if smi is None:
        answer["error"] = "nvidia-smi is not on this node"
    else:
        answer.update(_ask_smi(smi))
    answer["count"] = len(answer["devices"])
    from .gpu_memory import APPS, BUSY, read_apps  # not for nodes without GPUs

    if smi is not None and any((device["memory_used"] or 0) > BUSY for device in answer["devices"]):
        text, code = ask([smi, *APPS], APPS_LIMIT)
        answer["processes"] = (read_apps(text) if code == 0 else []) or list(openers(answer["devices"]))
    return answer


def openers(devices: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Name processes that have a GPU open, for memory that nvidia-smi puts down to nobody: those we may look into."""
    from .gpu_memory import describe

    names = {"/dev/nvidia%d" % device["index"]: device["uuid"] for device in devices}
    for folder in list_folder("/proc", "[0-9]*"):
        open_files = {link_of(path) for path in list_folder(folder + "/fd")}
        for device in sorted(open_files & names.keys()):
            yield {"gpu": names[device], "memory": None, **describe(int(os.path.basename(folder)))}


def link_of(path: str) -> str:
    """Give where a link leads; nothing if it is gone or none."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _others() -> dict[str, Any]:
    amd = [path for path in list_folder("/sys/class/kfd/kfd/topology/nodes") if _is_amd_gpu(path)]
    if amd:
        return {"vendor": "amd", "count": len(amd), "module": read_text("/sys/module/amdgpu/version")}
    ascend = [path for path in list_folder("/dev", "davinci[0-9]*") if path[len("/dev/davinci") :].isdigit()]
    if ascend:
        return {"vendor": "ascend", "count": len(ascend)}
    return {"vendor": None, "count": 0}


def _is_amd_gpu(path: str) -> bool:
    found = re.search(r"^simd_count (\d+)", read_text(path + "/properties") or "", re.M)
    return bool(found and int(found.group(1)))


def _module_version() -> str | None:
    text = read_text("/proc/driver/nvidia/version") or ""
    found = re.search(r"Kernel Module.*?(\d+\.\d[\d.]*)", text)
    return found.group(1) if found else read_text("/sys/module/nvidia/version")


def _ask_smi(smi: str) -> dict[str, Any]:
    text, error = _query(smi, FULL)
    fields = FULL
    if error and "not a valid field" in error:  # a driver older than some of the fields
        text, error = _query(smi, BASIC)
        fields = BASIC
    devices, strange = read_rows(text, fields)
    driver = next((device["driver"] for device in devices), None)
    return {"devices": devices, "driver": driver, "error": error or "; ".join(strange)[:500] or None}


def _query(smi: str, fields: dict[str, str]) -> tuple[str, str | None]:
    command = [smi, "--query-gpu=" + ",".join(fields.values()), "--format=csv,noheader,nounits"]
    text, code = ask(command, SMI_LIMIT)
    if code is None:
        return "", "nvidia-smi gave no answer within %g s" % SMI_LIMIT
    if code != 0:
        return text, " ".join(text.split())[:500] or "nvidia-smi ended with %d" % code
    return text, None
