"""How the GPUs are: what nvidia-smi tells in XML, their NVLinks, the kernel's Xid reports, and the PCI bus."""

from __future__ import annotations

import errno
import os
import re
import time
from typing import Any, Dict, Iterator, List, Optional, Tuple

from .probe_ask import list_folder, read_text
from .smi import ask, find

XML_LIMIT = 5.0  # seconds; it asks each GPU for everything, and may take a second
LINK_LIMIT = 2.0
MOST_XIDS = 64  # told, the newest
KERNEL_LOG = "/dev/kmsg"
LONGEST_LOG = 0.5  # seconds to read it
XID = re.compile(r"NVRM: Xid \(PCI:([0-9A-Fa-f:.]+)\): (\d+)(?:, (.*))?")
SLOWED = {
    "hw_slowdown": "hardware slowdown",
    "hw_thermal_slowdown": "too hot",
    "sw_thermal_slowdown": "too hot",
    "hw_power_brake_slowdown": "power brake",
}

Health = Dict[str, Any]


def gpu_health() -> Optional[Health]:
    """Tell what is not in order, GPU by GPU; `None` where there is no nvidia-smi."""
    smi = find("nvidia-smi")
    if smi is None:
        return None
    text, code = ask([smi, "-q", "-x"], XML_LIMIT)
    error = "nvidia-smi -q -x gave no answer within %g s" % XML_LIMIT if code is None else None
    devices = [] if error else read_xml(text)
    links = read_links(ask([smi, "nvlink", "-s"], LINK_LIMIT)[0]) if devices else {}
    for device in devices:
        device["links"], device["links_down"] = links.get(device["uuid"], (0, 0))
    xids, problem_of_log = read_xids()
    return {
        "devices": devices,
        "error": error,
        "xids": xids,
        "xids_hidden": problem_of_log,
        "pci": pci_gpus(),
    }


def read_xml(text: str) -> List[Health]:
    """Read the answer to `nvidia-smi -q -x`; nothing if it is none."""
    from xml.etree import ElementTree  # 6 ms, spent only where there are GPUs

    start = text.find("<?xml")
    try:
        root = ElementTree.fromstring(text[start:] if start >= 0 else "")
    except ElementTree.ParseError:
        return []
    return [_read_gpu(index, gpu) for index, gpu in enumerate(root.iter("gpu"))]


def _read_gpu(index: int, gpu: Any) -> Health:
    def say(path: str) -> Optional[str]:
        text = (gpu.findtext(path) or "").strip()
        return None if text in ("", "N/A", "[N/A]", "Requested functionality has been deprecated") else text

    link = "pci/pci_gpu_link_info/link_widths"
    return {
        "index": index,
        "uuid": say("uuid"),
        "bus": gpu.get("id"),
        "persistence": say("persistence_mode"),
        "slowed": list(_slowed(gpu)),
        "remap_pending": say("remapped_rows/remapped_row_pending"),
        "remap_failed": say("remapped_rows/remapped_row_failure"),
        "fabric": say("fabric/state"),
        "fabric_status": say("fabric/status"),
        "width": _number(say(link + "/current_link_width")),
        "width_most": _number(say(link + "/max_link_width")),
    }


def _slowed(gpu: Any) -> Iterator[str]:
    """Give why the clocks are held down; newer drivers say `event` where older ones say `throttle`."""
    told = []
    for kind in ("event", "throttle"):
        for name, words in SLOWED.items():
            text = gpu.findtext("clocks_%s_reasons/clocks_%s_reason_%s" % (kind, kind, name)) or ""
            if text.strip() == "Active" and words not in told:
                told.append(words)
    yield from [words for words in told if words != "hardware slowdown" or len(told) == 1]


def _number(text: Optional[str]) -> Optional[int]:
    found = re.match(r"\d+", text or "")
    return int(found.group()) if found else None


def read_links(text: str) -> Dict[str, Tuple[int, int]]:
    """Read `nvidia-smi nvlink -s`: by UUID how many NVLinks there are, and how many of them are down."""
    found: Dict[str, Tuple[int, int]] = {}
    uuid = ""
    for line in text.splitlines():
        head = re.match(r"GPU \d+: .*\(UUID: (\S+)\)", line)
        uuid = head.group(1) if head else uuid
        link = re.match(r"\s+Link \d+: (.*)", line)
        if link and uuid:
            total, down = found.get(uuid, (0, 0))
            found[uuid] = (total + 1, down + ("inactive" in link.group(1)))
    return found


def read_xids(path: str = KERNEL_LOG) -> Tuple[List[Health], Optional[str]]:
    """Give the kernel's reports of GPU errors since the boot, each kind once, and why they cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        return [], error.strerror
    try:
        return gather_xids(_records(descriptor), time.clock_gettime(time.CLOCK_MONOTONIC)), None
    finally:
        os.close(descriptor)


def _records(descriptor: int) -> Iterator[str]:
    until = time.monotonic() + LONGEST_LOG
    while time.monotonic() < until:
        try:
            piece = os.read(descriptor, 8192)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno != errno.EPIPE:  # overwritten while we read: the next read goes on
                return
            continue
        if not piece:
            return
        yield piece.decode("utf-8", "replace")


def gather_xids(records: Iterator[str], now: float) -> List[Health]:
    """Count the reports in records of the kernel's log (`level,number,microseconds,flags;text`), by GPU and number."""
    found: Dict[Tuple[str, int], Health] = {}
    for record in records:
        head, _, text = record.partition(";")
        told = XID.search(text)
        if told:
            fields = head.split(",")
            age = now - int(fields[2]) / 1e6 if len(fields) > 2 and fields[2].isdigit() else None
            one = found.setdefault((told.group(1), int(told.group(2))), {"count": 0})
            one.update(
                {"bus": told.group(1), "code": int(told.group(2)), "age": age, "count": one["count"] + 1}
            )
            one["text"] = (told.group(3) or "").split("\n")[0][:200]
    return list(found.values())[-MOST_XIDS:]


def pci_gpus(root: str = "/sys/bus/pci/devices") -> List[str]:
    """Give the bus addresses of NVIDIA's GPUs, whether the driver speaks to them or not."""
    return [
        os.path.basename(path)
        for path in list_folder(root)
        if read_text(path + "/vendor") == "0x10de"
        and (read_text(path + "/class") or "")[:6] in ("0x0300", "0x0302")
    ]
