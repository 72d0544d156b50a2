"""Facts of one node: request, parse.

Whom a node looks at among many: everybody in a small cluster, a few that join all into one net in a large one.

Above FULL nodes each looks at its neighbours in the inventory's ring, and at those 2, 4, 8, ... places further: every
node is looked at by as many, and any two are few steps apart.

What a node reports of itself, as values.

A node's answer is another machine's text: unknown keys are ignored, a value of the wrong type counts as
missing and leaves a note, strings are shortened and freed of control characters, lists are cut to a bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar, cast

from clusterctl.plans.facts.gpu_use import LockHolder
from clusterctl.plans.facts.records import (
    Account,
    ActivateResult,
    Cgroup,
    Checkpoint,
    Clock,
    Disk,
    Encoding,
    GpuDirect,
    GpuHealth,
    Gpus,
    InfinibandPort,
    InstalledPackages,
    Interpreter,
    LeftoverSharedMemory,
    Limits,
    Logind,
    Machine,
    Nccl,
    Nic,
    Platform,
    PortRange,
    ResolvedName,
    Route,
    RouteEntry,
    Torch,
    Workdir,
)
from clusterctl.plans.facts.untrusted import clean_text, field_types, read_value
from clusterctl.plans.ssh import ACTIVATING
from clusterctl.specs.inventory.model import Node
from clusterctl.translation import tr

if TYPE_CHECKING:
    from clusterctl.protocol.messages.facts import Problem
    from clusterctl.protocol.messages.verbs import ProbeRequest

# answers that depend on the environment
ENVIRONMENT_ANSWERS = frozenset({"torch", "nccl", "packages", "installed"})


@dataclass(frozen=True)
class SetupFacts:
    """Whether the environment is there (`None`: the job has none), where, and whether packages are known only then."""

    made: bool | None = None
    prefix: str | None = None
    pending: bool = False


def discard_stale_packages(facts: Facts, *, installs_torch: bool) -> Facts:
    """Drop what the node's own Python reported of packages where the environment will have others."""
    if facts.setup.made is not False or (facts.torch.version and not installs_torch):
        return facts
    pending = replace(facts.setup, pending=True)
    unknown = {"torch": Torch(), "nccl": Nccl(), "packages": {}, "installed": InstalledPackages()}
    return replace(facts, setup=pending, **unknown)  # type: ignore[arg-type]  # each fits its field


FULL_MESH_LIMIT = 32  # nodes

T = TypeVar("T")


