"""What nodes send each other over the network, and the orders for it: handshakes, code, the two tests of `check`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict, Union

from ..ranks import Slot
from .checks import MeshPath, MeshPorts, RoundEntry, SearchReport

if TYPE_CHECKING:
    from typing_extensions import NotRequired


class Question(TypedDict):
    """The first line of every connection between nodes, from the one that listens."""

    nonce: str


class Proof(TypedDict):
    """The last line of a handshake, from the one that listens."""

    proof: str


class GangAnswer(Question, Proof):
    """What a peer answers node 0's agent."""

    slot: Slot
    node: str


class TransferAnswer(Question, Proof):
    """What a node answers that wants code."""


class MeshAnswer(Question, Proof):
    """What a node answers in the mesh test; with `bulk` 256 KiB follow in both directions."""

    name: str
    bulk: bool


class MeshProof(Proof):
    """The last line in the mesh test: `seen` is the caller's address as it arrived."""

    seen: str


AnyAnswer = Union[GangAnswer, TransferAnswer, MeshAnswer]


class HashesFrame(TypedDict):
    """The contents that a node lacks; Blobs, ContentPart and Done follow."""

    hashes: list[str]


class ContentPart(TypedDict):
    """A piece of a larger content."""

    blob: str
    last: bool


class MeshListen(TypedDict):
    """Listen for the mesh test; a rail is a network of training NICs, "" the one of the training addresses."""

    mesh: Literal["listen"]
    name: str
    addresses: dict[str, str]  # by rail
    token: str
    ports: tuple[int, int] | None
    master: bool  # listen in torchrun's place too
    alarm: NotRequired[int]  # seconds until the process ends, set by tests


class MeshPeer(TypedDict):
    """Whom a node calls."""

    name: str
    address: str
    port: int
    listener: Literal["mesh", "master"]
    rail: str


class MeshCallOrder(TypedDict):
    """Call the others."""

    mesh: Literal["call"]
    peers: list[MeshPeer]


class MeshListening(TypedDict):
    """The answer to `listen`."""

    listening: MeshPorts


class Problem(TypedDict):
    """Why a fact is missing."""

    problem: str


class MeshProblem(Problem, total=False):
    """Why a node does not listen."""

    taken: Literal[True]  # no port of the inventory is free for the master


class MeshReport(TypedDict):
    """What came of all calls of a node."""

    paths: list[MeshPath]


class RankProgress(TypedDict, total=False):
    """What a process of the deep check writes to its parent, and a rank into the store; rows are [bytes, seconds]."""

    rows: list[list[float]]
    at: str  # which step it has begun
    wrong: bool  # a sum was wrong
    joined: float  # seconds to form the group
    error: str
    late: bool  # the error is a time limit


class FoundEntry(TypedDict):
    """The last line of rank 0."""

    found: SearchReport


AnyEntry = Union[RoundEntry, FoundEntry]
