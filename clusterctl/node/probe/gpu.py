"""GPUs and their health."""

from __future__ import annotations

import errno
import os
import re
import time
from typing import Any, Dict, Iterator, List, Optional, Tuple

from ...protocol.messages.facts import Gpu, GpuHealth, GpuProcess, Gpus, GpuState, Xid
from .nvidia_smi import APPS, BUSY_MEMORY, describe_user, find, query, read_apps, read_rows
from .questions import list_folder, read_text

SMI_LIMIT = 5.0  # seconds; a sick GPU makes nvidia-smi hang
APPS_LIMIT = 2.0  # the same, once it has answered
XML_LIMIT = 5.0  # seconds; it asks each GPU for everything, and may take a second
LINK_LIMIT = 2.0
MAX_XIDS = 64  # reported, the newest
KERNEL_LOG = "/dev/kmsg"
MAX_LOG = 0.5  # seconds to read it
XID = re.compile(r"NVRM: Xid \(PCI:([0-9A-Fa-f:.]+)\): (\d+)(?:, (.*))?")
SLOWDOWN_REASONS = {
    "hw_slowdown": "hardware slowdown",
    "hw_thermal_slowdown": "too hot",
    "sw_thermal_slowdown": "too hot",
    "hw_power_brake_slowdown": "power brake",
}

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


def gpus() -> Gpus:
    """Read the accelerators of this node, their driver, and nvidia-smi's own words when it fails."""
    module = _module_version()
    smi = find("nvidia-smi")
    if smi is None and module is None:
        return _other_vendors()
    answer = Gpus(vendor="nvidia", smi=smi, module=module, files=len(list_folder("/dev", "nvidia[0-9]*")))
    if smi is None:
        return answer.replace(error="nvidia-smi is not on this node", count=0)
    devices, error = _query_smi(smi)
    driver = next((device.driver for device in devices), None)
    return answer.replace(
        devices=devices, driver=driver, error=error, count=len(devices), processes=_users_of(smi, devices)
    )


def _users_of(smi: str, devices: Tuple[Gpu, ...]) -> Tuple[GpuProcess, ...]:
    if not any((device.memory_used or 0) > BUSY_MEMORY for device in devices):
        return ()
    text, code = query([smi, *APPS], APPS_LIMIT)
    return tuple((read_apps(text) if code == 0 else []) or openers(devices))


def openers(devices: Tuple[Gpu, ...]) -> Iterator[GpuProcess]:
    """Name processes that have a GPU open, as far as this account may see: nvidia-smi shows memory without them."""
    names = {"/dev/nvidia%s" % device.index: device.uuid for device in devices}
    for folder in list_folder("/proc", "[0-9]*"):
        open_files = {link_target(path) for path in list_folder(folder + "/fd")}
        for device in sorted(open_files & names.keys()):
            yield GpuProcess(gpu=names[device], **describe_user(int(os.path.basename(folder)), None))


