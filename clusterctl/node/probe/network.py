"""NICs, addresses, routes and RDMA, read by netlink, by ioctl and from /sys; it needs no iproute2 and no root.

Addresses are asked of the kernel by netlink (rtnetlink(7)), as getifaddrs(3) does: ctypes, which it takes to call that,
costs a node as much as reading all of its other facts. /sys may show another network namespace than the one this
process is in, so its values for a NIC count only where interface number and hardware address are those that the kernel
reports to this process.
"""

from __future__ import annotations

import array
import fcntl
import os
import socket
import struct
import threading
import time
from contextlib import suppress
from typing import Iterator

from ...protocol.messages.facts import (
    Address,
    GpuDirect,
    InfinibandPort,
    Nic,
    PortRange,
    ResolvedName,
    Route,
    RouteEntry,
)
from .questions import list_folder, problem_of, read_int, read_text

GET_ADDRESSES = 22  # RTM_GETADDR
REQUEST_ALL = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
ERROR, DONE = 2, 3  # NLMSG_ERROR, NLMSG_DONE
ADDRESS, LOCAL, LABEL = 1, 2, 3  # IFA_*; on a point-to-point NIC ADDRESS is the other side's
FAMILY_NUMBERS = {int(socket.AF_INET): 4, int(socket.AF_INET6): 6}
HEADER, ENTRY, ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct("=BBBBI"), struct.Struct("=HH")
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
RESOLVERS = 8  # threads; enough for a slow name server, few enough for a small node
MAX_ROUTES = 512  # of the routing table; a router's full table is not for us
MAX_GIDS = 64
UNSET = "0000:0000:0000:0000:0000:0000:0000:0000"


def addresses() -> dict[str, list[Address]]:
    """Return the addresses by NIC in the kernel's order; a label such as `eth0:1` belongs to `eth0`."""
    names = dict(socket.if_nameindex())
    by_nic: dict[str, list[Address]] = {}
    for message in _dump_addresses():
        family, prefix, _, _, index = ENTRY.unpack_from(message)
        attributes = dict(_attributes(message[ENTRY.size :]))
        raw = attributes.get(LOCAL) or attributes.get(ADDRESS)
        if family in FAMILY_NUMBERS and raw and index in names:
            label = os.fsdecode(attributes[LABEL].rstrip(b"\0")) if LABEL in attributes else names[index]
            ip = socket.inet_ntop(family, raw)
            entry = Address(ip=ip, prefix=prefix, family=FAMILY_NUMBERS[family], label=label)
            by_nic.setdefault(names[index], []).append(entry)
    return by_nic


def _dump_addresses() -> Iterator[bytes]:
    """Ask for all addresses; yields the messages without their headers."""
    request = HEADER.pack(HEADER.size + ENTRY.size, GET_ADDRESSES, REQUEST_ALL, 1, 0) + ENTRY.pack(
        0, 0, 0, 0, 0
    )
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as kernel:  # 0: NETLINK_ROUTE
        kernel.send(request)
        while True:
            remaining = kernel.recv(1 << 16)
            while len(remaining) >= HEADER.size:
                length, kind, _, _, _ = HEADER.unpack_from(remaining)
                if kind == DONE:
                    return
                if kind == ERROR or length < HEADER.size:
                    raise OSError("the kernel did not report the addresses")
                yield remaining[HEADER.size : length]
                remaining = remaining[_aligned(length) :]


def _attributes(remaining: bytes) -> Iterator[tuple[int, bytes]]:
    while len(remaining) >= ATTRIBUTE.size:
        length, kind = ATTRIBUTE.unpack_from(remaining)
        if length < ATTRIBUTE.size:
            return
        yield kind, remaining[ATTRIBUTE.size : length]
        remaining = remaining[_aligned(length) :]


def _aligned(length: int) -> int:
    return (length + 3) & ~3


def nics() -> list[Nic]:
    """Read every NIC of this network namespace with its addresses, state and kind."""
    addresses = _addresses()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        return [_nic(probe, index, name, addresses.get(name, [])) for index, name in socket.if_nameindex()]


def owners() -> dict[str, str]:
    """Map each address of this node to the NIC that owns it."""
    return {entry.ip or "": name for name, entries in _addresses().items() for entry in entries}


