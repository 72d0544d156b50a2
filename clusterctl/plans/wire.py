"""The proof on the wire: which nodes call which, and what they told of the ways between them.

Up to FULL nodes everybody calls everybody. Above that each calls its neighbours in the inventory's ring, and those
2, 4, 8, ... places further: every node is called by as many, and any two are few steps apart. All call node 0's second
door, which listens where torchrun's would.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from clusterctl.plans.facts import Facts
from clusterctl.plans.facts_reading import read_value
from clusterctl.plans.network import NodeNetwork
from clusterctl.specs.inventory import Node

FULL = 32  # nodes
SIZE = 256 << 10  # bytes each way
MESH, MASTER = "mesh", "master"


@dataclass(frozen=True)
class Listening:
    """Where a node listens for the proof."""

    address: str
    port: int | None = None
    master_port: int | None = None


@dataclass(frozen=True)
class Way:
    """One call, as the caller tells it: times in seconds, round trips in microseconds, `got` and `acked` in bytes.

    `step` is how far it came: connect, greet (the other proves who it is), carry (SIZE bytes both ways), done.
    """

    caller: str = ""
    peer: str = ""
    door: str = MESH
    step: str = "connect"
    error: str | None = None
    stranger: bool = False
    connect: float | None = None
    seconds: float | None = None
    got: int = 0
    acked: int | None = None
    lost: int | None = None
    mss: int | None = None
    rtt: int | None = None
    least_rtt: int | None = None
    own: str | None = None
    seen: str | None = None

    @property
    def ends(self) -> tuple[str, str]:
        """Caller and called."""
        return self.caller, self.peer

    @property
    def open(self) -> bool:
        """Whether all went well."""
        return self.error is None and self.step == "done"


@dataclass(frozen=True)
class Wire:
    """What a proof showed; `absent` tells why a node did not take part to the end."""

    nodes: tuple[str, ...]
    ways: tuple[Way, ...]
    absent: Mapping[str, str] = field(default_factory=dict)
    master_port: int | None = None
    seconds: float = 0.0

    def through(self, door: str) -> tuple[Way, ...]:
        """Give the calls at one kind of door, between nodes that took part to the end."""
        both = (way for way in self.ways if not self.absent.keys() & set(way.ends))
        return tuple(way for way in both if way.door == door)


def choose_takers(
    nodes: Sequence[Node], facts: Mapping[str, Facts], networks: Mapping[str, NodeNetwork]
) -> tuple[Node, ...]:
    """Choose who takes part: whose address is known, his own alone, and not in the way of finding more.

    What is wrong with the others has a finding of its own already. Loopback addresses reach no other machine.
    """
    known = [node for node in nodes if node.name in facts and not networks[node.name].problems]
    ips = [networks[node.name].ip for node in nodes]
    alone = [node for node in known if networks[node.name].ip and ips.count(networks[node.name].ip) == 1]
    machines = {facts[node.name].machine.boot_id for node in alone}
    fit = [node for node in alone if len(machines) == 1 or not str(networks[node.name].ip).startswith("127.")]
    return tuple(fit) if len(fit) > 1 else ()


def plan_calls(names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Say for each node, in the order of the inventory, whom it calls."""
    count = len(names)
    steps = [*range(1, count)] if count <= FULL else [count - 1, *_powers(count)]
    return {name: tuple(names[(place + step) % count] for step in steps) for place, name in enumerate(names)}


def _powers(count: int) -> list[int]:
    return [1 << exponent for exponent in range(count.bit_length()) if 1 << exponent < count - 1]


def plan_orders(listening: Mapping[str, Listening]) -> dict[str, list[dict[str, Any]]]:
    """Turn calls into what is sent to each node; the first of `listening` is node 0 if it has a second door."""
    calls = plan_calls(tuple(listening))
    orders = {name: [_peer(peer, listening[peer]) for peer in peers] for name, peers in calls.items()}
    for host, place in listening.items():
        for name in orders if place.master_port else ():
            if name != host:
                orders[name].append({**_peer(host, place), "port": place.master_port, "door": MASTER})
    return orders


def _peer(name: str, place: Listening) -> dict[str, Any]:
    return {"name": name, "address": place.address, "port": place.port, "door": MESH}


def read_listening(raw: Mapping[str, Any], address: str) -> Listening | str:
    """Read where a node listens, or in words why it does not."""
    place = read_value(Listening, {**_table(raw.get("listening")), "address": address}, "listening", [])
    if place is not None and place.port:
        return place
    return f"it cannot listen on {address}: {str(raw.get('problem') or 'it did not say why')[:200]}"


def read_ways(raw: object, caller: str, called: Sequence[Mapping[str, Any]]) -> tuple[Way, ...]:
    """Read what a node tells of its calls; only of those that it was to make."""
    wanted = {(peer["name"], peer["door"]) for peer in called}
    ways = read_value(tuple[Way, ...], raw, "ways", []) or ()
    mine = (replace(way, caller=caller) for way in ways)
    return tuple(way for way in mine if (way.peer, way.door) in wanted)


def _table(raw: object) -> Mapping[str, Any]:
    return raw if isinstance(raw, Mapping) else {}
