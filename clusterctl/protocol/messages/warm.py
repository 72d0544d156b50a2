"""What agents, verbs and the warm server of a node send each other over local sockets: one request, one answer."""

from __future__ import annotations

from typing import Literal, TypedDict, Union


class WarmGreeting(TypedDict):
    """The server is ready; its first message to an agent."""

    pid: int


class ForkGate(TypedDict):
    """An agent's: fork a gate; with descriptors of the pipe for GO, of the pipe for reports, and of torchrun.log."""

    do: Literal["gate"]
    argv: list[str]
    env: list[str]  # NAME=value, each byte a character
    cwd: str


class Stay(TypedDict):
    """An agent's last: wait for other runs, so many seconds."""

    do: Literal["stay"]
    workdir: str
    node: str
    seconds: float


class ForkGuardian(TypedDict):
    """The verb `start`: fork guardian and agent, with a server of their own; with the agent's socket and agent.log."""

    do: Literal["start"]
    argv: list[str]  # of guardian and agent, up to their role
    rundir: str
    env: list[str]
    cwd: str
    inherited: list[str]


class Renew(TypedDict):
    """Another server's: wait so many seconds from now on, if this one imports the same."""

    do: Literal["renew"]
    seconds: float
    imports: str


class Ask(TypedDict):
    """Describe the server, or end it."""

    do: Literal["describe", "end"]


AnyWarmRequest = Union[ForkGate, Stay, ForkGuardian, Renew, Ask]


class WarmDone(TypedDict):
    """It was done; `pid` is the gate's or the guardian's."""

    pid: int


class WarmRefused(TypedDict):
    """It was not done, and why."""

    refused: str


class WarmServerFacts(TypedDict):
    """A warm server; times by the node's clock."""

    pid: int
    starttime: int
    python: str
    torch: str
    preload: list[str]
    since: float
    until: float
    bytes: int  # of memory that nothing else uses


AnyWarmAnswer = Union[WarmGreeting, WarmDone, WarmRefused, WarmServerFacts]
