"""The TCP connection to a node, also to one of a practice cluster; open-file limits."""

from __future__ import annotations

import errno
import os
import resource
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

from clusterctl.errors import ConnectError, ConnectTimeout, LocalSystemError, Unreachable
from clusterctl.node_texts import describe_system_error
from clusterctl.plans.ssh import render_lab_command
from clusterctl.specs.text import command_line
from clusterctl.translation import tr, trn

RESERVED_FILES = 128  # besides the nodes' connections
MIN_FILES_PER_NODE = 3  # of a node: its connection, and the two ends of a wakeup pipe for one conversation
FILES_PER_NODE = 6  # of a node with two conversations, with room
MIN_FILE_LIMIT = 16384
FILE_LIMIT_ERRNOS = (errno.EMFILE, errno.ENFILE)


def raise_file_limit(nodes: int) -> None:
    """Raise the soft limit to what so many nodes take; LocalSystemError if the hard limit is below the minimum."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = max(MIN_FILE_LIMIT, RESERVED_FILES + FILES_PER_NODE * nodes)
    if resource.RLIM_INFINITY != hard < needed:
        if hard < RESERVED_FILES + MIN_FILES_PER_NODE * nodes:
            raise too_few_files(
                trn(
                    "{n} node needs at least {files}",
                    "{n} nodes need at least {files}",
                    nodes,
                    files=RESERVED_FILES + MIN_FILES_PER_NODE * nodes,
                )
            )
        needed = hard
    if resource.RLIM_INFINITY != soft < needed:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def too_few_files(evidence: str) -> LocalSystemError:
    """Report that this machine allows too few open files, and what can be done."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return LocalSystemError("CC-USE-080", evidence=evidence, soft=soft)


def is_file_limit_error(error: BaseException) -> bool:
    """Return whether something failed because too many files are open."""
    return isinstance(error, OSError) and error.errno in FILE_LIMIT_ERRNOS


FIRST_BYTES_KEPT = 256
SILENCE_LIMIT = 20  # seconds until the kernel gives up a peer that acknowledges nothing
KEEPALIVE = {
    "TCP_KEEPIDLE": 10,
    "TCP_KEEPINTVL": 5,
    "TCP_KEEPCNT": 2,
    "TCP_USER_TIMEOUT": SILENCE_LIMIT
    * 1000,  # what we send counts too, not only probes of an idle connection
}


class Address(NamedTuple):
    """One way to a host."""

    family: int
    target: Any  # what `connect` takes; its shape depends on the family

    def __str__(self) -> str:
        return f"{self.target[0]} port {self.target[1]}"


class SshSocket(socket.socket):
    """The byte stream to one node; closing it wakes the threads that wait in it."""

    node = ""
    first_bytes = b""  # the first that the other side sent

    def recv(self, size: int, flags: int = 0) -> bytes:
        """Receive, and remember how the conversation began."""
        data = super().recv(size, flags)
        if len(self.first_bytes) < FIRST_BYTES_KEPT:
            self.first_bytes += data[:FIRST_BYTES_KEPT]
        return data

    def abort(self) -> None:
        """End the stream in both directions, from any thread, without releasing the descriptor."""
        with suppress(OSError):
            self.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the stream and release it; paramiko calls this, and then need not wait for its next tick."""
        self.abort()
        super().close()

    def describe_end(self) -> str:
        """Describe what is known about why the stream ended."""
        return ""


LAB_REQUEST = b'{"do": "socket"}'  # to the process that holds a lab, see `lab/holder.py`


def open_lab_tcp(node: str, host: str, port: int, folder: Path, limit: float) -> SshSocket:
    """Connect to an address in the network of a practice cluster, whose files are in `folder`."""
    try:
        with ExitStack() as stack:
            directory = os.open(folder, os.O_PATH | os.O_CLOEXEC)
            stack.callback(os.close, directory)
            control = stack.enter_context(closing(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)))
            control.settimeout(limit)
            control.connect(f"/proc/self/fd/{directory}/control")  # a socket's path must be short
            control.send(LAB_REQUEST)
            _, (descriptor, *_), _, _ = socket.recv_fds(control, len(LAB_REQUEST), 1)
    except (OSError, ValueError) as error:
        raise Unreachable(
            "CC-SSH-013",
            "lab",
            node=node,
            evidence=describe_system_error(error),
            heal=render_lab_command(folder.name, "heal", node),
        ) from error
    sock = SshSocket(fileno=descriptor)
    address = Address(socket.AF_INET, (host, port))
    try:
        return _connect(node, sock, address, limit)
    except OSError as error:
        raise _explain(node, f"{host} port {port}", [(address, error)], limit) from error


def open_tcp(node: str, host: str, port: int, limit: float) -> SshSocket:
    """Connect to the first address of `host` that answers, within `limit` seconds."""
    deadline = time.monotonic() + limit
    addresses = _resolve(node, host, port, limit)
    failures: list[tuple[Address, OSError]] = []
    for index, address in enumerate(addresses):
        share = max(0.05, deadline - time.monotonic()) / (len(addresses) - index)
        try:
            return _connect(node, SshSocket(address.family, socket.SOCK_STREAM), address, share)
        except OSError as error:
            if is_file_limit_error(error):
                raise too_few_files(str(error)) from error
            failures.append((address, error))
    raise _explain(node, f"{host} port {port}", failures, limit)


def _connect(node: str, sock: SshSocket, address: Address, limit: float) -> SshSocket:
    try:
        sock.settimeout(limit)
        sock.connect(address.target)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in KEEPALIVE.items():
            if hasattr(socket, option):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    except OSError:
        sock.close()
        raise
    sock.node = node
    return sock


def _resolve(node: str, host: str, port: int, limit: float) -> Sequence[Address]:
    try:
        records = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        records = _resolve_name(node, host, port, limit)
    return [Address(family, target) for family, _, _, _, target in records]


def _resolve_name(node: str, host: str, port: int, limit: float) -> list[Any]:
    """Look a name up in a thread that can be abandoned: the resolver itself has no time limit."""
    results: list[Any] = []
    resolver = threading.Thread(
        target=_run_getaddrinfo, args=(host, port, results), name="resolver", daemon=True
    )
    resolver.start()
    resolver.join(limit)
    if not results:
        raise ConnectTimeout(
            "CC-SSH-004",
            "name",
            node=node,
            host=host,
            limit=limit,
            command=command_line("getent", "hosts", host),
        )
    if isinstance(results[0], Exception):
        raise Unreachable("CC-SSH-001", node=node, evidence=describe_system_error(results[0]), host=host)
    return list(results[0])


def _run_getaddrinfo(host: str, port: int, results: list[Any]) -> None:
    try:
        results.append(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    except (OSError, UnicodeError) as error:
        results.append(error)


def _explain(
    node: str, target: str, failures: Sequence[tuple[Address, OSError]], limit: float
) -> ConnectError:
    evidence = "\n".join(
        tr("{subject}: {text}", subject=address, text=describe_system_error(error))
        for address, error in failures
    )
    errors = [error for _, error in failures]
    if any(isinstance(error, ConnectionRefusedError) for error in errors):
        return Unreachable("CC-SSH-002", node=node, evidence=evidence, target=target)
    if any(isinstance(error, TimeoutError) for error in errors):
        return ConnectTimeout(
            "CC-SSH-004", "connect", node=node, evidence=evidence, target=target, limit=limit
        )
    return Unreachable(
        "CC-SSH-003", node=node, evidence=evidence, target=target, address=target.partition(" ")[0]
    )
