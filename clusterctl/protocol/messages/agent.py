"""The session of `start`: orders of the client to the agent, and the agent's events, until GO."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict, Union

from ..ranks import Slot
from .files import StartFailure, TorchrunRecord

if TYPE_CHECKING:
    from typing_extensions import NotRequired


class Secrets(TypedDict):
    """The first frame, which the verb `start` passes on: secrets by name, and the gang's token."""

    secrets: dict[str, str]
    token: str | None
    cold: NotRequired[str]  # why the node's warm server was not used


LockOrder = Literal["lock", "unlock", "list_holders"]
Stage = Literal["setup", "before"]


class Order(TypedDict):
    """An order of the client; which facts there are depends on `do`."""

    do: LockOrder | Stage | Literal["join", "listeners", "go", "cancel"]  # join: connect to node 0's agent
    listeners: NotRequired[
        list[tuple[Slot, str, int]]
    ]  # join, listeners: [slot, address, port] of every agent
    port: NotRequired[int]  # join
    master_port: NotRequired[int]  # go
    reason: NotRequired[str]  # cancel; it is put in the record


EventName = Literal[
    "workdir",
    "locks",
    "started",
    "hub",
    "listener",
    "port",
    "setup",
    "doing",
    "environment",
    "joined",
    "ready",
    "go_received",
    "listening",
    "setup_failed",
    "gate_failed",
    "join_failed",
    "failed",
    "ended",
]


class HolderAnswer(TypedDict, total=False):
    """What the holder of a lock sends to every process that connects to it; agents of all versions send these keys."""

    run: str | None
    job: str
    node: str
    by: str
    since: float
    submitted: float | None
    protocol: int
    going: bool  # its workers run
    agent: int


class Holder(HolderAnswer, total=False):
    """A lock that is held: what the kernel reports of its holder, and what the holder sends itself."""

    name: str
    gpu: int | None
    pid: int | None
    uid: int | None
    user: str | None
    age: float | None


class EventFacts(StartFailure, total=False):
    """What an event holds; which facts there are depends on the event. `text` of `doing` is a step."""

    id: str  # workdir: its random id
    held: bool  # locks
    holders: list[Holder]  # locks
    pid: int | None  # started: of the gate
    starttime: int | None
    port: int | None  # hub, listener, port, listening; join_failed: which it tried
    made: bool  # setup: the environment is there
    torch: str  # ready
    error: str  # join_failed
    reason: str
    port_taken: bool  # failed: another process has the master port; `text` says it too
    state: str  # ended
    exit: int | None
    signal: int | None


AnyEventFacts = Union[EventFacts, StartFailure, TorchrunRecord]


class Event(EventFacts):
    """An event of the agent, or of the verb `start` itself."""

    event: EventName
