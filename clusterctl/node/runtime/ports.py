"""Free ports, and who listens on them."""

from __future__ import annotations

import os
import socket
from typing import Iterator, List, Optional, Sequence, Tuple

from .stream import VerbError

# From 20000 up: Ray's workers take 10002 to 19999. The rest is for kernels that keep nearly everything for themselves.
MIN_PORT, FALLBACK, MAX_PORT = 20000, 15000, 65535
MIN_PORTS = 100  # ports among which one is surely free
TORCH_DEFAULTS = (29400, 29500)  # where a stale torchrun of another user may listen
LISTEN = "0A"


def hold_port(ports: Optional[Sequence[int]]) -> socket.socket:
    """Bind a free port of `ports` (first, last) without listening; torchrun's store can bind over it.

    It is bound alone and marked reusable afterwards, so that two agents never hold the same port.
    """
    for port in candidates(ports, ephemeral_range(), os.urandom(1)[0] / 256):
        holder = bind_port(port)
        if holder is not None:
            return holder
    raise VerbError("CC-NET-020", f"no free port for the rendezvous: {_describe(ports)} are in use")


def candidates(ports: Optional[Sequence[int]], ephemeral: Tuple[int, int], start: float) -> Iterator[int]:
    """Yield the ports to try, from a point between 0.0 and 1.0 of the range onwards."""
    allowed: List[int] = list(range(ports[0], ports[1] + 1)) if ports else _outside_ephemeral(ephemeral)
    first = int(start * len(allowed))
    yield from allowed[first:]
    yield from allowed[:first]


def ephemeral_range() -> Tuple[int, int]:
    """Read the range from which the kernel picks ports by itself."""
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as source:
            low, high = source.read().split()
    except OSError:
        return 32768, 60999
    return int(low), int(high)


def port_of(holder: socket.socket) -> int:
    """Return the port that is held."""
    return int(holder.getsockname()[1])


def owns_listener(pid: int, port: int) -> bool:
    """Whether this very process listens on the port."""
    inodes = _listening_inodes(port)
    return bool(inodes) and any(link in inodes for link in _sockets_of(pid))


def _outside_ephemeral(ephemeral: Tuple[int, int]) -> List[int]:
    low, high = ephemeral
    ranges = [
        [port for port in range(lowest, MAX_PORT + 1) if not low <= port <= high]
        for lowest in (MIN_PORT, FALLBACK)
    ]
    allowed = next(
        (ports for ports in ranges if len(ports) >= MIN_PORTS), list(range(MIN_PORT, MAX_PORT + 1))
    )
    return [port for port in allowed if port not in TORCH_DEFAULTS]


def bind_port(port: int) -> Optional[socket.socket]:
    """Bind a port without listening, alone; None if another process has it."""
    for family, address in ((socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")):
        try:
            holder = socket.socket(family, socket.SOCK_STREAM)
        except OSError:
            continue
        try:
            if family == socket.AF_INET6:
                holder.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            holder.bind((address, port))
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        except OSError:
            holder.close()
        else:
            return holder
    return None


def _listening_inodes(port: int) -> List[str]:
    inodes = []
    for table in ("tcp", "tcp6"):
        try:
            with open(f"/proc/self/net/{table}", encoding="ascii") as source:
                rows = [line.split() for line in source]
        except OSError:
            continue
        suffix = f":{port:04X}"
        inodes += [f"socket:[{row[9]}]" for row in rows[1:] if row[1].endswith(suffix) and row[3] == LISTEN]
    return inodes


def _sockets_of(pid: int) -> Iterator[str]:
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        try:
            yield os.readlink(f"{folder}/{name}")
        except OSError:
            continue


def _describe(ports: Optional[Sequence[int]]) -> str:
    return f"all of `ports: {ports[0]}-{ports[1]}`" if ports else "all ports outside the ephemeral range"
