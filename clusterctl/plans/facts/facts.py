"""What a node reports of itself, as values: its facts, and who holds its locks and the memory of its GPUs.

A node's answer is another machine's text: unknown keys are ignored, a value of the wrong type counts as missing and
leaves a note, strings are shortened and freed of control characters, lists are cut to a bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar, cast

from clusterctl.plans.facts.untrusted import clean_text, read_clean_many
from clusterctl.plans.ssh import ACTIVATING
from clusterctl.protocol.messages.facts import Clock, Facts, InstalledPackages, LockHolder, Nccl, Torch
from clusterctl.protocol.messages.record import Reading, fields_of
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.nodeset import fold_ranges
from clusterctl.specs.text import render_duration
from clusterctl.translation import tr

if TYPE_CHECKING:
    from clusterctl.protocol.messages.network import Problem
    from clusterctl.protocol.messages.verbs import ProbeRequest

GPU_LOCK_PREFIX = "clusterctl/gpu/"  # + UUID, as in the node's lock_holders.py
NODE_LOCK = "clusterctl/node"
# answers that depend on the environment
ENVIRONMENT_ANSWERS = frozenset({"torch", "nccl", "packages", "installed"})


def discard_stale_packages(facts: Facts, *, installs_torch: bool) -> Facts:
    """Drop what the node's own Python reported of packages where the environment will have others."""
    if facts.setup.made is not False or (facts.torch.version and not installs_torch):
        return facts
    pending = facts.setup.replace(pending=True)
    return facts.replace(
        setup=pending, torch=Torch(), nccl=Nccl(), packages={}, installed=InstalledPackages()
    )


# A node calls all others of a small cluster. Of more it calls its neighbours in the inventory's ring, and the nodes 2,
# 4, 8, ... places further: each is called by as many, and any two are few steps apart.
FULL_MESH_LIMIT = 32  # nodes

T = TypeVar("T")


