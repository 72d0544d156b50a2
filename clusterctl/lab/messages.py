"""What the processes of a lab send each other, and its file lab.json; plan.json holds a LabPlan.

labs.py -> LabRequest -> holder -> NodeRequest -> a node's first process; the answers are LabReply and NodeReport.
"""

from __future__ import annotations

from typing import Any, Literal

from typing_extensions import NotRequired, TypedDict


class NodeRequest(TypedDict):
    """An order to a node's first process; `nics` and `state` are those of `link`."""

    do: Literal["go", "look", "start-sshd", "kill-sshd", "link"]
    nics: NotRequired[list[str]]
    state: NotRequired[Literal["up", "down"]]


class NodeReport(TypedDict, total=False):
    """What a node's first process sends: its numbers, that it is ready, its state, or an error."""

    pid: int
    host_pid: int
    ready: bool
    sshd: int
    nics: dict[str, str]
    error: str
    errno: int | None


class NodeState(TypedDict):
    """A node as it is now; 0 for a process that is not there."""

    pid: int
    sshd: int
    nics: dict[str, str]


class LabRequest(TypedDict):
    """A request to the holder, about one node or all; `how` is that of `break`.

    The answer to `socket` is no LabReply but the descriptor of a TCP socket, see `client/ssh/sockets.py`.
    """

    do: Literal["look", "break", "heal", "socket"]
    node: NotRequired[str]
    how: NotRequired[str]


class LabReply(TypedDict, total=False):
    """The states of the nodes that a request was about, or an error."""

    nodes: dict[str, NodeState]
    error: str


class HolderRecord(TypedDict):
    """A process by its pid, its start time, and the boot in which both count."""

    pid: int
    starttime: int
    boot_id: str


class LabFile(TypedDict):
    """lab.json: the lab is finished, and this process holds it."""

    schema: int
    holder: HolderRecord
    started_from: str


class NodePlanRecord(TypedDict):
    """A node in plan.json."""

    name: str
    nics: list[dict[str, str]]


class PlanRecord(TypedDict):
    """What is read of plan.json key by key; an older version wrote no `backend`."""

    nodes: list[NodePlanRecord]
    account: dict[str, Any]
    visible: list[str]
    backend: NotRequired[str]
