"""Inventory, Node, Ssh, Waiver (no pydantic)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from clusterctl.errors import InvalidValueError
from clusterctl.specs.values import parse_name

DEFAULT_CLUSTER = "cluster"


@dataclass(frozen=True, kw_only=True)
class Waiver:
    """A finding that does not count; `nodes` is a pattern, `file` where the waiver was written."""

    code: str
    nodes: str
    reason: str
    file: str


@dataclass(frozen=True, kw_only=True)
class Ssh:
    """How SSH reaches a node; None leaves the choice to the user's own SSH set-up."""

    user: str | None = None
    port: int | None = None
    key: str | None = None
    jump: str | None = None
    proxy_command: str | None = None
    config: str | None = None
    known_hosts: str | None = None
    host_keys: Literal["strict", "accept-new"] | None = None
    transport: Literal["paramiko", "openssh"] = "paramiko"


@dataclass(frozen=True, kw_only=True)
class Slurm:
    """What a Slurm cluster is asked for; time is in seconds, `extra` are further options of sbatch."""

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    gpus_per_node: int | None = None
    time: float | None = None
    extra: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """How a node of a Slurm cluster is reached: over the login node, by a step of a job; without a job it is that node.

    Nodes with the same `connection` share one.
    """

    connection: str
    job: str = ""


@dataclass(frozen=True, kw_only=True)
class Node:
    """A machine; `index` is its position in the inventory, ip is None unless the inventory gives it."""

    name: str
    index: int
    host: str
    ip: str | None = None
    nic: tuple[str, ...] = ()
    network: str | None = None
    gpus: int | None = None
    ports: tuple[int, int] | None = None
    python: str = "python3"
    activate: str | None = None
    workdir: str = "~/.clusterctl"
    spare: bool = False
    ssh: Ssh = field(default_factory=Ssh)
    allocation: Allocation | None = None


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """A cluster; `file` is where it was written. Of a Slurm cluster the only node is the login node.

    `cluster` is empty where the file gives no name.
    """

    cluster: str
    file: str
    nodes: tuple[Node, ...]
    waive: tuple[Waiver, ...] = ()
    slurm: Slurm | None = None


def name_cluster(inventory: Inventory, folder: str) -> Inventory:
    """Name a cluster whose file gives no name after the folder of the file."""
    if inventory.cluster:
        return inventory
    try:
        return replace(inventory, cluster=parse_name(folder))
    except InvalidValueError:
        return replace(inventory, cluster=DEFAULT_CLUSTER)
