"""The TCP connection to a node, opened by us: quick, limited in time, and quick to notice a death."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from clusterctl.errors import ConnectError, ConnectTimeout, Unreachable
from clusterctl.runs.openfiles import is_scarcity, too_few_files
from clusterctl.specs.commandline import command_line

HEAD_KEPT = 256
SILENCE = 20  # seconds until the kernel gives up a peer that acknowledges nothing
KEEPALIVE = {
    "TCP_KEEPIDLE": 10,
    "TCP_KEEPINTVL": 5,
    "TCP_KEEPCNT": 2,
    "TCP_USER_TIMEOUT": SILENCE * 1000,  # what we send counts too, not only probes of an idle connection
}


class Address(NamedTuple):
    """One way to a host."""

    family: int
    target: Any  # what `connect` takes; its shape depends on the family

    def __str__(self) -> str:
        return f"{self.target[0]} port {self.target[1]}"


class Line(socket.socket):
    """The byte stream to one node; closing it wakes whoever waits in it."""

    node = ""
    proxied = False
    head = b""  # the first that the other side said

    def recv(self, size: int, flags: int = 0) -> bytes:
        """Receive, and remember how the conversation began."""
        data = super().recv(size, flags)
        if len(self.head) < HEAD_KEPT:
            self.head += data[:HEAD_KEPT]
        return data

    def hang_up(self) -> None:
        """End the stream in both directions, from any thread, without releasing the descriptor."""
        with suppress(OSError):
            self.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the stream and release it; paramiko calls this, and then need not wait for its next tick."""
        self.hang_up()
        super().close()

    def describe_end(self) -> str:
        """Say what is known about why the stream ended."""
        return ""


def open_tcp(node: str, host: str, port: int, limit: float) -> Line:
    """Connect to the first address of `host` that answers, within `limit` seconds."""
    deadline = time.monotonic() + limit
    addresses = _resolve(node, host, port, limit)
    failures: list[tuple[Address, OSError]] = []
    for place, address in enumerate(addresses):
        share = max(0.05, deadline - time.monotonic()) / (len(addresses) - place)
        try:
            return _dial(node, address, share)
        except OSError as error:
            if is_scarcity(error):
                raise too_few_files(str(error)) from error
            failures.append((address, error))
    raise _explain(node, f"{host} port {port}", failures, limit)


def _dial(node: str, address: Address, limit: float) -> Line:
    line = Line(address.family, socket.SOCK_STREAM)
    try:
        line.settimeout(limit)
        line.connect(address.target)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in KEEPALIVE.items():
            if hasattr(socket, option):
                line.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    except OSError:
        line.close()
        raise
    line.node = node
    return line


def _resolve(node: str, host: str, port: int, limit: float) -> Sequence[Address]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        found = _resolve_name(node, host, port, limit)
    return [Address(family, target) for family, _, _, _, target in found]


def _resolve_name(node: str, host: str, port: int, limit: float) -> list[Any]:
    """Look a name up in a thread that can be left behind: the resolver itself has no time limit."""
    answers: list[Any] = []
    asking = threading.Thread(target=_look_up, args=(host, port, answers), name="resolver", daemon=True)
    asking.start()
    asking.join(limit)
    if not answers:
        raise ConnectTimeout(
            f"the name {host} was not resolved within {limit:g} s",
            code="CC-SSH-004",
            node=node,
            fix=f"see why `{command_line('getent', 'hosts', host)}` is slow, "
            "or write the node's IP address as its host",
        )
    if isinstance(answers[0], Exception):
        raise Unreachable(
            f"the name {host} does not resolve",
            code="CC-SSH-001",
            node=node,
            evidence=str(answers[0]),
            fix="correct `host` in the inventory, or write the node's IP address there",
        )
    return list(answers[0])


def _look_up(host: str, port: int, answers: list[Any]) -> None:
    try:
        answers.append(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    except (OSError, UnicodeError) as error:
        answers.append(error)


def _explain(
    node: str, place: str, failures: Sequence[tuple[Address, OSError]], limit: float
) -> ConnectError:
    evidence = "\n".join(f"{address}: {error.strerror or error}" for address, error in failures)
    errors = [error for _, error in failures]
    if any(isinstance(error, ConnectionRefusedError) for error in errors):
        fix = "start sshd on the node, or correct `host` and `ssh.port` in the inventory"
        text = f"{place} refused the connection"
        return Unreachable(text, code="CC-SSH-002", node=node, evidence=evidence, fix=fix)
    if any(isinstance(error, TimeoutError) for error in errors):
        fix = "the node is off, or a firewall drops the packets; see whether it answers from its own network"
        text = f"no connection to {place} within {limit:g} s"
        return ConnectTimeout(text, code="CC-SSH-004", node=node, evidence=evidence, fix=fix)
    fix = f"see what `ip route get` says about {place.partition(' ')[0]}, and whether that network is up"
    text = f"there is no way to {place}"
    return Unreachable(text, code="CC-SSH-003", node=node, evidence=evidence, fix=fix)