def plan_neighbours(names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Say for each node, in the order of the inventory, whom it calls."""
    return {name: list_neighbours(names, index) for index, name in enumerate(names)}


def list_neighbours(nodes: Sequence[T], index: int) -> tuple[T, ...]:
    """Give those at whom the node at a place looks."""
    count = len(nodes)
    steps = range(1, count) if count <= FULL_MESH_LIMIT else [count - 1, *_powers_of_two(count)]
    return tuple(nodes[(index + step) % count] for step in steps)


def _powers_of_two(count: int) -> list[int]:
    return [1 << exponent for exponent in range(count.bit_length()) if 1 << exponent < count - 1]


MAX_STDERR_LINES = 5
LOCAL_FIELDS = frozenset({"problems", "notes", "noise"})  # fields that no answer fills


@dataclass(frozen=True)
class Facts:
    """All that a node reported; `problems` holds what it could not answer, `notes` what was dropped."""

    interpreter: Interpreter = field(default_factory=Interpreter)
    activate: ActivateResult = field(default_factory=ActivateResult)
    platform: Platform = field(default_factory=Platform)
    account: Account = field(default_factory=Account)
    machine: Machine = field(default_factory=Machine)
    torch: Torch = field(default_factory=Torch)
    packages: Mapping[str, str] = field(default_factory=dict)
    installed: InstalledPackages = field(default_factory=InstalledPackages)
    setup: SetupFacts = field(default_factory=SetupFacts)
    nccl: Nccl = field(default_factory=Nccl)
    gpus: Gpus = field(default_factory=Gpus)
    gpu_health: GpuHealth = field(default_factory=GpuHealth)
    locks: tuple[LockHolder, ...] = ()
    nics: tuple[Nic, ...] = ()
    routing: tuple[RouteEntry, ...] = ()
    routes: Mapping[str, Route] = field(default_factory=dict)
    address: ResolvedName = field(default_factory=ResolvedName)
    hostname: ResolvedName = field(default_factory=ResolvedName)
    ports: PortRange = field(default_factory=PortRange)
    workdir: Workdir = field(default_factory=Workdir)
    workdir_disk: Disk = field(default_factory=Disk)
    tmp_disk: Disk = field(default_factory=Disk)
    shm_disk: Disk = field(default_factory=Disk)
    home_disk: Disk = field(default_factory=Disk)
    python_disk: Disk = field(default_factory=Disk)
    shm_left: LeftoverSharedMemory = field(default_factory=LeftoverSharedMemory)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    cgroup: Cgroup = field(default_factory=Cgroup)
    text: Encoding = field(default_factory=Encoding)
    noise: str = ""
    limits: Limits = field(default_factory=Limits)
    environment: Mapping[str, str] = field(default_factory=dict)
    nccl_conf: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    logind: Logind = field(default_factory=Logind)
    programs: Mapping[str, str] = field(default_factory=dict)
    infiniband: tuple[InfinibandPort, ...] = ()
    gpudirect: GpuDirect = field(default_factory=GpuDirect)
    clock: Clock = field(default_factory=Clock)
    problems: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def parse_facts(answer: object, *, sent_at: float | None = None, received_at: float | None = None) -> Facts:
    """Read a node's answer; `sent_at` and `received_at` are our clock (Unix seconds) around it. Never raises."""
    notes: list[str] = []
    raw = answer if isinstance(answer, Mapping) else {}
    problems = {
        clean_text(str(key)): clean_text(str(cast("Problem", value)["problem"]))
        for key, value in raw.items()
        if _is_problem(value)
    }
    hints = field_types(Facts)
    values = {}
    for name in hints.keys() & raw.keys() - problems.keys() - LOCAL_FIELDS:
        value = read_value(hints[name], raw[name], name, notes)
        if value is not None:
            values[name] = value
        elif raw[name] is not None:
            problems[name] = tr("the answer was not understood")
    facts = Facts(**values, problems=problems, notes=tuple(notes))
    return replace(facts, clock=_with_offset(facts.clock, sent_at, received_at))


def with_session_output(facts: Facts, stderr: str, noise: bytes = b"") -> Facts:
    """Add what the session wrote before Python answered: to stdout, and to stderr where an `activate` may have."""
    # what comes after the mark is the output of `activate`
    before_activate, _, _ = noise.decode("utf-8", "replace").partition(ACTIVATING)
    stdout_lines = (line.strip() for line in before_activate.split("\n"))
    facts = replace(facts, noise=clean_text(" / ".join(line for line in stdout_lines if line)))
    lines = [clean_text(line.strip()) for line in stderr.split("\n") if not line.startswith("clusterctl: ")]
    message = " / ".join([line for line in lines if line][-MAX_STDERR_LINES:])
    if facts.activate.status is None or not message:
        return facts
    return replace(facts, activate=replace(facts.activate, said=message))


def _is_problem(value: object) -> bool:
    return isinstance(value, Mapping) and set(value) == {"problem"}


def _with_offset(clock: Clock, sent_at: float | None, received_at: float | None) -> Clock:
    """Bound the offset by causality: the request left before it arrived, and so did the answer."""
    if sent_at is None or received_at is None or clock.received is None or clock.answered is None:
        return clock
    lowest, highest = clock.answered - received_at, clock.received - sent_at
    return replace(clock, offset=(lowest + highest) / 2, error=abs(highest - lowest) / 2)


def probe_request(node: Node, nodes: tuple[Node, ...], payload_hash: str) -> ProbeRequest:
    """Give the request for one node's probe; `payload_hash` is the SHA-256 of what a launch would need there.

    It is asked for its ways to node 0 and to its neighbours: all ways would be a million for a thousand nodes.
    """
    index = next((index for index, other in enumerate(nodes) if other.name == node.name), None)
    targets = nodes if index is None else (*nodes[:1], *list_neighbours(nodes, index))
    return {
        "node": node.name,
        "host": node.host,
        "ip": node.ip,
        "nic": list(node.nic),
        "network": node.network,
        "peers": {peer.name: peer.ip or peer.host for peer in targets if peer.name != node.name},
        "workdir": node.workdir,
        "payload": payload_hash,
    }
