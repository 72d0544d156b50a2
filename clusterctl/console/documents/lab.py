"""Documents of `lab`."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

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
