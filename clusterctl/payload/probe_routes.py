"""Where packets would go: the kernel's routes to the other nodes, and what names resolve to."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from typing import Any

from .probe_ask import problem_of, read_text
from .probe_nics import owners

RESOLVERS = 8  # threads; enough for a slow name server, few enough for a small node
ROUTES = 512  # of the routing table; a router's full table is not for us


def routes(peers: dict[str, str], limit: float) -> dict[str, Any]:
    """Tell for each peer its address, and the source address and NIC that the kernel chooses towards it."""
    addresses = _resolve_all(sorted(set(map(str, peers.values()))), limit)
    nic_of = owners()
    return {name: _route(addresses.get(str(host)), nic_of, limit) for name, host in peers.items()}


def _route(found: Any, nic_of: dict[str, str], limit: float) -> dict[str, Any]:
    if found is None:
        return {"problem": "the name was not resolved within %g s" % limit}
    if not isinstance(found, str):
        return dict(found)
    try:
        source = source_towards(found)
    except OSError as error:
        return {"address": found, "problem": error.strerror or str(error)}
    return {"address": found, "source": source, "nic": nic_of.get(source)}


def source_towards(address: str) -> str:
    """Give the source address that the kernel would use; connecting a UDP socket sends no packet."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))
        return str(probe.getsockname()[0])


def _resolve_all(hosts: list[str], limit: float) -> dict[str, Any]:
    """Resolve names side by side until the limit; a host that is missing in the answer was too slow."""
    found: dict[str, Any] = {}
    todo = []
    for host in hosts:
        if _is_ipv4(host):
            found[host] = host
        else:
            todo.append(host)
    count = min(RESOLVERS, len(todo))
    workers = [threading.Thread(target=_work, args=(todo, found), daemon=True) for _ in range(count)]
    deadline = time.monotonic() + limit
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(max(0.0, deadline - time.monotonic()))
    return dict(found)


def _work(todo: list[str], found: dict[str, Any]) -> None:
    while True:
        try:
            host = todo.pop()
        except IndexError:
            return
        try:
            found[host] = _ipv4s(host)[0]
        except (OSError, UnicodeError) as error:
            found[host] = problem_of(error)


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


def resolve(host: str) -> dict[str, Any]:
    """Tell the IPv4 addresses that a host's name or literal has on this node."""
    try:
        return {"host": host, "addresses": [host] if _is_ipv4(host) else _ipv4s(host) if host else []}
    except (OSError, UnicodeError) as error:
        return {"host": host, "addresses": [], "error": problem_of(error)["problem"]}


def own_hostname() -> dict[str, Any]:
    """Tell what this node's own hostname resolves to: Gloo and c10d fall back on that."""
    return resolve(os.uname().nodename)


def port_range() -> dict[str, Any]:
    """Tell the ephemeral ports, which must be open between the nodes."""
    words = (read_text("/proc/sys/net/ipv4/ip_local_port_range") or "").split()
    reserved = read_text("/proc/sys/net/ipv4/ip_local_reserved_ports")
    return {"first": int(words[0]), "last": int(words[1]), "reserved": reserved or ""}


def routing_table() -> list[dict[str, Any]]:
    """Tell the main IPv4 routing table, for addresses that are known only after this probe."""
    lines = (read_text("/proc/net/route", 1 << 20) or "").splitlines()[1 : ROUTES + 1]
    rows = (line.split() for line in lines)
    return [_table_row(row) for row in rows if len(row) >= 8]


def _table_row(row: list[str]) -> dict[str, Any]:
    reject = 0x0200
    return {
        "nic": row[0],
        "to": _dotted(row[1]),
        "prefix": bin(int(row[7], 16)).count("1"),
        "gateway": None if int(row[2], 16) == 0 else _dotted(row[2]),
        "metric": int(row[6]),
        "usable": not int(row[3], 16) & reject,
    }


def _dotted(number: str) -> str:
    return socket.inet_ntoa(struct.pack("=I", int(number, 16)))