def plan_neighbours(names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return for each node, in the order of the inventory, the nodes that it calls."""
    return {name: list_neighbours(names, index) for index, name in enumerate(names)}


def list_neighbours(nodes: Sequence[T], index: int) -> tuple[T, ...]:
    """Return the neighbours of node `index`."""
    count = len(nodes)
    steps = range(1, count) if count <= FULL_MESH_LIMIT else [count - 1, *_powers_of_two(count)]
    return tuple(nodes[(index + step) % count] for step in steps)


def _powers_of_two(count: int) -> list[int]:
    return [1 << exponent for exponent in range(count.bit_length()) if 1 << exponent < count - 1]


MAX_STDERR_LINES = 5
LOCAL_FIELDS = frozenset({"problems", "notes", "noise"})  # fields that no answer fills


def parse_facts(answer: object, *, sent_at: float | None = None, received_at: float | None = None) -> Facts:
    """Read a node's answer; `sent_at` and `received_at` are our clock (Unix seconds) around it. Never raises."""
    raw = answer if isinstance(answer, Mapping) else {}
    problems = {
        clean_text(str(key)): clean_text(str(cast("Problem", value)["problem"]))
        for key, value in raw.items()
        if _is_problem(value)
    }
    reading, values = Reading(clean_text), {}
    for name, field in fields_of(Facts).items():
        if raw.get(name) is None or name in problems or name in LOCAL_FIELDS:
            continue
        value = field.read(raw[name], name, reading)
        if value is None:
            problems[name] = tr("the answer was not understood")
        else:
            values[name] = value
    facts = Facts(**values, problems=problems, notes=tuple(reading.notes))
    return facts.replace(clock=_with_offset(facts.clock, sent_at, received_at))


def with_session_output(facts: Facts, stderr: str, noise: bytes = b"") -> Facts:
    """Add what the session wrote before Python answered: to stdout, and to stderr where an `activate` may have."""
    # what comes after the mark is the output of `activate`
    before_activate, _, _ = noise.decode("utf-8", "replace").partition(ACTIVATING)
    stdout_lines = (line.strip() for line in before_activate.split("\n"))
    facts = facts.replace(noise=clean_text(" / ".join(line for line in stdout_lines if line)))
    lines = [clean_text(line.strip()) for line in stderr.split("\n") if not line.startswith("clusterctl: ")]
    message = " / ".join([line for line in lines if line][-MAX_STDERR_LINES:])
    if facts.activate.status is None or not message:
        return facts
    return facts.replace(activate=facts.activate.replace(said=message))


def _is_problem(value: object) -> bool:
    return isinstance(value, Mapping) and set(value) == {"problem"}


def _with_offset(clock: Clock, sent_at: float | None, received_at: float | None) -> Clock:
    """Bound the offset by causality: the request left before it arrived, and so did the answer."""
    if sent_at is None or received_at is None or clock.received is None or clock.answered is None:
        return clock
    lowest, highest = clock.answered - received_at, clock.received - sent_at
    return clock.replace(offset=(lowest + highest) / 2, error=abs(highest - lowest) / 2)


def probe_request(node: Node, nodes: tuple[Node, ...], payload_hash: str) -> ProbeRequest:
    """Return the request for one node's probe; `payload_hash` is the SHA-256 of what a launch would need there.

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


AgeFormatter = Callable[[float], str]


def parse_holders(raw: object) -> tuple[LockHolder, ...]:
    """Read what a node reports of holders; never raises."""
    return read_clean_many(LockHolder, raw)


def describe_age(seconds: float) -> str:
    """Return for how long something has been: `for 45 s`, `for 3h05m`."""
    return tr("for {span}", span=render_duration(seconds))


def describe_holders(
    holders: Iterable[LockHolder], indices: Mapping[str, int], format_age: AgeFormatter = describe_age
) -> tuple[str, ...]:
    """Return what is held by whom, one line for each run; `indices` are the GPUs' by UUID."""
    groups: dict[tuple[str | None, int | None], list[LockHolder]] = {}
    for holder in holders:
        groups.setdefault((holder.run, holder.pid), []).append(holder)
    return tuple(
        tr(
            "{subject}: {text}",
            subject=_describe_locks(group, indices),
            text=_describe_holder(group[0], format_age),
        )
        for group in groups.values()
    )


def _describe_locks(holders: Iterable[LockHolder], indices: Mapping[str, int]) -> str:
    names = [holder.name or "" for holder in holders]
    ids = [name[len(GPU_LOCK_PREFIX) :] for name in names if name.startswith(GPU_LOCK_PREFIX)]
    known = sorted(indices[uuid] for uuid in ids if uuid in indices)
    others = [clean_text(uuid) for uuid in ids if uuid not in indices]
    parts = [f"GPU {', '.join([*fold_ranges(known), *others])}"] if ids else []
    parts += [tr("the whole node")] if NODE_LOCK in names else []
    return tr(" and ").join(parts) or tr("the node")


def _describe_holder(holder: LockHolder, format_age: AgeFormatter) -> str:
    account = [tr("account {user}", user=holder.user)] if holder.user else []
    process = tr(", ").join([*account, f"pid {holder.pid}" if holder.pid else tr("in another container")])
    if not holder.run:
        return tr("a process that does not answer ({process})", process=process)
    holding = tr("run {run} of {user}", run=holder.run, user=holder.by or tr("unknown"))
    age = [format_age(holder.age)] if holder.age is not None else []
    state = [] if holder.going else [tr("being prepared")]
    return tr("{error} ({evidence})", error=tr(", ").join([holding, *age, *state]), evidence=process)


MAX_NAMED_PROCESSES = 8  # processes named for one GPU


def render_gpu_memory(entries: Sequence[Untrusted]) -> tuple[str, ...]:
    """Return what is in use after a run: `GPU 0: 70000 MiB, by pid 4711 of bob (python train.py)`."""
    return tuple(map(_render_gpu, entries))


def _render_gpu(entry: Untrusted) -> str:
    processes = [_render_process(process) for process in entry.records("by", MAX_NAMED_PROCESSES)]
    index, size = _render_number(entry, "gpu"), _render_number(entry, "used")
    if processes:
        owners = tr(", ").join(processes)
        return tr("GPU {index}: {size} MiB, by {owners}", index=index, size=size, owners=owners)
    return tr(
        "GPU {index}: {size} MiB, by a process not visible on this node: in another container, or ending",
        index=index,
        size=size,
    )


def _render_process(entry: Untrusted) -> str:
    text, user = f"pid {_render_number(entry, 'pid')}", clean_text(entry.text("user", 80))
    command = clean_text(entry.text("command", 80))
    text = tr("{process} of {user}", process=text, user=user) if user else text
    return tr("{error} ({evidence})", error=text, evidence=command) if command else text


def _render_number(entry: Untrusted, key: str) -> str:
    value = entry.integer(key, 0)
    return "?" if value is None else str(value)
