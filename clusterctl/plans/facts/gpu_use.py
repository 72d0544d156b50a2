"""The holders of locks and of GPU memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from clusterctl.plans.facts.untrusted import clean_text, read_clean_many
from clusterctl.protocol.messages.facts import LockHolder
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.text import render_duration
from clusterctl.translation import tr

GPU_LOCK_PREFIX = "clusterctl/gpu/"  # + UUID, as in the node's lock_holders.py
NODE_LOCK = "clusterctl/node"

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
    parts = [f"GPU {', '.join([*_fold_ranges(known), *others])}"] if ids else []
    parts += [tr("the whole node")] if NODE_LOCK in names else []
    return tr(" and ").join(parts) or tr("the node")


def _fold_ranges(numbers: list[int]) -> list[str]:
    """Fold 0, 1, 2, 5 into 0-2, 5."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1].append(number)
        else:
            ranges.append([number])
    return [str(span[0]) if len(span) == 1 else f"{span[0]}-{span[-1]}" for span in ranges]


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
