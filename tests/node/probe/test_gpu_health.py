"""GPUs' health as nvidia-smi, the kernel's log and the PCI bus tell it; all answers here are SIMULATED."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from simulated_smi import with_smi

from clusterctl.node.probe import gpu
from clusterctl.node.probe.gpu import (
    count_xids,
    gpu_health,
    openers,
    pci_gpus,
    read_links,
    read_xids,
    read_xml,
)
from clusterctl.protocol.messages.facts import Gpu, Xid

# Two GPUs in the shape of `nvidia-smi -q -x`, cut to what is read: a new driver's words, and an older one's.
XML = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
  <driver_version>560.35.03</driver_version>
  <gpu id="00000000:18:00.0">
    <product_name>NVIDIA H100 80GB HBM3</product_name>
    <persistence_mode>Enabled</persistence_mode>
    <uuid>GPU-a</uuid>
    <pci><pci_gpu_link_info><link_widths>
      <max_link_width>16x</max_link_width><current_link_width>8x</current_link_width>
    </link_widths></pci_gpu_link_info></pci>
    <clocks_event_reasons>
      <clocks_event_reason_gpu_idle>Not Active</clocks_event_reason_gpu_idle>
      <clocks_event_reason_hw_slowdown>Active</clocks_event_reason_hw_slowdown>
      <clocks_event_reason_hw_thermal_slowdown>Active</clocks_event_reason_hw_thermal_slowdown>
    </clocks_event_reasons>
    <remapped_rows><remapped_row_pending>Yes</remapped_row_pending>
      <remapped_row_failure>No</remapped_row_failure></remapped_rows>
    <fabric><state>Completed</state><status>Success</status></fabric>
  </gpu>
  <gpu id="00000000:2A:00.0">
    <persistence_mode>Disabled</persistence_mode>
    <uuid>GPU-b</uuid>
    <clocks_throttle_reasons>
      <clocks_throttle_reason_hw_slowdown>Active</clocks_throttle_reason_hw_slowdown>
      <clocks_throttle_reason_hw_power_brake_slowdown>Not Active</clocks_throttle_reason_hw_power_brake_slowdown>
    </clocks_throttle_reasons>
    <remapped_rows>N/A</remapped_rows>
    <fabric><state>N/A</state><status>N/A</status></fabric>
  </gpu>
</nvidia_smi_log>
"""
LINKS = """GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-a)
\t Link 0: 26.562 GB/s
\t Link 1: <inactive>
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-b)
\t Link 0: 26.562 GB/s
"""


def test_the_xml_of_old_and_new_drivers() -> None:
    """What a driver does not know is None."""
    first, second = read_xml(f"some warning\n{XML}")
    assert (first.index, first.uuid, first.bus) == (0, "GPU-a", "00000000:18:00.0")
    assert (first.width, first.width_most) == (8, 16)
    assert first.slowed == ("too hot",) and second.slowed == ("hardware slowdown",)
    assert (first.remap_pending, first.remap_failed, second.remap_pending) == ("Yes", "No", None)
    assert (first.fabric, first.fabric_status, second.fabric) == ("Completed", "Success", None)
    assert (second.persistence, second.width) == ("Disabled", None)


@pytest.mark.parametrize("text", ["", "Failed to initialize NVML", "<?xml version='1.0'?><nvidia", XML[:900]])
def test_what_is_no_xml(text: str) -> None:
    """Half an answer is none."""
    assert read_xml(text) == []


def test_links() -> None:
    """By UUID how many there are, and how many are down; words that mean there are none give nothing."""
    assert read_links(LINKS) == {"GPU-a": (2, 1), "GPU-b": (1, 0)}
    assert read_links("NVML: Unable to retrieve NVLink information as all links are inActive") == {}


def test_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One answer of all GPUs, with their links."""
    (tmp_path / "xml").write_text(XML)
    (tmp_path / "links").write_text(LINKS)
    script = f"case $1 in -q) cat {tmp_path}/xml;; nvlink) cat {tmp_path}/links;; esac"
    monkeypatch.setenv("PATH", with_smi(tmp_path, script)["PATH"])
    health: Any = gpu_health()
    assert [(one.links, one.links_down) for one in health.devices] == [(2, 1), (1, 0)]
    assert health.error is None


def test_one_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It costs its own limit, and is named."""
    monkeypatch.setattr(gpu, "XML_LIMIT", 0.3)
    monkeypatch.setenv("PATH", with_smi(tmp_path, "sleep 3600")["PATH"])
    health: Any = gpu_health()
    assert (health.devices, health.error) == ((), "nvidia-smi -q -x gave no answer within 0.3 s")


def test_reports_of_the_kernel() -> None:
    """Alike reports are counted; the last one's age and words stay."""
    records = [
        "6,1,1000000,-;usb 1-1: new device",
        "4,2,2000000,-;NVRM: Xid (PCI:0000:18:00): 31, pid=77, name=python, Ch 00000008, MMU Fault",
        "4,3,3000000,-;NVRM: Xid (PCI:0000:18:00): 31, pid=78, name=python, Ch 00000009, MMU Fault",
        "4,4,9000000,-;NVRM: Xid (PCI:0000:2a:00): 79, GPU has fallen off the bus.\n SUBSYSTEM=pci",
    ]
    assert count_xids(iter(records), 10.0) == [
        Xid(bus="0000:18:00", code=31, count=2, age=7.0, text="pid=78, name=python, Ch 00000009, MMU Fault"),
        Xid(bus="0000:2a:00", code=79, count=1, age=1.0, text="GPU has fallen off the bus."),
    ]


def test_a_log_that_is_closed_to_us(tmp_path: Path) -> None:
    """Why it cannot be read is reported; a log without reports is no reason."""
    assert read_xids(str(tmp_path / "none")) == ([], "No such file or directory")
    (tmp_path / "log").write_text("")
    assert read_xids(str(tmp_path / "log")) == ([], None)


def test_gpus_on_the_bus(tmp_path: Path) -> None:
    """NVIDIA's GPUs only: no sound devices of theirs, no GPUs of others."""
    kinds = {
        "0000:18:00.0": ("0x10de", "0x030200"),
        "0000:18:00.1": ("0x10de", "0x040300"),
        "0000:00:02.0": ("0x8086", "0x030000"),
    }
    for name, (vendor, kind) in kinds.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "vendor").write_text(vendor + "\n")
        (tmp_path / name / "class").write_text(kind + "\n")
    assert pci_gpus(str(tmp_path)) == ["0000:18:00.0"]


def test_who_has_a_gpu_open() -> None:
    """Memory that nvidia-smi puts down to no one: those with the device open are named, where we may look."""
    assert list(openers((Gpu(index=7, uuid="GPU-x"),))) == []
