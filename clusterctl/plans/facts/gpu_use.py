"""Who holds the locks and the memory of GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from clusterctl.plans.facts.records import Holder
from clusterctl.plans.facts.untrusted import clean_text, read_value
from clusterctl.protocol.untrusted import Untrusted

GPU = "clusterctl/gpu/"  # + UUID, as in the node's lock_holders.py
NODE = "clusterctl/node"

Since = Callable[[float], str]


def parse_holders(raw: object) -> tuple[Holder, ...]:
    """Read what a node says of holders; never raises."""
    found: tuple[Holder, ...] | None = read_value(tuple[Holder, ...], raw, "holders", [])
    return found or ()


def describe_age(seconds: float) -> str:
    """Say how long something has been: `for 45 s`, `for 12 min`, `for 3 h 5 min`, `for 2 days`."""
    whole = int(max(0.0, seconds))
    if whole < 60:
        return f"for {whole} s"
    if whole < 3600:
        return f"for {whole // 60} min"
    if whole < 86400:
        return f"for {whole // 3600} h {whole % 3600 // 60} min"
    return f"for {whole // 86400} days"


def describe_holders(
    holders: Iterable[Holder], indices: Mapping[str, int], since: Since = describe_age
) -> tuple[str, ...]:
    """Say what is held by whom, one line for each run; `indices` are the GPUs' by UUID."""
    groups: dict[tuple[str | None, int | None], list[Holder]] = {}
    for holder in holders:
        groups.setdefault((holder.run, holder.pid), []).append(holder)
    return tuple(f"{_what(group, indices)}: {_who(group[0], since)}" for group in groups.values())


def _what(holders: Iterable[Holder], indices: Mapping[str, int]) -> str:
    names = [holder.name or "" for holder in holders]
    ids = [name[len(GPU) :] for name in names if name.startswith(GPU)]
    known = sorted(indices[one] for one in ids if one in indices)
    others = [clean_text(one) for one in ids if one not in indices]
    parts = [f"GPU {', '.join([*_ranges(known), *others])}"] if ids else []
    parts += ["the whole node"] if NODE in names else []
    return " and ".join(parts) or "the node"


def _ranges(numbers: list[int]) -> list[str]:
    """Fold 0, 1, 2, 5 into 0-2, 5."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]


def _who(holder: Holder, since: Since) -> str:
    account = f"account {holder.user}, " if holder.user else ""
    pid = f"pid {holder.pid}" if holder.pid else "in another container"
    if not holder.run:
        return f"a process that does not answer ({account}{pid})"
    state = "" if holder.going else ", which is being prepared"
    age = f", {since(holder.age)}" if holder.age is not None else ""
    return f"run {holder.run} of {holder.by or 'unknown'}{age}{state} ({account}{pid})"


MOST = 8  # processes named for one GPU


def render_memory(entries: Sequence[Untrusted]) -> tuple[str, ...]:
    """Say what is in use after a run: `GPU 0: 70000 MiB, by pid 4711 of bob (python train.py)`."""
    return tuple(map(_render, entries))


def _render(entry: Untrusted) -> str:
    named = [_process(one) for one in entry.records("by", MOST)]
    whose = ", ".join(named) or "no process that this node shows: of another container, or one that is ending"
    return f"GPU {_number(entry, 'gpu')}: {_number(entry, 'used')} MiB, by {whose}"


def _process(entry: Untrusted) -> str:
    text, user = f"pid {_number(entry, 'pid')}", clean_text(entry.text("user", 80))
    command = clean_text(entry.text("command", 80))
    return text + (f" of {user}" if user else "") + (f" ({command})" if command else "")


def _number(entry: Untrusted, key: str) -> str:
    value = entry.integer(key, 0)
    return "?" if value is None else str(value)
