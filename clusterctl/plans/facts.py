"""What a node says of itself, as values.

A node's answer is another machine's text: unknown keys are ignored, a value of the wrong type counts as
missing and leaves a note, strings are shortened and freed of control characters, lists are cut to a bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from clusterctl.plans.facts_reading import clean_text, read_value
from clusterctl.plans.facts_records import (
    Account,
    Clock,
    Disk,
    Gpus,
    InfinibandPort,
    Interpreter,
    Limits,
    Logind,
    Machine,
    Nccl,
    Nic,
    Platform,
    PortRange,
    Resolved,
    Route,
    RouteEntry,
    Torch,
    Workdir,
)
from clusterctl.specs.inventory import Node


@dataclass(frozen=True)
class Facts:
    """All that a node told; `problems`: the questions it could not answer, `notes`: what was dropped."""

    interpreter: Interpreter | None = None
    platform: Platform | None = None
    account: Account | None = None
    machine: Machine | None = None
    torch: Torch | None = None
    packages: Mapping[str, str] = field(default_factory=dict)
    nccl: Nccl | None = None
    gpus: Gpus | None = None
    nics: tuple[Nic, ...] = ()
    routing: tuple[RouteEntry, ...] = ()
    routes: Mapping[str, Route] = field(default_factory=dict)
    address: Resolved | None = None
    hostname: Resolved | None = None
    ports: PortRange | None = None
    workdir: Workdir | None = None
    workdir_disk: Disk | None = None
    tmp_disk: Disk | None = None
    shm_disk: Disk | None = None
    limits: Limits | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    nccl_conf: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    logind: Logind | None = None
    infiniband: tuple[InfinibandPort, ...] = ()
    clock: Clock | None = None
    problems: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def parse_facts(answer: object, *, asked: float | None = None, heard: float | None = None) -> Facts:
    """Read a node's answer; `asked` and `heard` are our clock (Unix seconds) around it. Never raises."""
    notes: list[str] = []
    raw = answer if isinstance(answer, Mapping) else {}
    told = {str(key): value for key, value in raw.items() if not _is_problem(value)}
    facts: Facts = read_value(Facts, told, "facts", notes) or Facts()
    problems = {
        clean_text(str(key)): clean_text(str(value["problem"]))
        for key, value in raw.items()
        if _is_problem(value)
    }
    clock = facts.clock and _with_offset(facts.clock, asked, heard)
    return replace(facts, problems=problems, notes=tuple(notes), clock=clock)


def _is_problem(value: object) -> bool:
    return isinstance(value, Mapping) and set(value) == {"problem"}


def _with_offset(clock: Clock, asked: float | None, heard: float | None) -> Clock:
    """Bound the offset by causality: the request left before it arrived, and so did the answer."""
    if asked is None or heard is None or clock.received is None or clock.answered is None:
        return clock
    lowest, highest = clock.answered - heard, clock.received - asked
    return replace(clock, offset=(lowest + highest) / 2, error=abs(highest - lowest) / 2)


def probe_request(node: Node, nodes: tuple[Node, ...], payload: str) -> dict[str, Any]:
    """Give the request for one node's probe; `payload` is the SHA-256 of what a launch would need there."""
    return {
        "node": node.name,
        "host": node.host,
        "ip": node.ip,
        "nic": list(node.nic),
        "network": node.network,
        "peers": {peer.name: peer.ip or peer.host for peer in nodes if peer.name != node.name},
        "workdir": node.workdir,
        "payload": payload,
    }
