"""What nodes send each other over the network, and the orders for it: handshakes, code, the two tests of `check`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict, Union

from ..ranks import Slot
from .checks import RoundEntry, SearchReport

if TYPE_CHECKING:
    from typing_extensions import NotRequired


class HandshakeLine(TypedDict, total=False):
    """A line of the handshake that begins every connection between nodes: a nonce, then nonce and proof, then a proof.

    A peer names itself to node 0's agent by slot and node, in the mesh test by its name.
    """

    nonce: str
    proof: str
    slot: Slot
    node: str
    name: str
    bulk: bool  # in the mesh test: 256 KiB follow in both directions
    seen: str  # in the mesh test: the caller's address as it arrived


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


class Problem(TypedDict):
    """Why a fact is missing."""

    problem: str


class MeshProblem(Problem, total=False):
    """Why a node does not listen."""

    taken: Literal[True]  # no port of the inventory is free for the master


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