def link_target(path: str) -> str:
    """Return where a link leads; nothing if it is gone or none."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _other_vendors() -> Gpus:
    amd = [path for path in list_folder("/sys/class/kfd/kfd/topology/nodes") if _is_amd_gpu(path)]
    if amd:
        return Gpus(vendor="amd", count=len(amd), module=read_text("/sys/module/amdgpu/version"))
    ascend = [path for path in list_folder("/dev", "davinci[0-9]*") if path[len("/dev/davinci") :].isdigit()]
    if ascend:
        return Gpus(vendor="ascend", count=len(ascend))
    return Gpus(vendor=None, count=0)


def _is_amd_gpu(path: str) -> bool:
    match = re.search(r"^simd_count (\d+)", read_text(path + "/properties") or "", re.M)
    return bool(match and int(match.group(1)))


def _module_version() -> str | None:
    text = read_text("/proc/driver/nvidia/version") or ""
    match = re.search(r"Kernel Module.*?(\d+\.\d[\d.]*)", text)
    return match.group(1) if match else read_text("/sys/module/nvidia/version")


def _query_smi(smi: str) -> Tuple[Tuple[Gpu, ...], Optional[str]]:
    text, error = _query(smi, FULL)
    fields = FULL
    if error and "not a valid field" in error:  # a driver older than some of the fields
        text, error = _query(smi, BASIC)
        fields = BASIC
    rows, stray_lines = read_rows(text, fields)
    return tuple(Gpu(**row) for row in rows), error or "; ".join(stray_lines)[:500] or None


def _query(smi: str, fields: dict[str, str]) -> tuple[str, str | None]:
    command = [smi, "--query-gpu=" + ",".join(fields.values()), "--format=csv,noheader,nounits"]
    text, code = query(command, SMI_LIMIT)
    if code is None:
        return "", "nvidia-smi gave no answer within %g s" % SMI_LIMIT
    if code != 0:
        return text, " ".join(text.split())[:500] or "nvidia-smi ended with %d" % code
    return text, None


def gpu_health() -> Optional[GpuHealth]:
    """Return what is not in order, GPU by GPU; `None` where there is no nvidia-smi."""
    smi = find("nvidia-smi")
    if smi is None:
        return None
    text, code = query([smi, "-q", "-x"], XML_LIMIT)
    error = "nvidia-smi -q -x gave no answer within %g s" % XML_LIMIT if code is None else None
    devices = [] if error else read_xml(text)
    links = read_links(query([smi, "nvlink", "-s"], LINK_LIMIT)[0]) if devices else {}
    counts = [(device, links.get(device.uuid or "", (0, 0))) for device in devices]
    xids, log_problem = read_xids()
    return GpuHealth(
        devices=tuple(device.replace(links=total, links_down=down) for device, (total, down) in counts),
        error=error,
        xids=tuple(xids),
        xids_hidden=log_problem,
        pci=tuple(pci_gpus()),
    )


def read_xml(text: str) -> List[GpuState]:
    """Read the answer to `nvidia-smi -q -x`; nothing if it is none."""
    from xml.etree import ElementTree  # 6 ms, spent only where there are GPUs

    start = text.find("<?xml")
    try:
        root = ElementTree.fromstring(text[start:] if start >= 0 else "")
    except ElementTree.ParseError:
        return []
    return [_read_gpu(index, gpu) for index, gpu in enumerate(root.iter("gpu"))]


def _read_gpu(index: int, gpu: Any) -> GpuState:
    def text_at(path: str) -> Optional[str]:
        text = (gpu.findtext(path) or "").strip()
        return None if text in ("", "N/A", "[N/A]", "Requested functionality has been deprecated") else text

    link = "pci/pci_gpu_link_info/link_widths"
    return GpuState(
        index=index,
        uuid=text_at("uuid"),
        bus=gpu.get("id"),
        persistence=text_at("persistence_mode"),
        slowed=tuple(_slowdown_reasons(gpu)),
        remap_pending=text_at("remapped_rows/remapped_row_pending"),
        remap_failed=text_at("remapped_rows/remapped_row_failure"),
        fabric=text_at("fabric/state"),
        fabric_status=text_at("fabric/status"),
        width=_number(text_at(link + "/current_link_width")),
        width_most=_number(text_at(link + "/max_link_width")),
    )


def _slowdown_reasons(gpu: Any) -> Iterator[str]:
    """Yield why the clocks are held down; newer drivers say `event` where older ones say `throttle`."""
    reasons = []
    for kind in ("event", "throttle"):
        for name, reason in SLOWDOWN_REASONS.items():
            text = gpu.findtext("clocks_%s_reasons/clocks_%s_reason_%s" % (kind, kind, name)) or ""
            if text.strip() == "Active" and reason not in reasons:
                reasons.append(reason)
    yield from [reason for reason in reasons if reason != "hardware slowdown" or len(reasons) == 1]


def _number(text: Optional[str]) -> Optional[int]:
    match = re.match(r"\d+", text or "")
    return int(match.group()) if match else None


def read_links(text: str) -> Dict[str, Tuple[int, int]]:
    """Read `nvidia-smi nvlink -s`: by UUID how many NVLinks there are, and how many of them are down."""
    counts: Dict[str, Tuple[int, int]] = {}
    uuid = ""
    for line in text.splitlines():
        head = re.match(r"GPU \d+: .*\(UUID: (\S+)\)", line)
        uuid = head.group(1) if head else uuid
        link = re.match(r"\s+Link \d+: (.*)", line)
        if link and uuid:
            total, down = counts.get(uuid, (0, 0))
            counts[uuid] = (total + 1, down + ("inactive" in link.group(1)))
    return counts


def read_xids(path: str = KERNEL_LOG) -> Tuple[List[Xid], Optional[str]]:
    """Return the kernel's reports of GPU errors since the boot, each kind once, and why they cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        return [], error.strerror
    try:
        return count_xids(_records(descriptor), time.clock_gettime(time.CLOCK_MONOTONIC)), None
    finally:
        os.close(descriptor)


def _records(descriptor: int) -> Iterator[str]:
    deadline = time.monotonic() + MAX_LOG
    while time.monotonic() < deadline:
        try:
            chunk = os.read(descriptor, 8192)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno != errno.EPIPE:  # overwritten while we read: the next read goes on
                return
            continue
        if not chunk:
            return
        yield chunk.decode("utf-8", "replace")


def count_xids(records: Iterator[str], now: float) -> List[Xid]:
    """Count the reports in records of the kernel's log (`level,number,microseconds,flags;text`), by GPU and number."""
    reports: Dict[Tuple[str, int], Xid] = {}
    for record in records:
        head, _, text = record.partition(";")
        match = XID.search(text)
        if match:
            fields = head.split(",")
            bus, code = match.group(1), int(match.group(2))
            earlier = reports.get((bus, code))
            reports[bus, code] = Xid(
                bus=bus,
                code=code,
                age=now - int(fields[2]) / 1e6 if len(fields) > 2 and fields[2].isdigit() else None,
                count=((earlier.count or 0) if earlier else 0) + 1,
                text=(match.group(3) or "").split("\n")[0][:200],
            )
    return list(reports.values())[-MAX_XIDS:]


def pci_gpus(root: str = "/sys/bus/pci/devices") -> List[str]:
    """Return the bus addresses of NVIDIA's GPUs, whether the driver uses them or not."""
    return [
        os.path.basename(path)
        for path in list_folder(root)
        if read_text(path + "/vendor") == "0x10de"
        and (read_text(path + "/class") or "")[:6] in ("0x0300", "0x0302")
    ]
