"""Which GPUs of a node a run takes, by the names that stay when indices change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clusterctl.plans.facts import Facts
from clusterctl.plans.facts_records import Gpu
from clusterctl.plans.vendors import vendor_of
from clusterctl.specs.inventory import Node
from clusterctl.specs.job import VISIBLE, Job


@dataclass(frozen=True)
class Device:
    """One GPU, or a slice of one; `index` is None for a slice, `used` its memory in use before the run, in MiB."""

    index: int | None
    id: str
    used: int | None = None


def wants_gpus(job: Job) -> bool:
    """Tell whether a job trains on GPUs."""
    return job.backend == "nccl" or job.nproc_per_node == "gpu" or bool(job.gpus)


def plan_devices(job: Job, node: Node, facts: Facts) -> tuple[Device, ...]:
    """Choose what a job takes of a node: its `gpus`, or what a variable shows it, else all that the node lends."""
    known = _devices(facts)
    if not wants_gpus(job) or not known:
        return ()
    lent = known if node.gpus is None else known[: node.gpus]
    if job.gpus:
        return tuple(device for device in known if device.index in job.gpus)
    shown = next((text for name in VISIBLE if (text := job.env.get(name)) is not None), None)
    if shown is None:
        shown = next((text for name in VISIBLE if (text := facts.environment.get(name)) is not None), None)
    return lent if shown is None or "${" in shown else _shown(shown, known)


def _devices(facts: Facts) -> tuple[Device, ...]:
    """Name what the probe saw; where it saw no UUIDs, as of AMD and Ascend, the vendor and the index are the name."""
    named = [_device(gpu) for gpu in facts.gpus.devices if gpu.uuid]
    if named:
        return tuple(sorted(named, key=lambda device: device.index or 0))
    vendor = vendor_of(facts)
    return tuple(Device(index, f"{vendor}-{index}") for index in range(min(facts.gpus.count or 0, 64)))


def _device(gpu: Gpu) -> Device:
    return Device(gpu.index, gpu.uuid or "", gpu.memory_used)


def _shown(text: str, known: Sequence[Device]) -> tuple[Device, ...]:
    """Read a list of indices, of UUIDs or their beginnings, and of slices, as CUDA does: to the first that is none."""
    found: list[Device] = []
    for word in (word.strip() for word in text.split(",")):
        if word.startswith("MIG-"):
            found.append(Device(None, word))
            continue
        fits = [device for device in known if _is_meant(word, device)]
        if not fits:
            break
        found += fits[:1]
    return tuple(dict.fromkeys(found))


def _is_meant(word: str, device: Device) -> bool:
    if word.isdecimal():
        return device.index == int(word)
    return word.startswith("GPU-") and device.id.startswith(word)
