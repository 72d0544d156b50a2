"""InfiniBand and RoCE adapters, read from /sys; needs neither libibverbs nor root."""

from __future__ import annotations

import os
from typing import Any

from .probe_ask import list_folder, read_text

MOST_GIDS = 64
UNSET = "0000:0000:0000:0000:0000:0000:0000:0000"


def infiniband(root: str = "/sys") -> list[dict[str, Any]]:
    """Tell the ports of the adapters: state, rate, kind of link, their NICs and kinds of addresses."""
    adapters = list_folder(root + "/class/infiniband")
    return [_port(adapter, port) for adapter in adapters for port in list_folder(adapter + "/ports")]


def _port(adapter: str, folder: str) -> dict[str, Any]:
    number = os.path.basename(folder)
    return {
        "adapter": os.path.basename(adapter),
        "port": int(number) if number.isdigit() else None,
        "state": _word(folder + "/state"),
        "physical": _word(folder + "/phys_state"),
        "rate": read_text(folder + "/rate"),
        "link": read_text(folder + "/link_layer"),
        "nics": _nics(adapter, folder),
        "gids": _gids(folder),
    }


def _word(path: str) -> str | None:
    """Give ACTIVE of `4: ACTIVE`."""
    return (read_text(path) or "").partition(":")[2].strip() or None


def _nics(adapter: str, folder: str) -> list[str]:
    """Name the NICs of a port; without GIDs those of the adapter, which may have several ports."""
    named = [read_text(path) for path in list_folder(folder + "/gid_attrs/ndevs")[:MOST_GIDS]]
    found = [name for name in named if name] or list(
        map(os.path.basename, list_folder(adapter + "/device/net"))
    )
    return list(dict.fromkeys(found))


def _gids(folder: str) -> list[str]:
    """Tell the kinds of the addresses that are set, such as `RoCE v2`."""
    kinds = []
    for path in list_folder(folder + "/gid_attrs/types")[:MOST_GIDS]:
        gid = read_text(os.path.join(folder, "gids", os.path.basename(path)))
        kind = read_text(path)
        if kind and gid != UNSET:
            kinds.append(kind)
    return list(dict.fromkeys(kinds))


def gpudirect(root: str = "") -> dict[str, Any]:
    """Tell whether adapters can reach GPU memory by nvidia_peermem, or by DMA-BUF with the open kernel driver."""
    version = read_text(root + "/proc/driver/nvidia/version")
    return {
        "peermem": os.path.isdir(root + "/sys/module/nvidia_peermem"),
        "open_driver": None if version is None else "Open Kernel Module" in version,
    }
