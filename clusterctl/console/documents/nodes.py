"""Documents about nodes: `inventory show`, `exec`, `top`, `init` and `lab`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from typing_extensions import TypedDict

from clusterctl.console.documents.fields_of import FieldsOf
from clusterctl.protocol.messages.facts import Sample


class InventoryNode(TypedDict):
    """One node with all defaults; null is left to ssh, or found when it is needed."""

    name: str
    node_rank: int
    host: str
    port: int | None
    user: str | None
    key: str | None
    jump: str | None
    proxy_command: str | None
    config: str | None
    known_hosts: str | None
    host_keys: Literal["strict", "accept-new"] | None
    ip: str | None
    nic: list[str]
    network: str | None
    gpus: int | None
    ports: list[int] | None
    python: str
    activate: str | None
    workdir: str
    spare: bool


class InventoryDocument(TypedDict):
    """The cluster and its nodes, in the order of their ranks."""

    schema: Literal[1]
    cluster: str
    nodes: list[InventoryNode]


class InitDocument(TypedDict):
    """The files that were written, the nodes that they name, and the errors of machines by name."""

    schema: Literal[1]
    files: list[str]
    nodes: list[str]
    errors: dict[str, str]


class CommandAnswer(TypedDict):
    """What a command wrote on a node and how it ended; `cut` names streams that are longer, `left` what still runs."""

    node: str
    exit: int | None
    signal: int | None
    stdout: str
    stderr: str
    cut: list[str]
    left: list[str]
    error: str | None


class ExecDocument(TypedDict):
    """The output of a command on every node."""

    schema: Literal[1]
    nodes: list[CommandAnswer]


class BusyNode(TypedDict):
    """How busy a node is: its newest sample, which is `age` seconds old."""

    name: str
    node_rank: int
    answered: bool
    age: float | None
    error: str | None
    sample: Annotated[dict[str, Any], FieldsOf(Sample)] | None


class TopDocument(TypedDict):
    """How busy the nodes are at `time` (Unix seconds)."""

    schema: Literal[1]
    time: float
    nodes: list[BusyNode]


class Series(TypedDict):
    """One quantity of one thing over time; null is a value that is not known."""

    group: str
    name: str
    quantity: str
    values: list[float | None]


class NodeHistory(TypedDict):
    """How busy a node was: for each time (Unix seconds) a sample that covers `width` seconds."""

    name: str
    width: float
    times: list[float]
    series: list[Series]


class HistoryDocument(TypedDict):
    """How busy the nodes were during a run."""

    schema: Literal[1]
    run: str
    nodes: list[NodeHistory]


PowerState = Literal["on", "off"]


class LabNode(TypedDict):
    """One node of a lab, and the state of each NIC."""

    name: str
    host: str
    ip: str
    power: PowerState
    sshd: PowerState
    nics: dict[str, str]


class LabEntry(TypedDict):
    """One lab and its nodes."""

    name: str
    backend: str
    inventory: str
    nodes: list[LabNode]


class LabsDocument(TypedDict):
    """Running labs."""

    schema: Literal[1]
    labs: list[LabEntry]


class EndedLabsDocument(TypedDict):
    """The names of the labs that were stopped."""

    schema: Literal[1]
    ended: list[str]
