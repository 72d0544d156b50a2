"""What the tests of `check` show: connections between nodes, and the rounds of the deep check."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .record import Record, flag, integer, many, named, number, record, string

if TYPE_CHECKING:
    from typing import Literal

MAIN_RAIL = ""  # the rail of the training addresses; others are called by their network
MESH: Literal["mesh"] = "mesh"
MASTER: Literal["master"] = "master"  # the listener in torchrun's place
DONE = "done"


class MeshPorts(Record):
    """Where a node listens: ports by rail, and node 0's second one; the addresses are those that the client sent."""

    ports: Mapping[str, int] = named(integer(1, 65535))
    master_port: int | None = integer(1, 65535)
    addresses: Mapping[str, str] = named(string())


class MeshPath(Record):
    """One call, as the caller reports it: times in seconds, round trips in microseconds, `got` and `acked` in bytes.

    `step` is how far it came: connect, greet (the other proves who it is), transfer (SIZE bytes both ways), done.
    """

    caller: str = string(missing="")  # filled by the client: a node reports for itself alone
    peer: str = string(missing="")
    listener: str = string(missing=MESH)
    rail: str = string(missing=MAIN_RAIL)
    step: str = string(missing="connect")
    error: str | None = string()
    unproven: bool = flag(missing=False)  # what answers there does not know the token
    connect: float | None = number()
    seconds: float | None = number()
    got: int = integer(missing=0)
    acked: int | None = integer()
    lost: int | None = integer()  # packets that were sent again
    mss: int | None = integer()
    rtt: int | None = integer()
    least_rtt: int | None = integer()
    own: str | None = string()
    seen: str | None = string()  # the caller's address as it arrived

    @property
    def ends(self) -> tuple[str, str]:
        """Caller and called."""
        return self.caller, self.peer

    @property
    def open(self) -> bool:
        """Whether all went well."""
        return self.error is None and self.step == DONE


class MeshResult(Record):
    """What a proof showed; `absent` is why a node did not take part to the end.

    `ports_taken` is node 0 where it found all of the inventory's `ports` in use.
    """

    nodes: tuple[str, ...] = many(string())
    paths: tuple[MeshPath, ...] = many(record(MeshPath))
    absent: Mapping[str, str] = named(string())
    master_port: int | None = integer()
    seconds: float = number(missing=0.0)
    ports_taken: str = string(missing="")

    def select_paths(self, listener: str, rail: str = MAIN_RAIL) -> tuple[MeshPath, ...]:
        """Return the calls on one rail at one kind of listener, between nodes that took part to the end."""
        between_present = (path for path in self.paths if not self.absent.keys() & set(path.ends))
        return tuple(path for path in between_present if (path.listener, path.rail) == (listener, rail))

    def members(self, rail: str) -> tuple[str, ...]:
        """Name the nodes that call or are called on a rail, in the order of the inventory."""
        present = {name for path in self.paths if path.rail == rail for name in path.ends}
        return tuple(name for name in self.nodes if name in present)

    @property
    def rails(self) -> tuple[str, ...]:
        """The rails on which there were calls, the training addresses first."""
        return tuple(sorted({path.rail for path in self.paths}))


class GroupResult(Record):
    """How one group of nodes fared: rows are [bytes, seconds of an all_reduce], the first is the latency.

    `rank`, of the node `at`, is the one that the error is of; `joined` is how long it took to form the group.
    """

    nodes: tuple[int, ...] = many(integer())
    ranks: int = integer(missing=0)
    ok: bool = flag(missing=False)
    error: str | None = string()
    rank: int | None = integer()
    at: int | None = integer()
    rows: tuple[tuple[float, ...], ...] = many(many(number()))
    joined: float | None = number()

    @property
    def latency(self) -> float:
        """Seconds of the smallest all_reduce."""
        return self.rows[0][1] if self.rows else 0.0

    @property
    def bandwidth(self) -> float:
        """Return the best bus bandwidth in bytes per second: what one rank's link carries each way."""
        return max((bus_bandwidth(size, seconds, self.ranks) for size, seconds in self.rows), default=0.0)


def bus_bandwidth(size: float, seconds: float, ranks: int) -> float:
    """Return what one rank's link carries each way in an all_reduce of `size` bytes, in bytes per second."""
    return 2.0 * (ranks - 1) / ranks * size / seconds if seconds > 0 and ranks > 1 else 0.0


class RoundEntry(Record):
    """A line of rank 0, one round of the deep check: all, alone, pairs, again, or rest."""

    round: str = string(missing="")
    seconds: float = number(missing=0.0)
    groups: tuple[GroupResult, ...] = many(record(GroupResult))


class SearchReport(Record):
    """Nodes and links at fault, by node number; a link is two nodes, `rest` whether all others work without them."""

    ok: bool = flag(missing=False)
    nodes: tuple[int, ...] = many(integer())
    links: tuple[tuple[int, ...], ...] = many(many(integer()))
    slow_nodes: tuple[int, ...] = many(integer())
    slow_links: tuple[tuple[int, ...], ...] = many(many(integer()))
    rest: bool | None = flag()
