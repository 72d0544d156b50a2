"""How the GPUs of a node are, as it tells: `None` is what it did not or could not tell."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GpuState:
    """One GPU: why it is slowed, rows of memory to remap, fabric, PCIe lanes, NVLinks and how many are down."""

    index: int | None = None
    uuid: str | None = None
    bus: str | None = None
    persistence: str | None = None
    slowed: tuple[str, ...] = ()
    remap_pending: str | None = None
    remap_failed: str | None = None
    fabric: str | None = None
    fabric_status: str | None = None
    width: int | None = None
    width_most: int | None = None
    links: int | None = None
    links_down: int | None = None


@dataclass(frozen=True)
class Xid:
    """A kind of error that the kernel has reported of a GPU since the boot; `age` of the last one in seconds."""

    bus: str | None = None
    code: int | None = None
    count: int | None = None
    age: float | None = None
    text: str | None = None


@dataclass(frozen=True)
class GpuHealth:
    """All GPUs; `pci` are the bus addresses of those that the machine has, whether the driver lists them or not."""

    devices: tuple[GpuState, ...] = ()
    error: str | None = None
    xids: tuple[Xid, ...] = ()
    xids_hidden: str | None = None
    pci: tuple[str, ...] = ()
