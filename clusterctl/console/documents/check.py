"""Documents of `check` and `diagnose`: facts and findings, the tests of the network, what ranks wait for."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from typing_extensions import NotRequired, TypedDict

from clusterctl.console.documents.fields_of import FieldsOf
from clusterctl.plans.checks.framework import Finding
from clusterctl.plans.diagnose.evidence import Frame, RankEvidence
from clusterctl.plans.diagnose.slow import Lateness
from clusterctl.protocol.messages.checks import GroupResult, SearchReport
from clusterctl.protocol.messages.facts import Facts, GpuUsage

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


DeepGroup = Annotated[
    dict[str, Any],
    FieldsOf(
        GroupResult,
        (("nodes", list[str]),),
        "DeepGroup",
        "How a group of nodes fared: `rows` are bytes and seconds of an all_reduce.",
    ),
]


class DeepRoundEntry(TypedDict):
    """One round of the deep check."""

    kind: str
    seconds: float
    groups: list[DeepGroup]


_NAMED_PARTS = (
    ("nodes", list[str]),
    ("links", list[list[str]]),
    ("slow_nodes", list[str]),
    ("slow_links", list[list[str]]),
)
DeepConclusion = Annotated[
    dict[str, Any],
    FieldsOf(
        SearchReport,
        _NAMED_PARTS,
        "DeepConclusion",
        "Which nodes and links are at fault; `rest`: all others work together without them.",
    ),
]


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


class AskedNode(TypedDict):
    """Whether a node answered, and in how many seconds."""

    name: str
    answered: bool
    took: float | None
    error: str | None


EvidenceEntry = Annotated[
    dict[str, Any],
    FieldsOf(
        RankEvidence,
        (("where", Frame | None),),
        "EvidenceEntry",
        "What is known of one rank; `where` is the line of the job at which its main thread is, `frames` innermost "
        "first.\n\n`problem` is why it could not be asked; `silent` is for how many seconds it has written nothing, "
        "`cpu` counts\nprocessors.",
    ),
]


class Diagnosis(TypedDict):
    """Why a run makes no progress, and the evidence of its ranks; `waiting` are ranks in a collective."""

    schema: Literal[1]
    run: str
    code: str
    hangs: bool
    sentence: str
    next: str
    suspects: list[int]
    waiting: list[int]
    seconds: float | None
    nodes: list[AskedNode]
    ranks: list[EvidenceEntry]


GpusByNode = dict[str, list[Annotated[dict[str, Any], FieldsOf(GpuUsage)]]]


class DiagnoseDocument(Diagnosis):
    """Why a run makes no progress, the evidence of every rank, and how busy the GPUs are where it hangs."""

    gpus: GpusByNode


class SlownessDocument(TypedDict):
    """Which rank the others wait for (`diagnose --slow`); times in seconds, shares from 0 to 1."""

    schema: Literal[1]
    run: str
    code: str
    sentence: str
    next: str
    suspects: list[int]
    collectives: int
    seconds: float
    ranks: list[Annotated[dict[str, Any], FieldsOf(Lateness)]]
