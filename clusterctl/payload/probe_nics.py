"""Network interfaces, read by netlink, by ioctl and from /sys; needs no iproute2 and no root.

/sys may show another network namespace than the one this process is in, so what it says of a NIC counts only
where interface number and hardware address agree with what the kernel tells this process.
"""

from __future__ import annotations

import array
import fcntl
import os
import socket
import struct
from typing import Any

from . import probe_netlink
from .probe_ask import read_int, read_text

IFF_UP, IFF_LOOPBACK, IFF_RUNNING, IFF_SLAVE = 0x1, 0x8, 0x40, 0x800
GET_FLAGS, GET_ADDRESS, GET_NETMASK, GET_MTU, GET_HARDWARE = 0x8913, 0x8915, 0x891B, 0x8921, 0x8927
ETHTOOL = 0x8946
ETHTOOL_DRIVER = 3
INFINIBAND_HARDWARE = 32

KIND_OF_DRIVER = {
    "veth": "veth",
    "bridge": "bridge",
    "bonding": "bond",
    "team": "bond",
    "tun": "tun",
    "wireguard": "wireguard",
    "vxlan": "vxlan",
    "macvlan": "macvlan",
    "ipvlan": "ipvlan",
    "dummy": "dummy",
    "ifb": "dummy",
    "802.1Q VLAN Support": "vlan",
}


def nics() -> list[dict[str, Any]]:
    """Tell every NIC of this network namespace with its addresses, state and kind."""
    addresses = _addresses()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        return [_nic(probe, index, name, addresses.get(name, [])) for index, name in socket.if_nameindex()]


def owners() -> dict[str, str]:
    """Map each address of this node to the NIC that owns it."""
    return {entry["ip"]: name for name, entries in _addresses().items() for entry in entries}


def _nic(probe: socket.socket, index: int, name: str, addresses: list[dict[str, Any]]) -> dict[str, Any]:
    flags = _number(probe, GET_FLAGS, name, "=H") or 0
    hardware, mac = _hardware(probe, name)
    driver, bus = _driver(probe, name)
    folder = "/sys/class/net/" + name
    sys_true = read_int(folder + "/ifindex") == index and read_text(folder + "/address") == mac
    up, running = bool(flags & IFF_UP), bool(flags & IFF_RUNNING)
    kind = _kind(flags, hardware, driver, bool(bus))
    return {
        "name": name,
        "kind": kind,
        "up": up,
        "running": running,
        "state": (read_text(folder + "/operstate") if sys_true else None) or ("up" if running else "down"),
        "carrier": bool(read_int(folder + "/carrier")) if sys_true and up else running,
        "mtu": _number(probe, GET_MTU, name, "=i"),
        "speed": _speed(folder) if sys_true else None,
        "physical": bool(bus) or (sys_true and os.path.exists(folder + "/device")),
        "driver": driver,
        "mac": mac,
        "slave": bool(flags & IFF_SLAVE),
        "addresses": addresses,
    }


def _kind(flags: int, hardware: int | None, driver: str | None, on_bus: bool) -> str:
    if flags & IFF_LOOPBACK:
        return "loopback"
    if hardware == INFINIBAND_HARDWARE:
        return "infiniband"
    return KIND_OF_DRIVER.get(driver or "") or ("ethernet" if on_bus or driver is None else "virtual")


def _speed(folder: str) -> int | None:
    """Give Mbit/s; virtio says -1 and some drivers refuse to say."""
    speed = read_int(folder + "/speed")
    return speed if speed and speed > 0 else None


def _ask(probe: socket.socket, request: int, name: str) -> bytes | None:
    try:
        return fcntl.ioctl(probe.fileno(), request, struct.pack("256s", os.fsencode(name)[:15]))
    except OSError:
        return None


def _number(probe: socket.socket, request: int, name: str, form: str) -> int | None:
    answer = _ask(probe, request, name)
    return None if answer is None else int(struct.unpack_from(form, answer, 16)[0])


def _hardware(probe: socket.socket, name: str) -> tuple[int | None, str | None]:
    answer = _ask(probe, GET_HARDWARE, name)
    if answer is None:
        return None, None
    return struct.unpack_from("=H", answer, 16)[0], ":".join("%02x" % byte for byte in answer[18:24])


def _driver(probe: socket.socket, name: str) -> tuple[str | None, str | None]:
    """Give driver and bus address as ethtool would; an empty bus address means a virtual NIC."""
    answer = array.array("B", struct.pack("=I", ETHTOOL_DRIVER) + bytes(192))
    request = struct.pack("16sP", os.fsencode(name)[:15], answer.buffer_info()[0]) + bytes(16)
    try:
        fcntl.ioctl(probe.fileno(), ETHTOOL, request)
    except OSError:
        return None, None
    fields = answer.tobytes()
    bus = _c_text(fields[100:132])
    return _c_text(fields[4:36]), bus if bus and bus != "N/A" else None


def _c_text(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode("ascii", "replace")


def _addresses() -> dict[str, list[dict[str, Any]]]:
    try:
        return probe_netlink.addresses()
    except OSError:  # as in a sandbox that knows no netlink
        return _addresses_by_ioctl()


def _addresses_by_ioctl() -> dict[str, list[dict[str, Any]]]:
    """Give the first IPv4 address of every NIC: less than the kernel knows, but enough to launch."""
    found: dict[str, list[dict[str, Any]]] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            address, mask = _ask(probe, GET_ADDRESS, name), _ask(probe, GET_NETMASK, name)
            if address is not None and mask is not None:
                prefix = bin(struct.unpack_from("!I", mask, 20)[0]).count("1")
                ip = socket.inet_ntoa(address[20:24])
                found[name] = [{"ip": ip, "prefix": prefix, "family": 4, "label": name}]
    return found
