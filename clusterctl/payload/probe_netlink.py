"""Every address of every NIC, asked of the kernel by netlink (rtnetlink(7)), as getifaddrs(3) asks it.

ctypes, which it takes to call getifaddrs itself, costs a node as much as reading all of its other facts.
"""

from __future__ import annotations

import os
import socket
import struct
from typing import Any, Iterator

GET_ADDRESSES = 22  # RTM_GETADDR
REQUEST_ALL = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
ERROR, DONE = 2, 3  # NLMSG_ERROR, NLMSG_DONE
ADDRESS, LOCAL, LABEL = 1, 2, 3  # IFA_*; on a point-to-point NIC ADDRESS is the other side's
NUMBERS = {int(socket.AF_INET): 4, int(socket.AF_INET6): 6}
HEADER, ENTRY, ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct("=BBBBI"), struct.Struct("=HH")


def addresses() -> dict[str, list[dict[str, Any]]]:
    """Give the addresses by NIC in the kernel's order; a label such as `eth0:1` belongs to `eth0`."""
    names = dict(socket.if_nameindex())
    found: dict[str, list[dict[str, Any]]] = {}
    for message in _dump():
        family, prefix, _, _, index = ENTRY.unpack_from(message)
        told = dict(_attributes(message[ENTRY.size :]))
        raw = told.get(LOCAL) or told.get(ADDRESS)
        if family in NUMBERS and raw and index in names:
            label = os.fsdecode(told[LABEL].rstrip(b"\0")) if LABEL in told else names[index]
            ip = socket.inet_ntop(family, raw)
            entry = {"ip": ip, "prefix": prefix, "family": NUMBERS[family], "label": label}
            found.setdefault(names[index], []).append(entry)
    return found


def _dump() -> Iterator[bytes]:
    """Ask for all addresses; yields the messages without their headers."""
    request = HEADER.pack(HEADER.size + ENTRY.size, GET_ADDRESSES, REQUEST_ALL, 1, 0) + ENTRY.pack(
        0, 0, 0, 0, 0
    )
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as kernel:  # 0: NETLINK_ROUTE
        kernel.send(request)
        while True:
            rest = kernel.recv(1 << 16)
            while len(rest) >= HEADER.size:
                length, kind, _, _, _ = HEADER.unpack_from(rest)
                if kind == DONE:
                    return
                if kind == ERROR or length < HEADER.size:
                    raise OSError("the kernel refused to tell the addresses")
                yield rest[HEADER.size : length]
                rest = rest[_aligned(length) :]


def _attributes(rest: bytes) -> Iterator[tuple[int, bytes]]:
    while len(rest) >= ATTRIBUTE.size:
        length, kind = ATTRIBUTE.unpack_from(rest)
        if length < ATTRIBUTE.size:
            return
        yield kind, rest[ATTRIBUTE.size : length]
        rest = rest[_aligned(length) :]


def _aligned(length: int) -> int:
    return (length + 3) & ~3
