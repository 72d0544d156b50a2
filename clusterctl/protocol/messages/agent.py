"""The session of `start`: orders of the client to the agent, and the agent's events, until GO."""

from __future__ import annotations

from typing import Literal, TypedDict, Union

from ..ranks import Slot


class Secrets(TypedDict):
    """The first frame, which the verb `start` passes on: secrets by name, and the gang's token."""

    secrets: dict[str, str]
    token: str | None


LockOrder = Literal["lock", "unlock", "look"]


class Order(TypedDict):
    """An order without more: make the environment, run `before`, take, release or look at the locks."""

    do: Literal["setup", "before", "lock", "unlock", "look"]


class Listeners(TypedDict, total=False):
    """Where every agent listens: [slot, address, port]."""

    listeners: list[tuple[Slot, str, int]]


class Join(Listeners):
    """Connect to node 0's agent."""

    do: Literal["join"]
    port: int


class ListenersOrder(Listeners):
    """To node 0's agent itself, where any other may take its place."""

    do: Literal["listeners"]


class Go(TypedDict):
    """Let the workers start."""

    do: Literal["go"]
    master_port: int


class _Cancel(TypedDict):
    """End what was prepared."""

    do: Literal["cancel"]


class Cancel(_Cancel, total=False):
    """End what was prepared; `reason` is said in the record."""

    reason: str


AnyOrder = Union[Order, Join, ListenersOrder, Go, Cancel]

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
    "going",
    "listening",
    "setup_failed",
    "gate_failed",
    "join_failed",
    "failed",
    "ended",
]


class _Event(TypedDict):
    """What each event holds."""

    event: EventName


class Holder(TypedDict, total=False):
    """Who holds a lock: what the kernel says of it, and what it says itself."""

    name: str
    gpu: int | None
    pid: int | None
    uid: int | None
    user: str | None
    age: float | None
    run: str
    job: str
    node: str
    by: str
    since: float
    submitted: float
    agent: int
    going: bool


class Event(_Event, total=False):
    """An event of the agent, or of the verb `start` itself; which facts there are depends on the event."""

    id: str  # workdir: its random id
    held: bool  # locks
    holders: list[Holder]  # locks
    pid: int | None  # started: of the gate
    starttime: int | None
    port: int  # hub, listener, port, listening; join_failed: which it tried
    made: bool  # setup: the environment is there
    text: str  # doing: a step; of a failure, the end of its output
    torch: str  # ready
    error: str  # join_failed
    code: str
    reason: str
    why: str
    log: str
    again: str  # a command that does the failed step once more
    environment: bool  # gate_failed: in the job's own environment
    port_taken: bool  # failed: another process has the master port; `text` says it too
    state: str  # ended
    exit: int | None
    signal: int | None
