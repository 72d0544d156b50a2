"""Documents of `diagnose`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from typing_extensions import TypedDict

from clusterctl.console.documents.fields_of import FieldsOf
from clusterctl.plans.diagnose.evidence import Frame, GroupRecord
from clusterctl.plans.diagnose.slow import Lateness
from clusterctl.protocol.messages.facts import GpuUsage

FrameEntry = Annotated[dict[str, Any], FieldsOf(Frame)]


class AskedNode(TypedDict):
    """Whether a node answered, and in how many seconds."""

    name: str
    answered: bool
    took: float | None
    error: str | None


class EvidenceEntry(TypedDict):
    """What is known of one rank; `where` is the line of the job at which its main thread is, `frames` innermost first.

    `problem` is why it could not be asked; `silent` is for how many seconds it has written nothing, `cpu` counts
    processors.
    """

    rank: int
    node: str
    pid: int | None
    problem: str
    exit: int | None
    signal: int | None
    stderr: str
    silent: float | None
    process: str
    waits_in: str
    traced: bool
    uncaught: bool
    cpu: float | None
    stack: str
    frames: list[FrameEntry]
    groups: list[Annotated[dict[str, Any], FieldsOf(GroupRecord)]]
    records_problem: str
    where: FrameEntry | None


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