def _nic(probe: socket.socket, index: int, name: str, addresses: list[Address]) -> Nic:
    flags = _number(probe, GET_FLAGS, name, "=H") or 0
    hardware, mac = _hardware(probe, name)
    driver, bus = _driver(probe, name)
    folder = "/sys/class/net/" + name
    sysfs_matches = read_int(folder + "/ifindex") == index and read_text(folder + "/address") == mac
    up, running = bool(flags & IFF_UP), bool(flags & IFF_RUNNING)
    kind = _kind(flags, hardware, driver, bool(bus))
    return Nic(
        name=name,
        kind=kind,
        up=up,
        running=running,
        state=(read_text(folder + "/operstate") if sysfs_matches else None) or ("up" if running else "down"),
        carrier=bool(read_int(folder + "/carrier")) if sysfs_matches and up else running,
        mtu=_number(probe, GET_MTU, name, "=i"),
        speed=_speed(folder) if sysfs_matches else None,
        physical=bool(bus) or (sysfs_matches and os.path.exists(folder + "/device")),
        driver=driver,
        mac=mac,
        slave=bool(flags & IFF_SLAVE),
        addresses=tuple(addresses),
    )


def _kind(flags: int, hardware: int | None, driver: str | None, on_bus: bool) -> str:
    if flags & IFF_LOOPBACK:
        return "loopback"
    if hardware == INFINIBAND_HARDWARE:
        return "infiniband"
    return KIND_OF_DRIVER.get(driver or "") or ("ethernet" if on_bus or driver is None else "virtual")


def _speed(folder: str) -> int | None:
    """Return Mbit/s; virtio reports -1 and some drivers report nothing."""
    speed = read_int(folder + "/speed")
    return speed if speed and speed > 0 else None


def _ioctl(probe: socket.socket, request: int, name: str) -> bytes | None:
    try:
        return fcntl.ioctl(probe.fileno(), request, struct.pack("256s", os.fsencode(name)[:15]))
    except OSError:
        return None


def _number(probe: socket.socket, request: int, name: str, field_format: str) -> int | None:
    answer = _ioctl(probe, request, name)
    return None if answer is None else int(struct.unpack_from(field_format, answer, 16)[0])


def _hardware(probe: socket.socket, name: str) -> tuple[int | None, str | None]:
    answer = _ioctl(probe, GET_HARDWARE, name)
    if answer is None:
        return None, None
    return struct.unpack_from("=H", answer, 16)[0], ":".join("%02x" % byte for byte in answer[18:24])


def _driver(probe: socket.socket, name: str) -> tuple[str | None, str | None]:
    """Return driver and bus address as ethtool would; an empty bus address means a virtual NIC."""
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


def _addresses() -> dict[str, list[Address]]:
    try:
        return addresses()
    except OSError:  # as in a sandbox that knows no netlink
        return _addresses_by_ioctl()


def _addresses_by_ioctl() -> dict[str, list[Address]]:
    """Return the first IPv4 address of every NIC: less than the kernel knows, but enough to launch."""
    by_nic: dict[str, list[Address]] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            address, mask = _ioctl(probe, GET_ADDRESS, name), _ioctl(probe, GET_NETMASK, name)
            if address is not None and mask is not None:
                prefix = bin(struct.unpack_from("!I", mask, 20)[0]).count("1")
                ip = socket.inet_ntoa(address[20:24])
                by_nic[name] = [Address(ip=ip, prefix=prefix, family=4, label=name)]
    return by_nic


def routes(peers: dict[str, str], limit: float) -> dict[str, Route]:
    """Read for each peer its address, and the source address and NIC that the kernel chooses towards it."""
    addresses = _resolve_all(sorted(set(map(str, peers.values()))), limit)
    nic_of = owners()
    return {name: _route(addresses.get(str(host)), nic_of, limit) for name, host in peers.items()}


def _route(resolved: ResolvedName | None, nic_of: dict[str, str], limit: float) -> Route:
    if resolved is None:
        return Route(problem="the name was not resolved within %g s" % limit)
    if not resolved.addresses:
        return Route(problem=resolved.error)
    address = resolved.addresses[0]
    try:
        source = source_towards(address)
    except OSError as error:
        return Route(address=address, problem=error.strerror or str(error))
    return Route(address=address, source=source, nic=nic_of.get(source))


