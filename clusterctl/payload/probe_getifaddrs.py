"""Every address of every NIC, by getifaddrs(3) of the C library (glibc and musl)."""

from __future__ import annotations

import ctypes
import socket
import struct
from typing import Any, Iterator


class _Entry(ctypes.Structure):
    """One `struct ifaddrs` of the list that getifaddrs fills in."""


_Entry._fields_ = [
    ("next", ctypes.POINTER(_Entry)),
    ("name", ctypes.c_char_p),
    ("flags", ctypes.c_uint),
    ("address", ctypes.c_void_p),
    ("netmask", ctypes.c_void_p),
    ("peer", ctypes.c_void_p),
    ("data", ctypes.c_void_p),
]


def addresses() -> dict[str, list[dict[str, Any]]]:
    """Give the addresses by NIC in the kernel's order; a label such as `eth0:1` belongs to `eth0`."""
    libc = ctypes.CDLL(None, use_errno=True)
    first = ctypes.POINTER(_Entry)()
    if libc.getifaddrs(ctypes.byref(first)) != 0:
        raise OSError(ctypes.get_errno(), "getifaddrs failed")
    found: dict[str, list[dict[str, Any]]] = {}
    try:
        for entry in _walk(first):
            told = _address(entry)
            if told is not None:
                found.setdefault(told["label"].partition(":")[0], []).append(told)
    finally:
        libc.freeifaddrs(first)
    return found


def _walk(pointer: Any) -> Iterator[_Entry]:
    while pointer:
        yield pointer.contents
        pointer = pointer.contents.next


def _address(entry: Any) -> dict[str, Any] | None:
    if not entry.address:
        return None
    family = struct.unpack("=H", ctypes.string_at(entry.address, 2))[0]
    label = entry.name.decode("utf-8", "replace")
    if family == socket.AF_INET:
        start, size, number = 4, 4, 4
    elif family == socket.AF_INET6:
        start, size, number = 8, 16, 6
    else:
        return None
    raw = ctypes.string_at(entry.address + start, size)
    mask = ctypes.string_at(entry.netmask + start, size) if entry.netmask else b"\xff" * size
    prefix = sum(bin(byte).count("1") for byte in bytearray(mask))
    return {"ip": socket.inet_ntop(family, raw), "prefix": prefix, "family": number, "label": label}
