"""InfiniBand and RoCE ports, read from a tree of files as /sys shows them."""

from __future__ import annotations

from pathlib import Path

from clusterctl.node.probe import network
from clusterctl.protocol.messages.facts import GpuDirect, InfinibandPort


def write_port(root: Path, adapter: str, number: int, **files: str) -> None:
    """Write a port's files; `__` stands for a slash."""
    folder = root / "class" / "infiniband" / adapter / "ports" / str(number)
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


def test_an_infiniband_port(tmp_path: Path) -> None:
    """State, rate and link come without their numbers; the NIC is the adapter's own."""
    write_port(
        tmp_path,
        "mlx5_0",
        1,
        state="4: ACTIVE",
        phys_state="5: LinkUp",
        rate="200 Gb/sec (4X HDR)",
        link_layer="InfiniBand",
    )
    (tmp_path / "class/infiniband/mlx5_0/device/net/ib0").mkdir(parents=True)
    assert network.infiniband(str(tmp_path)) == [
        InfinibandPort(
            adapter="mlx5_0",
            port=1,
            state="ACTIVE",
            physical="LinkUp",
            rate="200 Gb/sec (4X HDR)",
            link="InfiniBand",
            nics=("ib0",),
        )
    ]


def test_a_roce_port(tmp_path: Path) -> None:
    """Of the addresses only those that are set count; the NIC is the one that they stand on."""
    zero = "0000:0000:0000:0000:0000:0000:0000:0000"
    write_port(
        tmp_path,
        "mlx5_2",
        1,
        state="4: ACTIVE",
        phys_state="5: LinkUp",
        rate="100 Gb/sec (2X HDR)",
        link_layer="Ethernet",
        gids__0="fe80:0000:0000:0000:0ac0:ebff:fe12:3456",
        gids__1="0000:0000:0000:0000:0000:ffff:0a09:0001",
        gids__2=zero,
        gid_attrs__types__0="IB/RoCE v1",
        gid_attrs__types__1="RoCE v2",
        gid_attrs__types__2="strange",
        gid_attrs__ndevs__0="ens1f0np0",
        gid_attrs__ndevs__1="ens1f0np0",
    )
    (port,) = network.infiniband(str(tmp_path))
    assert (port.link, port.nics) == ("Ethernet", ("ens1f0np0",))
    assert port.gids == ("IB/RoCE v1", "RoCE v2")


def test_ports_that_cannot_be_read_are_bare(tmp_path: Path) -> None:
    """A driver that shows nothing of a port leaves its name; without adapters there is nothing."""
    assert network.infiniband(str(tmp_path)) == []
    (tmp_path / "class/infiniband/irdma0/ports/1").mkdir(parents=True)
    (port,) = network.infiniband(str(tmp_path))
    assert (port.adapter, port.state, port.nics) == ("irdma0", None, ())


def test_gpudirect(tmp_path: Path) -> None:
    """The module, or the driver's own word; without a driver nothing is reported of it."""
    assert network.gpudirect(str(tmp_path)) == GpuDirect(peermem=False, open_driver=None)
    (tmp_path / "sys/module/nvidia_peermem").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    text = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  560.35.03  Release Build\n"
    (tmp_path / "proc/driver/nvidia/version").write_text(text)
    assert network.gpudirect(str(tmp_path)) == GpuDirect(peermem=True, open_driver=True)
