"""Facts of one node: request, parse.

Whom a node looks at among many: everybody in a small cluster, a few that join all into one net in a large one.

Above FULL nodes each looks at its neighbours in the inventory's ring, and at those 2, 4, 8, ... places further: every
node is looked at by as many, and any two are few steps apart.

What a node says of itself, as values.

A node's answer is another machine's text: unknown keys are ignored, a value of the wrong type counts as
missing and leaves a note, strings are shortened and freed of control characters, lists are cut to a bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from clusterctl.plans.facts.records import (
    Account,
    Activate,
    Cgroup,
    Clock,
    Disk,
    Encoding,
    GpuDirect,
    GpuHealth,
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
    SharedMemory,
    Torch,
    Workdir,
)
from clusterctl.plans.facts.untrusted import clean_text, field_kinds, read_value
from clusterctl.plans.ssh import ACTIVATING
from clusterctl.specs.inventory.model import Node

PACKAGES = frozenset({"torch", "nccl", "packages", "installed"})  # answers that depend on the environment


@dataclass(frozen=True)
class Made:
    """Whether the environment is there (`None`: the job has none), where, and whether packages are known only then."""

    made: bool | None = None
    prefix: str | None = None
    pending: bool = False


def await_setup(facts: Facts, *, brings_torch: bool) -> Facts:
    """Forget what the node's own Python said of packages where the environment will have others."""
    if facts.setup.made is not False or (facts.torch.version and not brings_torch):
        return facts
    pending = replace(facts.setup, pending=True)
    nothing = {"torch": Torch(), "nccl": Nccl(), "packages": {}, "installed": Installed()}
    return replace(facts, setup=pending, **nothing)  # type: ignore[arg-type]  # each fits its field


FULL = 32  # nodes

T = TypeVar("T")


def plan_calls(names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Say for each node, in the order of the inventory, whom it calls."""
    return {name: neighbours_of(names, place) for place, name in enumerate(names)}


def neighbours_of(nodes: Sequence[T], place: int) -> tuple[T, ...]:
    """Give those at whom the node at a place looks."""
    count = len(nodes)
    steps = range(1, count) if count <= FULL else [count - 1, *_powers(count)]
    return tuple(nodes[(place + step) % count] for step in steps)


def _powers(count: int) -> list[int]:
    return [1 << exponent for exponent in range(count.bit_length()) if 1 << exponent < count - 1]


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
