"""The document of `check`: facts of the nodes, findings, the test of the network, the deep check."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from typing_extensions import NotRequired, TypedDict

from clusterctl.console.documents.fields_of import FieldsOf
from clusterctl.plans.checks.framework import Finding
from clusterctl.protocol.messages.facts import Facts

# A keyword of Python, which no class can have as a name.
_Caller = TypedDict("_Caller", {"from": str})


class NetworkPath(_Caller):
    """One connection from a node to another; times in seconds, `rtt_us` in microseconds, `mss` in bytes."""

    to: str
    network: str | None
    port: Literal["master", "ephemeral"]
    open: bool
    error: str | None
    connect: float | None
    seconds: float | None
    rtt_us: int | None
    mss: int | None
    retransmitted: int | None


class NetworkTest(TypedDict):
    """Every connection that was tried; `absent` is why a node did not take part, `seconds` how long it took."""

    nodes: list[str]
    absent: dict[str, str]
    seconds: float
    ways: list[NetworkPath]


class DeepGroup(TypedDict):
    """How a group of nodes fared: `rows` are bytes and seconds of an all_reduce."""

    nodes: list[str]
    ranks: int
    ok: bool
    error: str | None
    rank: int | None
    at: int | None
    rows: list[list[float]]
    joined: float | None


class DeepRoundEntry(TypedDict):
    """One round of the deep check."""

    kind: str
    seconds: float
    groups: list[DeepGroup]


class DeepConclusion(TypedDict):
    """Which nodes and links are at fault; `rest`: all others work together without them."""

    ok: bool
    nodes: list[str]
    links: list[list[str]]
    slow_nodes: list[str]
    slow_links: list[list[str]]
    rest: bool | None


class DeepCheck(TypedDict):
    """The collective that was run on all nodes; `trouble` is why it did not come to its end."""

    backend: str
    ranks: int
    trouble: str | None
    rounds: list[DeepRoundEntry]
    found: DeepConclusion | None


class CheckedNode(TypedDict):
    """One node: its address and NICs, why these were chosen, and all that it reported; `facts` is null without."""

    name: str
    node_rank: int
    host: str
    answered: bool
    ip: str | None
    nics: list[str]
    chosen_by: str
    nccl_ib_hca: str | None
    verdict: str
    facts: Annotated[dict[str, Any], FieldsOf(Facts)] | None


class NodesAndFindings(TypedDict):
    """The nodes, and what is wrong with them."""

    schema: Literal[1]
    nodes: list[CheckedNode]
    findings: list[Annotated[dict[str, Any], FieldsOf(Finding)]]


class CheckDocument(NodesAndFindings):
    """The nodes, what is wrong with them, and the test of the network; `age` in seconds if an earlier one was used."""

    wire: NetworkTest | None
    age: float | None
    deep: NotRequired[DeepCheck]
