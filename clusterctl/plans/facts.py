"""What a node says of itself, as values.

A node's answer is another machine's text: unknown keys are ignored, a value of the wrong type counts as
missing and leaves a note, strings are shortened and freed of control characters, lists are cut to a bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from clusterctl.plans.facts_gpu_health import GpuHealth
from clusterctl.plans.facts_reading import clean_text, field_kinds, read_value
from clusterctl.plans.facts_records import (
    Account,
    Activate,
    Clock,
    Disk,
    GpuDirect,
    Gpus,
    Holder,
    InfinibandPort,
    Installed,
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
from clusterctl.plans.facts_session import Cgroup, Encoding, SharedMemory
from clusterctl.plans.facts_setup import Made
from clusterctl.plans.neighbours import neighbours_of
from clusterctl.plans.shell import ACTIVATING
from clusterctl.specs.inventory import Node

SAID_LINES = 5
OURS = frozenset({"problems", "notes", "noise"})  # fields that no answer fills


@dataclass(frozen=True)
class Facts:
    """All that a node told; `problems` holds what it could not answer, `notes` what was dropped."""

    interpreter: Interpreter = field(default_factory=Interpreter)
    activate: Activate = field(default_factory=Activate)
    platform: Platform = field(default_factory=Platform)
    account: Account = field(default_factory=Account)
    machine: Machine = field(default_factory=Machine)
    torch: Torch = field(default_factory=Torch)
    packages: Mapping[str, str] = field(default_factory=dict)
    installed: Installed = field(default_factory=Installed)
    setup: Made = field(default_factory=Made)
    nccl: Nccl = field(default_factory=Nccl)
    gpus: Gpus = field(default_factory=Gpus)
    gpu_health: GpuHealth = field(default_factory=GpuHealth)
    locks: tuple[Holder, ...] = ()
    nics: tuple[Nic, ...] = ()
    routing: tuple[RouteEntry, ...] = ()
    routes: Mapping[str, Route] = field(default_factory=dict)
    address: Resolved = field(default_factory=Resolved)
    hostname: Resolved = field(default_factory=Resolved)
    ports: PortRange = field(default_factory=PortRange)
    workdir: Workdir = field(default_factory=Workdir)
    workdir_disk: Disk = field(default_factory=Disk)
    tmp_disk: Disk = field(default_factory=Disk)
    shm_disk: Disk = field(default_factory=Disk)
    home_disk: Disk = field(default_factory=Disk)
    python_disk: Disk = field(default_factory=Disk)
    shm_left: SharedMemory = field(default_factory=SharedMemory)
    cgroup: Cgroup = field(default_factory=Cgroup)
    text: Encoding = field(default_factory=Encoding)
    noise: str = ""
    limits: Limits = field(default_factory=Limits)
    environment: Mapping[str, str] = field(default_factory=dict)
    nccl_conf: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    logind: Logind = field(default_factory=Logind)
    infiniband: tuple[InfinibandPort, ...] = ()
    gpudirect: GpuDirect = field(default_factory=GpuDirect)
    clock: Clock = field(default_factory=Clock)
    problems: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def parse_facts(answer: object, *, asked: float | None = None, heard: float | None = None) -> Facts:
    """Read a node's answer; `asked` and `heard` are our clock (Unix seconds) around it. Never raises."""
    notes: list[str] = []
    raw = answer if isinstance(answer, Mapping) else {}
    problems = {
        clean_text(str(key)): clean_text(str(value["problem"]))
        for key, value in raw.items()
        if _is_problem(value)
    }
    hints = field_kinds(Facts)
    values = {}
    for name in hints.keys() & raw.keys() - problems.keys() - OURS:
        value = read_value(hints[name], raw[name], name, notes)
        if value is not None:
            values[name] = value
        elif raw[name] is not None:
            problems[name] = "the answer was not understood"
    facts = Facts(**values, problems=problems, notes=tuple(notes))
    return replace(facts, clock=_with_offset(facts.clock, asked, heard))


def with_words(facts: Facts, stderr: str, noise: bytes = b"") -> Facts:
    """Add what the session wrote before Python answered: to stdout, and to stderr where an `activate` may have."""
    shells, _, _ = noise.decode("utf-8", "replace").partition(
        ACTIVATING
    )  # what comes after is said by `activate`
    heard = (line.strip() for line in shells.split("\n"))
    facts = replace(facts, noise=clean_text(" / ".join(line for line in heard if line)))
    lines = [clean_text(line.strip()) for line in stderr.split("\n") if not line.startswith("clusterctl: ")]
    told = " / ".join([line for line in lines if line][-SAID_LINES:])
    if facts.activate.status is None or not told:
        return facts
    return replace(facts, activate=replace(facts.activate, said=told))


def _is_problem(value: object) -> bool:
    return isinstance(value, Mapping) and set(value) == {"problem"}


def _with_offset(clock: Clock, asked: float | None, heard: float | None) -> Clock:
    """Bound the offset by causality: the request left before it arrived, and so did the answer."""
    if asked is None or heard is None or clock.received is None or clock.answered is None:
        return clock
    lowest, highest = clock.answered - heard, clock.received - asked
    return replace(clock, offset=(lowest + highest) / 2, error=abs(highest - lowest) / 2)


def probe_request(node: Node, nodes: tuple[Node, ...], payload: str) -> dict[str, Any]:
    """Give the request for one node's probe; `payload` is the SHA-256 of what a launch would need there.

    It is asked for its ways to node 0 and to its neighbours: all ways would be a million for a thousand nodes.
    """
    place = next((place for place, one in enumerate(nodes) if one.name == node.name), None)
    asked = nodes if place is None else (*nodes[:1], *neighbours_of(nodes, place))
    return {
        "node": node.name,
        "host": node.host,
        "ip": node.ip,
        "nic": list(node.nic),
        "network": node.network,
        "peers": {peer.name: peer.ip or peer.host for peer in asked if peer.name != node.name},
        "workdir": node.workdir,
        "payload": payload,
    }