def source_towards(address: str) -> str:
    """Return the source address that the kernel would use; connecting a UDP socket sends no packet."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))
        return str(probe.getsockname()[0])


def _resolve_all(hosts: list[str], limit: float) -> dict[str, ResolvedName]:
    """Resolve names side by side until the limit; a host that is missing in the answer was too slow."""
    resolved: dict[str, ResolvedName] = {}
    todo = list(hosts)

    def work() -> None:
        with suppress(IndexError):
            while True:
                host = todo.pop()
                resolved[host] = resolve(host)

    workers = [threading.Thread(target=work, daemon=True) for _ in range(min(RESOLVERS, len(todo)))]
    deadline = time.monotonic() + limit
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(max(0.0, deadline - time.monotonic()))
    return dict(resolved)


def _is_ipv4(host: str) -> bool:
    try:
        socket.inet_pton(socket.AF_INET, host)
    except (OSError, ValueError):
        return False
    return True


def _ipv4s(host: str) -> list[str]:
    name = host.encode("ascii") if host.isascii() else host  # as text it would cost 4 ms to load IDNA first
    answers = socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)
    return list(dict.fromkeys(str(answer[4][0]) for answer in answers))


def resolve(host: str) -> ResolvedName:
    """Read the IPv4 addresses that a host's name or literal has on this node."""
    try:
        return ResolvedName(
            host=host, addresses=tuple([host] if _is_ipv4(host) else _ipv4s(host) if host else ())
        )
    except (OSError, UnicodeError) as error:
        return ResolvedName(host=host, error=problem_of(error)["problem"])


def own_hostname() -> ResolvedName:
    """Return what this node's own hostname resolves to: Gloo and c10d fall back on that."""
    return resolve(os.uname().nodename)


def port_range() -> PortRange:
    """Read the ephemeral ports, which must be open between the nodes."""
    bounds = (read_text("/proc/sys/net/ipv4/ip_local_port_range") or "").split()
    reserved = read_text("/proc/sys/net/ipv4/ip_local_reserved_ports")
    return PortRange(first=int(bounds[0]), last=int(bounds[1]), reserved=reserved or "")


def routing_table() -> list[RouteEntry]:
    """Read the main IPv4 routing table, for addresses that are known only after this probe."""
    lines = (read_text("/proc/net/route", 1 << 20) or "").splitlines()[1 : MAX_ROUTES + 1]
    rows = (line.split() for line in lines)
    return [_table_row(row) for row in rows if len(row) >= 8]


def _table_row(row: list[str]) -> RouteEntry:
    reject = 0x0200
    return RouteEntry(
        nic=row[0],
        to=_dotted(row[1]),
        prefix=bin(int(row[7], 16)).count("1"),
        gateway=None if int(row[2], 16) == 0 else _dotted(row[2]),
        metric=int(row[6]),
        usable=not int(row[3], 16) & reject,
    )


def _dotted(number: str) -> str:
    return socket.inet_ntoa(struct.pack("=I", int(number, 16)))


def infiniband(root: str = "/sys") -> list[InfinibandPort]:
    """Read the ports of the adapters: state, rate, kind of link, their NICs and kinds of addresses."""
    adapters = list_folder(root + "/class/infiniband")
    return [_port(adapter, port) for adapter in adapters for port in list_folder(adapter + "/ports")]


def _port(adapter: str, folder: str) -> InfinibandPort:
    number = os.path.basename(folder)
    return InfinibandPort(
        adapter=os.path.basename(adapter),
        port=int(number) if number.isdigit() else None,
        state=_state_name(folder + "/state"),
        physical=_state_name(folder + "/phys_state"),
        rate=read_text(folder + "/rate"),
        link=read_text(folder + "/link_layer"),
        nics=tuple(_nics(adapter, folder)),
        gids=tuple(_gids(folder)),
    )


def _state_name(path: str) -> str | None:
    """Return ACTIVE of `4: ACTIVE`."""
    return (read_text(path) or "").partition(":")[2].strip() or None


def _nics(adapter: str, folder: str) -> list[str]:
    """Name the NICs of a port; without GIDs those of the adapter, which may have several ports."""
    names = [read_text(path) for path in list_folder(folder + "/gid_attrs/ndevs")[:MAX_GIDS]]
    nics = [name for name in names if name] or list(
        map(os.path.basename, list_folder(adapter + "/device/net"))
    )
    return list(dict.fromkeys(nics))


def _gids(folder: str) -> list[str]:
    """Read the kinds of the addresses that are set, such as `RoCE v2`."""
    kinds = []
    for path in list_folder(folder + "/gid_attrs/types")[:MAX_GIDS]:
        gid = read_text(os.path.join(folder, "gids", os.path.basename(path)))
        kind = read_text(path)
        if kind and gid != UNSET:
            kinds.append(kind)
    return list(dict.fromkeys(kinds))


def gpudirect(root: str = "") -> GpuDirect:
    """Return whether adapters can reach GPU memory by nvidia_peermem, or by DMA-BUF with the open kernel driver."""
    version = read_text(root + "/proc/driver/nvidia/version")
    return GpuDirect(
        peermem=os.path.isdir(root + "/sys/module/nvidia_peermem"),
        open_driver=None if version is None else "Open Kernel Module" in version,
    )
