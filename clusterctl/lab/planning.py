"""A lab's plan for this machine: programs, account, addresses and ports that are there and free."""

from __future__ import annotations

import os
import random
import socket
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from clusterctl.errors import LabError
from clusterctl.lab.layout import DEFAULT_NICS, LabPlan, NodePlan, plan_loopback_nodes, plan_nodes
from clusterctl.lab.machine import find_account, find_program, visible_paths

_PORT = 2222
_OTHER_PORTS = range(20000, 30000)
_NETS = range(1, 255)


@dataclass(frozen=True)
class Wish:
    """What `lab up` was asked for."""

    name: str
    count: int
    nics: Sequence[str] | None
    shared_home: bool
    bound: bool
    gpus: int = 0

    def directory(self, state_dir: Path) -> str:
        """Where the lab's files go."""
        return os.path.abspath(state_dir / self.name)  # noqa: PTH100  (links in it are the caller's choice)


def plan_namespaces(state_dir: Path, wish: Wish) -> LabPlan:
    """A lab of namespaces; LabError if a program for it is missing."""
    return LabPlan(
        name=wish.name,
        directory=wish.directory(state_dir),
        account=find_account(),
        nodes=plan_nodes(wish.count, wish.nics or DEFAULT_NICS),
        python=sys.executable,
        visible=visible_paths(),
        sshd=find_program("sshd"),
        ip=find_program("ip"),
        shared_home=wish.shared_home,
        gpus=wish.gpus,
    )


def plan_loopback(state_dir: Path, wish: Wish) -> LabPlan:
    """A lab without namespaces, at addresses and a port where nobody listens yet."""
    nodes, port = _find_place(wish.count)
    return LabPlan(
        name=wish.name,
        directory=wish.directory(state_dir),
        account=find_account(),
        nodes=nodes,
        python=sys.executable,
        visible=(),
        sshd="",
        ip="",
        shared_home=wish.shared_home,
        gpus=wish.gpus,
        backend="inproc",
        ssh_port=port,
    )


def _find_place(count: int) -> tuple[tuple[NodePlan, ...], int]:
    for port in (_PORT, *random.sample(_OTHER_PORTS, 20)):
        for net in _NETS:
            nodes = plan_loopback_nodes(count, net)
            if _are_free((node.host for node in nodes), port):
                return nodes, port
            if not _are_free(["127.77.0.1"], port):
                break  # somebody has this port at all addresses
    raise LabError("no loopback address is free for the lab", code="CC-LAB-007")


def _are_free(hosts: Iterable[str], port: int) -> bool:
    with ExitStack() as stack:
        try:
            for host in hosts:
                stack.enter_context(socket.create_server((host, port)))
        except OSError:
            return False
    return True
