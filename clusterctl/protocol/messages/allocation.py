"""A job of a Slurm cluster on its way from the queue to its workers: what its tasks and the login node report."""

from __future__ import annotations

from typing import Any, TypedDict

from .files import SetupQuery


class CheckPart(TypedDict):
    """The check inside the allocation; `job`, `login` and `waive` are as specs/json_schema.py writes them.

    `setup` is the environment that the job makes. With `only` nothing follows, and the client judges the facts; without
    `enforce` the run starts in spite of errors.
    """

    job: Any
    login: Any
    waive: Any
    siblings: list[str]  # names beside the job's script
    program: str  # how a command begins that uses the same inventory
    setup: SetupQuery | None
    enforce: bool
    only: bool


class JudgeRequest(TypedDict):
    """What the program that judges the nodes of an allocation reads: facts by node, null where one gave none."""

    check: CheckPart
    nodes: list[JudgedNode]
    facts: dict[str, Any]  # Facts by node, null where one gave none


class JudgedNode(TypedDict):
    """A node of an allocation."""

    node: str
    address: str
    nics: list[str]


class FindingRecord(TypedDict):
    """One finding, in English."""

    code: str
    severity: str
    nodes: list[str]
    evidence: str
    why: str
    fix: str
    title: str
    waived: str


class CheckReport(TypedDict):
    """What the check inside an allocation found; `blocks`: nothing is started. `skipped` is why it was not judged."""

    findings: list[FindingRecord]
    blocks: bool
    skipped: str
    seconds: float


class FactsMessage(TypedDict):
    """What a task reports of its node for the check; null if its probe did not end in time."""

    facts: Any  # Facts, or null


class SlurmNumber(TypedDict):
    """The number of a Slurm job; empty where none was meant."""

    job: str


class TaskFailure(TypedDict, total=False):
    """Why a task cannot start its node's part; `event` is that of its agent, see agent.py."""

    node: str
    text: str
    event: dict[str, Any]


class NodeFacts(TypedDict):
    """One node of a check in an allocation: where it would train, and its facts."""

    member: JudgedNode
    facts: Any  # Facts, or null


class QueueFacts(TypedDict, total=False):
    """How Slurm sees a job; `over` is why nothing of it runs any more, `begun` that all nodes have.

    `check` is what the check found, `doing` the command of `setup` that runs, `failure` what keeps a node from
    starting, `requeue` whether Slurm may start the job again.
    """

    job: str
    state: str
    reason: str
    start: float | None
    nodes: str
    over: str
    waits: bool
    begun: bool
    check: CheckReport | None
    doing: str
    failure: TaskFailure | None
    requeue: bool
